"""Edges to rows, self-loops, degrees and samples: kernels against plain loops and numpy."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from embertide.kernels import native
from embertide.kernels.counting import count_values, row_lengths, row_sums
from embertide.kernels.csr import Csr, add_loops, single_loops
from embertide.kernels.edge_sort import (
    EdgeSorter,
    bucket_count,
    bucket_shift,
    column_bits,
    count_edges,
    key_bytes,
    pack,
    partition_edges,
)
from embertide.kernels.sample import sample_rows
from embertide.kernels.threads import set_threads
from tests.support.sorted_edges import build_csr


def edges(
    size: int, rows: int, nodes: int, hub: float = 0.0, kind: type = np.int32
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Destinations, sources and weights; a share of the edges enters one row, some twice."""
    rng = np.random.default_rng(size)
    dst = rng.integers(0, rows, size)
    dst[rng.random(size) < hub] = rows // 2
    src = rng.integers(0, nodes, size)
    again = rng.integers(0, max(1, size), size // 4)
    dst[: len(again)], src[: len(again)] = dst[again], src[again]
    return dst.astype(kind), src.astype(kind), rng.integers(1, 5, size).astype(np.float32)


def sort(
    dst: np.ndarray, src: np.ndarray, weight: np.ndarray | None, rows: int, nodes: int, unique: bool
) -> Csr:
    shift = bucket_shift(rows)
    counts = np.zeros((1, bucket_count(rows)), np.int64)
    count_edges(dst, np.array([0, rows]), shift, counts)
    sorter = EdgeSorter(
        counts[0], shift, first=0, rows=rows, nodes=nodes, weighted=weight is not None
    )
    for part in np.array_split(np.arange(len(dst)), 3):
        sorter.add_edges(dst[part], src[part], None if weight is None else weight[part])
    return sorter.finish(remove_duplicates=unique)


def same(one: Csr, other: Csr) -> None:
    assert torch.equal(one.indptr, other.indptr)
    assert torch.equal(one.cols, other.cols)
    assert (one.weights is None) == (other.weights is None)
    assert one.weights is None or torch.equal(one.weights, other.weights)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("size", "rows", "nodes", "hub", "kind"),
    [
        (0, 5, 5, 0.0, np.int32),
        (3000, 1, 7, 0.0, np.int32),
        (5000, 3000, 3000, 0.3, np.int64),
        (300_000, 5000, 40_000, 0.6, np.int32),
        (300_000, 9, 2, 0.5, np.int32),
        (300_000, 30_000, 40_000, 0.0, np.int32),  # rows of each length up to 26
        (300_000, 2**21, 2**21, 0.3, np.int32),  # words of four bytes, all bits of them
        (300_000, 2**22 + 1, 2**22 + 1, 0.3, np.int32),  # of eight: a bit more
        (300_000, 4, 2**31, 0.3, np.int64),
        (200_000, 100, 2**33, 0.5, np.int64),
    ],
)
def test_rows_are_sorted(
    size: int, rows: int, nodes: int, hub: float, kind: type, weighted: bool, unique: bool
) -> None:
    dst, src, weight = edges(size, rows, nodes, hub, kind)
    found = sort(dst, src, weight if weighted else None, rows, nodes, unique)
    order = np.lexsort((weight, src, dst))
    dst, src, weight = dst[order], src[order], weight[order]
    if unique:
        last = np.append((dst[1:] != dst[:-1]) | (src[1:] != src[:-1]), np.ones(min(size, 1), bool))
        last = last.astype(bool)
        dst, src, weight = dst[last], src[last], weight[last]
    assert found.cols.numpy().tolist() == src.tolist()
    assert found.indptr.tolist() == np.searchsorted(dst, np.arange(rows + 1)).tolist()
    if weighted:
        assert found.weights.numpy().tolist() == weight.tolist()


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("nodes", [2**20, 2**30])
def test_packed_edges_are_sorted_in_several_portions(nodes: int) -> None:
    rows, first = 5000, 70
    dst, src, weight = edges(100_000, rows, nodes)
    shift = bucket_shift(rows)
    counts = np.zeros((1, bucket_count(rows)), np.int64)
    count_edges(dst, np.array([0, rows]), shift, counts)
    sorter = EdgeSorter(counts[0], shift, first=first, rows=rows, nodes=nodes, weighted=True)
    keys = pack(dst, src, nodes)
    for part in np.array_split(np.arange(len(dst)), 3):
        sorter.add_keys(keys[part], weight[part])
    found, order = sorter.finish(remove_duplicates=False), np.lexsort((weight, keys))
    assert (found.cols.numpy() == src[order]).all()
    assert (found.row_ids().numpy() == dst[order]).all()
    assert (found.weights.numpy() == weight[order]).all()


def test_words_are_narrow_where_row_and_column_fit() -> None:
    million = 1 << 20
    assert key_bytes(bucket_shift(4 * million), 4 * million) == 4
    assert key_bytes(bucket_shift(4 * million + 1), 4 * million) == 8
    assert key_bytes(bucket_shift(4 * million), 4 * million + 1) == 8
    assert key_bytes(bucket_shift(4 * million), 4 * million, features=1) == 8
    assert key_bytes(0, 2**31) == 8


@pytest.mark.skipif(native.lib is None, reason=native.describe())
@pytest.mark.parametrize("unique", [False, True])
def test_rows_without_edges_end_where_they_begin(unique: bool) -> None:
    # Buckets without edges, before and between those with some, of which one is split.
    rows = 20_000
    dst = np.concatenate([np.full(200_000, 9001), np.full(10, 13_000)]).astype(np.int32)
    src = np.arange(len(dst), dtype=np.int32) % 150_000
    found = sort(dst, src, None, rows, 200_000, unique)
    kept = np.unique(np.stack([dst, src]), axis=1) if unique else np.stack([dst, src])
    expected = np.searchsorted(np.sort(kept[0]), np.arange(rows + 1))
    assert (found.indptr.numpy() == expected).all()
    assert (found.cols[found.indptr[9001] : found.indptr[9002]].diff() >= 0).all()


@pytest.mark.skipif(native.lib is None, reason=native.describe())
@pytest.mark.parametrize("unique", [False, True])
def test_neither_threads_nor_order_matter(unique: bool) -> None:
    dst, src, weight = edges(700_000, 40_000, 50_000, 0.3)
    set_threads(1)
    one = sort(dst, src, weight, 40_000, 50_000, unique)
    set_threads(3)
    order = np.random.default_rng(4).permutation(len(dst))
    other = sort(dst[order], src[order], weight[order], 40_000, 50_000, unique)
    set_threads(0)
    same(one, other)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize(
    "inner", [[], [3000], [10, 3000], [10, 10, 3000], [*range(7, 4000, 199)]], ids=len
)
def test_edges_reach_their_owner(inner: list[int], kind: type, weighted: bool) -> None:
    nodes, bounds = 5000, np.array([0, *inner, 5000])
    dst, src, weight = edges(400_000, nodes, nodes, kind=kind)
    ranges, most = len(bounds) - 1, int(np.diff(bounds).max())
    counts = np.zeros((ranges, bucket_count(most)), np.int64)
    count_edges(dst, bounds, bucket_shift(most), counts)
    ends = np.cumsum(counts.sum(1))
    keys, out = np.empty(len(dst), np.int64), np.empty(len(dst), np.float32)
    partition_edges(
        dst,
        src,
        weight if weighted else None,
        bounds,
        nodes,
        cursors=ends - counts.sum(1),
        keys=keys,
        out_weights=out if weighted else None,
    )
    assert (ends == np.searchsorted(np.sort(dst), bounds[1:])).all()
    for owner in range(ranges):
        start, stop = bounds[owner], bounds[owner + 1]
        inside = (dst >= start) & (dst < stop)
        expected = pack(dst[inside] - start, src[inside], nodes)
        span = slice(ends[owner] - counts[owner].sum(), ends[owner])
        if weighted:
            order, mine = (
                np.lexsort((weight[inside], expected)),
                np.lexsort((out[span], keys[span])),
            )
            assert (weight[inside][order] == out[span][mine]).all()
        assert (np.sort(keys[span]) == np.sort(expected)).all()


@pytest.mark.usefixtures("kernels")
def test_rows_outside_are_refused() -> None:
    counts = np.zeros((1, 4), np.int64)
    with pytest.raises(ValueError, match="outside all ranges"):
        count_edges(np.array([4], np.int32), np.array([0, 4]), 0, counts)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("row", [1, 12, -1])
@pytest.mark.parametrize("ranges", [1, 2, 10])
def test_edges_outside_are_not_packed(row: int, ranges: int) -> None:
    rows, cols = np.array([3, row], np.int32), np.zeros(2, np.int32)
    bounds, cursors = np.arange(2, ranges + 3), np.zeros(ranges, np.int64)
    with pytest.raises(ValueError, match="outside all ranges"):
        partition_edges(
            rows, cols, None, bounds, 9, cursors=cursors, keys=np.zeros(2, int), out_weights=None
        )


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("more", [False, True])
def test_loops_are_added_in_their_place(weighted: bool, more: bool) -> None:
    """Several rows have several loops; a new one has weight 0.5, and comes last of its row's."""
    dst, src, weight = edges(20_000, 300, 400, 0.4)
    csr = build_csr(
        pack(dst, src, 400),
        weight if weighted else None,
        300,
        400,
        first=60,
        remove_duplicates=False,
    )
    before = [1.0] * csr.nnz if csr.weights is None else csr.weights.tolist()
    stored = list(zip(csr.row_ids().tolist(), csr.cols.tolist(), before, strict=True))
    loops: dict[int, list[tuple[int, int, float]]] = {row: [] for row in range(300)}
    for edge in stored:
        if edge[1] == edge[0] + 60:
            loops[edge[0]].append(edge)
    assert max(map(len, loops.values())) > 1
    expected = [edge for edge in stored if edge[1] != edge[0] + 60]
    for row, own in loops.items():
        new = (row, row + 60, 0.5 if weighted else 1.0)
        expected += [*own, new] if more else own[-1:] or [new]
    added = add_loops(csr, 0.5, more=more)
    after = [1.0] * added.nnz if added.weights is None else added.weights.tolist()
    entries = list(zip(added.row_ids().tolist(), added.cols.tolist(), after, strict=True))
    assert entries == sorted(expected, key=lambda edge: edge[:2])


@pytest.mark.skipif(native.lib is None, reason=native.describe())
@pytest.mark.parametrize(
    "change", [single_loops, partial(add_loops, more=True), partial(add_loops, more=False)]
)
def test_loops_and_samples_equal_the_fallback(
    change: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    dst, src, weight = edges(400_000, 30_000, 30_000, 0.5)
    csr = build_csr(
        pack(dst, src, 30_000), weight, 30_000, 30_000, first=0, remove_duplicates=False
    )
    keys = np.random.default_rng(1).integers(0, 2**63, 30_000).astype(np.uint64)

    def results() -> list[Csr]:
        return [change(csr, 0.5), sample_rows(csr, keys, 3, 2**63 + 5, 2)]

    set_threads(3)
    found = results()
    set_threads(0)
    monkeypatch.setattr(native, "lib", None)
    for one, other in zip(found, results(), strict=True):
        same(one, other)


@pytest.mark.usefixtures("kernels")
def test_counts_and_sums() -> None:
    dst, src, weight = edges(300_000, 1000, 1000, 0.5)
    csr = build_csr(pack(dst, src, 1000), weight, 1000, 1000, first=0, remove_duplicates=False)
    assert column_bits(1000) == 10
    counts = torch.ones(1000, dtype=torch.int32)
    count_values(csr.cols, counts)
    assert (counts.numpy() == 1 + np.bincount(src, minlength=1000)).all()
    assert torch.equal(row_lengths(csr.indptr), csr.indptr.diff().float())
    expected = np.bincount(dst, weight.astype(np.float64), minlength=1000)
    assert torch.equal(row_sums(csr.indptr, csr.weights), torch.from_numpy(expected).float())


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize(("count", "size"), [(0, 5), (1, 9), (400_000, 1000), (1000, 400_000)])
def test_values_are_counted_whether_they_are_many_or_few(
    count: int, size: int, kind: torch.dtype
) -> None:
    found = np.random.default_rng(1).integers(0, max(1, size), count)
    found[: count // 2] = size // 2  # a hub, far beyond what a byte can count
    values, counts = torch.from_numpy(found).to(kind), torch.ones(size, dtype=torch.int32)
    count_values(values, counts)
    assert (counts.numpy() == 1 + np.bincount(found, minlength=size)).all()
    for outside in (size, -1):
        with pytest.raises((ValueError, RuntimeError)):
            count_values(torch.cat([values, torch.tensor([outside], dtype=kind)]), counts)
