"""Sampling: the right number, no edge twice, every choice as likely as any other."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embertide.engine.stages.csr import sample_layer
from embertide.kernels import native, sample
from embertide.kernels.csr import Csr
from embertide.kernels.sample import floyd


def graph(degrees: list[int]) -> Csr:
    """Rows with sources 0, 1, ...; a source's weight says its row and place."""
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    cols = np.concatenate([np.arange(d) for d in degrees] + [np.empty(0)]).astype(np.int32)
    rows = np.repeat(np.arange(len(degrees)), degrees)
    weights = torch.from_numpy((rows * 1000 + cols).astype(np.float32))
    return Csr(7, torch.from_numpy(indptr.astype(np.int64)), torch.from_numpy(cols), weights)


DEGREES = st.lists(st.integers(0, 30), min_size=1, max_size=20)


@given(DEGREES, st.integers(1, 12), st.integers(0, 2**63 - 1), st.integers(0, 5))
def test_samples_are_parts_of_their_rows(
    degrees: list[int], fanout: int, seed: int, layer: int
) -> None:
    part, keys = graph(degrees), np.arange(len(degrees)).astype(np.uint64)
    found = sample_layer(part, keys, fanout, seed, layer)
    assert found.first == 7
    assert found.indptr.diff().tolist() == [min(d, fanout) for d in degrees]
    for row, degree in enumerate(degrees):
        start, stop = found.indptr[row], found.indptr[row + 1]
        cols = found.cols[start:stop].tolist()
        assert cols == sorted(set(cols))
        assert all(c < degree for c in cols)
        assert found.weights[start:stop].tolist() == [row * 1000 + c for c in cols]


@given(DEGREES, st.data())
def test_a_row_s_sample_does_not_depend_on_the_others(
    degrees: list[int], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(degrees) - 1))
    part, keys = graph(degrees), np.arange(len(degrees)).astype(np.uint64)
    whole = sample_layer(part, keys, 4, 1, 0).slice(start, len(degrees))
    alone = sample_layer(part.slice(start, len(degrees)), keys[start:], 4, 1, 0)
    assert torch.equal(alone.cols, whole.cols)
    assert torch.equal(alone.indptr, whole.indptr)


def test_batches_of_rows_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    part, keys = graph([9] * 50), np.arange(50).astype(np.uint64)
    whole = sample_layer(part, keys, 3, 5, 1)
    monkeypatch.setattr(sample, "_ROWS", 7)
    monkeypatch.setattr(native, "lib", None)
    assert torch.equal(sample_layer(part, keys, 3, 5, 1).cols, whole.cols)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("degree", "fanout"), [(5, 2), (6, 3), (7, 6), (4, 1)])
def test_every_subset_is_equally_likely(degree: int, fanout: int, seed: int) -> None:
    """Chi-square over all subsets of 20 000 rows. Its mean is the degrees of freedom, its variance
    twice that; six deviations are passed by chance once in many millions of times."""
    rows = 20_000
    keys = np.arange(rows).astype(np.uint64)
    picks = floyd(np.full(rows, degree), fanout, keys, seed, 0)
    counts = Counter(map(tuple, np.sort(picks, axis=1).tolist()))
    subsets = list(combinations(range(degree), fanout))
    assert set(counts) <= set(subsets)
    expected = rows / len(subsets)
    chi_square = sum((counts[s] - expected) ** 2 / expected for s in subsets)
    freedom = len(subsets) - 1
    assert chi_square < freedom + 6 * (2 * freedom) ** 0.5


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.data())
def test_floyd_picks_distinct_positions(degrees: list[int], data: st.DataObject) -> None:
    fanout = data.draw(st.integers(1, min(12, min(degrees))))
    keys = np.arange(len(degrees)).astype(np.uint64)
    picks = floyd(np.array(degrees), fanout, keys, 3, 1)
    for row, degree in zip(picks.tolist(), degrees, strict=True):
        assert len(set(row)) == fanout
        assert min(row) >= 0
        assert max(row) < degree


def test_layers_seeds_and_nodes_choose_apart() -> None:
    part = graph([40] * 30)
    keys = np.arange(30).astype(np.uint64)
    samples = {
        tuple(sample_layer(part, keys + np.uint64(shift), 5, seed, layer).cols.tolist())
        for seed in (0, 1)
        for layer in (0, 1)
        for shift in (0, 100)
    }
    assert len(samples) == 8
