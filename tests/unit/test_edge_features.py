"""Features of edges stay with their edges: sorted, thinned, sampled, with self-loops or without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embertide.engine.stages.csr import sample_layer
from embertide.kernels import native
from embertide.kernels.csr import Csr, add_loops
from embertide.kernels.edge_features import (
    added_loop_features,
    more_loop_features,
    single_loop_features,
)
from embertide.kernels.edge_sort import EdgeSorter, bucket_count, bucket_shift, count_edges
from embertide.program.steps import Message, PairAttend
from tests.support.step_program import program, summed

LINES = ("moved = linear(e, p0)", "out = add(s, moved)")
Edge = tuple[int, int, float, float, float]

EDGES = st.lists(
    st.tuples(
        st.integers(0, 11),
        st.integers(0, 20),
        *(st.integers(0, top).map(float) for top in (1, 1, 9)),
    ),
    max_size=60,
)
"""(row, source, weight, two features): many are equal in all but the last."""


def build(edges: list[Edge], *, weighted: bool, unique: bool = False, parts: int = 1) -> Csr:
    """Rows 2..13 of 21 nodes, whose edges come in so many parts."""
    table = np.array(edges, np.float32).reshape(-1, 5)
    rows, cols = table[:, 0].astype(np.int64) + 2, table[:, 1].astype(np.int32)
    counts = np.zeros((1, bucket_count(12)), np.int64)
    count_edges(rows, np.array([2, 14]), bucket_shift(12), counts)
    sorter = EdgeSorter(
        counts[0], bucket_shift(12), first=2, rows=12, nodes=21, weighted=weighted, features=2
    )
    for part in np.array_split(np.arange(len(table)), parts):
        weights = table[part, 2] if weighted else None
        sorter.add_edges(rows[part], cols[part], weights, table[part, 3:])
    return sorter.finish(remove_duplicates=unique)


def entries(csr: Csr) -> list[Edge]:
    weights = [0.0] * csr.nnz if csr.weights is None else csr.weights.tolist()
    assert csr.features is not None
    assert csr.features.dtype == torch.float32
    ends = zip(csr.row_ids().tolist(), csr.cols.tolist(), weights, strict=True)
    return [(*end, *own) for end, own in zip(ends, csr.features.tolist(), strict=True)]


@settings(max_examples=30)
@given(EDGES, st.booleans(), st.booleans(), st.integers(1, 3))
def test_edges_are_in_order_with_their_features(
    edges: list[Edge], weighted: bool, unique: bool, parts: int
) -> None:
    expected = sorted((r, c, w if weighted else 0.0, *own) for r, c, w, *own in edges)
    if unique:
        expected = list({one[:2]: one for one in expected}.values())
    assert entries(build(edges, weighted=weighted, unique=unique, parts=parts)) == expected


@pytest.mark.parametrize("plain", [False, True])
def test_a_sample_has_the_features_of_its_edges(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = [(r, c, 0.0, float(r), float(c)) for r in range(12) for c in range(r + 2)]
    keys = np.arange(12).astype(np.uint64)
    whole = build(edges, weighted=False)
    bare = sample_layer(whole.without_features(), keys, 4, 1, 0)
    if plain:
        monkeypatch.setattr(native, "lib", None)
    found = sample_layer(whole, keys, 4, 1, 0)
    assert found.features is not None
    assert torch.equal(found.cols, bare.cols)
    assert torch.equal(found.indptr, bare.indptr)
    assert found.features[:, 0].tolist() == found.row_ids().tolist()
    assert found.features[:, 1].tolist() == found.cols.tolist()


@pytest.mark.parametrize("more", [False, True])
def test_added_self_loops_have_features_of_one(more: bool) -> None:
    """Nodes 4, 6, ... have a loop, node 4 has two; the others have none."""
    edges = [(r, c, 0.0, 5.0, float(c)) for r in range(12) for c in range(0, 21, 2)]
    before = build([*edges, (2, 4, 0.0, 7.0, 1.0)], weighted=False)
    after = add_loops(before, 1.0, more=more)
    assert before.features is not None
    features = added_loop_features(before, after, before.features, more=more)
    by_edge: dict[tuple[int, int], list[list[float]]] = {}
    for row, col, own in zip(
        after.row_ids().tolist(), after.cols.tolist(), features.tolist(), strict=True
    ):
        by_edge.setdefault((row, col), []).append(own)
    ones = [[1.0, 1.0]]
    assert by_edge.pop((2, 4)) == ([[5.0, 4.0], [7.0, 1.0], *ones] if more else [[7.0, 1.0]])
    assert len(by_edge) == 12 * 11 + 5
    for (row, col), own in by_edge.items():
        stored = [[5.0, float(col)]] if col % 2 == 0 else []
        new = col == row + 2 and (more or not stored)
        assert own == stored + ones * new


@pytest.mark.parametrize(
    ("fill", "expected"), [("mean", 3.0), ("add", 6.0), ("min", 2.0), ("max", 4.0), ("mul", 8.0)]
)
def test_a_new_loop_combines_the_other_edges(fill: str, expected: float) -> None:
    """Row 0 is node 2: its own loop does not count, and rows without edges get 0."""
    csr = build([(0, 1, 0, 2, 0), (0, 2, 0, 99, 0), (0, 5, 0, 4, 0)], weighted=False)
    assert csr.features is not None
    found = single_loop_features(csr, csr.features, fill)
    assert found[:, 0].tolist() == [2.0, 4.0, expected, *[0.0] * 11]


def test_one_more_loop_combines_all_edges() -> None:
    csr = build([(0, 1, 0, 2, 0), (0, 2, 0, 9, 0), (0, 5, 0, 4, 0)], weighted=False)
    assert csr.features is not None
    found = more_loop_features(csr, csr.features, "mean")
    assert found[:, 0].tolist() == [2.0, 9.0, 4.0, 5.0, *[0.0] * 11]


def test_a_graph_has_the_features_that_any_of_its_steps_reads() -> None:
    reading = Message(out="m", layer=0, x="x", params=("edge",), edge_features=3, lines=LINES)
    for steps in ((reading, summed("out", "m")), (summed("m", "x"), replace(reading, out="out"))):
        assert program(*steps).edge_needs().features == 3


@pytest.mark.parametrize(("count", "heads"), [(8, 4), (4, 2), (2, 1), (1, 1)])
def test_columns_of_an_attention_are_of_its_heads(count: int, heads: int) -> None:
    step = PairAttend(out="o", layer=0, x="v", key="k", query="q", kind="dot", heads=4)
    assert step.of_columns(count, {"o": 8}).heads == heads
