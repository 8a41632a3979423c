"""A graph into which edges are put, and out of which some are taken, is that of all edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.graph.edge_log import EdgeChunk
from embertide.graph.exchange import Exchange
from embertide.graph.moved_edges import (
    EdgeWords,
    MovedEdges,
    ReadEdgeWords,
    find_moved,
    patched,
)
from embertide.grid import Grid
from embertide.kernels.csr import Csr, column_bits
from embertide.spec.grid import GridShape
from tests.support.sorted_edges import build_csr

NODES = 50


def edges(count: int, seed: int, *, weighted: bool) -> EdgeWords:
    """Some edges, of which many are there several times."""
    g = np.random.default_rng(seed)
    words = g.integers(0, NODES, (count, 2 + weighted)).astype(np.int32)
    words[:, 0] = words[:, 0] ** 2 // NODES
    if weighted:
        words[:, 2] = g.choice(np.array([0.5, 1.5], np.float32), count).view(np.int32)
    return words


def graph(words: EdgeWords, first: int = 0, last: int = NODES) -> Csr:
    words = words[(words[:, 0] >= first) & (words[:, 0] < last)]
    keys = ((words[:, 0].astype(np.int64) - first) << column_bits(NODES)) | words[:, 1]
    weights = np.ascontiguousarray(words[:, 2]).view(np.float32) if words.shape[1] > 2 else None
    rows = last - first
    return build_csr(keys, weights, rows, NODES, first=first, remove_duplicates=False)


def moved(before: EdgeWords, now: EdgeWords, most: int = 10**6) -> MovedEdges | None:
    exchange = Exchange(Grid(GridShape.of(1, 1), 0), torch.device("cpu"), CountingRecorder())
    return find_moved(exchange, NODES, most, before, now)


def assert_equal(some: Csr, other: Csr) -> None:
    assert some.first == other.first
    for name in ("indptr", "cols", "weights"):
        one, two = getattr(some, name), getattr(other, name)
        assert (one is None) == (two is None)
        assert one is None or (one.dtype == two.dtype and torch.equal(one, two))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("gone", "came"), [(0, 7), (7, 0), (9, 9), (40, 3), (300, 300), (0, 0)])
def test_a_graph_is_patched_to_that_of_all_edges(gone: int, came: int, weighted: bool) -> None:
    same, old, new = (
        edges(count, seed, weighted=weighted) for seed, count in enumerate((400, gone, came))
    )
    before, now = np.concatenate([same, old]), np.concatenate([new, same[::-1]])
    found = moved(before, now)
    assert found is not None
    # Twice: what moved back and forth is not there.
    back = moved(now, before)
    assert back is not None
    assert len(found.then(back)) == 0
    for first, last in [(0, NODES), (0, 1), (3, 20), (NODES, NODES)]:
        if first < last:
            assert_equal(patched(graph(before, first, last), NODES, found), graph(now, first, last))
    turned = [words[:, [1, 0, 2][: 2 + weighted]] for words in (before, now)]
    assert_equal(patched(graph(turned[0]), NODES, found.turned()), graph(turned[1]))
    rows = np.flatnonzero([
        not np.array_equal(graph(before, row, row + 1).cols, graph(now, row, row + 1).cols)
        for row in range(NODES)
    ])  # fmt: skip
    assert set(rows) <= set(found.rows)
    nodes, more = found.out_degrees()
    counts = [np.bincount(words[:, 1], minlength=NODES) for words in (before, now)]
    assert np.array_equal(nodes, np.flatnonzero(counts[0] != counts[1]))
    assert np.array_equal(more, (counts[1] - counts[0])[nodes])


def test_edges_that_stand_where_they_did_are_not_looked_at_again() -> None:
    before = edges(100, 1, weighted=False)
    now = before.copy()
    now[[4, 50], 1] = (now[[4, 50], 1] + 1) % NODES
    found = moved(before, now)
    assert found is not None
    assert (len(found.gone), len(found.came)) == (2, 2)


def test_too_many_that_have_moved_are_none() -> None:
    before, now = edges(100, 1, weighted=False), edges(100, 2, weighted=False)
    assert moved(before, now, 200) is None


def test_an_edge_that_was_not_there_is_not_taken_out() -> None:
    words = edges(100, 1, weighted=True)
    gone = words[:1].copy()
    gone[0, 2] = np.float32(7).view(np.int32)
    with pytest.raises(ValueError, match="were not in the graph"):
        patched(graph(words), NODES, MovedEdges(gone, words[:0]))


def test_edges_are_put_together_from_chunks_as_they_are_taken() -> None:
    g = np.random.default_rng(1)
    chunks = [
        EdgeChunk(
            g.integers(0, 9, count).astype(np.int32),
            g.integers(0, 9, count).astype(np.int32),
            g.random(count).astype(np.float32),
        )
        for count in (5, 0, 7)
    ]
    words = ReadEdgeWords(chunks, weighted=True)
    assert words.shape == (12, 3)
    every = words[:]
    assert np.array_equal(every[5:, 0], chunks[2].destination)
    assert np.array_equal(every[:5, 1], chunks[0].source)
    weight = chunks[2].weight
    assert weight is not None
    assert np.array_equal(np.ascontiguousarray(every[5:, 2]).view(np.float32), weight)
    assert np.array_equal(words[3:8], every[3:8])
