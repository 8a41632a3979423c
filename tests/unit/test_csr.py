"""The CSR from packed edges, and the graph with one self-loop per row, against plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embertide.kernels import csr as csr_module
from embertide.kernels.csr import Csr, id_type, more_loops, new_loops, single_loops, uneven_loops
from embertide.kernels.edge_sort import pack
from tests.support.sorted_edges import build_csr

Edge = tuple[int, int, float]


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[int, int, int, list[Edge]]:
    """N, the first row, the number of rows, and (row, source, weight)."""
    nodes = draw(st.integers(1, 40))
    first = draw(st.integers(0, nodes - 1))
    rows = draw(st.integers(1, nodes - first))
    edge = st.tuples(
        st.integers(0, rows - 1), st.integers(0, nodes - 1), st.integers(1, 9).map(float)
    )
    return nodes, first, rows, draw(st.lists(edge, max_size=80))


def build(
    nodes: int, first: int, rows: int, edges: list[Edge], *, weighted: bool, unique: bool
) -> Csr:
    row, col, weight = (np.array([e[i] for e in edges]) for i in range(3))
    keys = pack(row.astype(np.int64), col.astype(np.int64), nodes)
    weights = weight.astype(np.float32) if weighted else None
    return build_csr(keys, weights, rows, nodes, first=first, remove_duplicates=unique)


def entries(csr: Csr) -> list[Edge]:
    weights = [1.0] * csr.nnz if csr.weights is None else csr.weights.tolist()
    return list(zip(csr.row_ids().tolist(), csr.cols.tolist(), weights, strict=True))


@given(edge_lists(), st.booleans(), st.booleans())
def test_rows_hold_their_edges_in_order(
    case: tuple[int, int, int, list[Edge]], weighted: bool, unique: bool
) -> None:
    nodes, first, rows, edges = case
    csr = build(nodes, first, rows, edges, weighted=weighted, unique=unique)
    assert (csr.first, csr.rows, csr.indptr[0]) == (first, rows, 0)
    assert csr.cols.dtype == id_type(nodes)
    expected = sorted((r, c, w if weighted else 1.0) for r, c, w in edges)
    if unique:
        heaviest = {(r, c): w for r, c, w in expected}
        expected = [(r, c, w) for (r, c), w in heaviest.items()]
    assert entries(csr) == expected


@given(edge_lists(), st.randoms(use_true_random=False))
def test_arrival_order_does_not_matter(
    case: tuple[int, int, int, list[Edge]], random: object
) -> None:
    nodes, first, rows, edges = case
    shuffled = list(edges)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (
        build(nodes, first, rows, e, weighted=True, unique=False) for e in (edges, shuffled)
    )
    assert torch.equal(one.cols, other.cols)
    assert torch.equal(one.weights, other.weights)


@given(edge_lists(), st.booleans())
def test_single_loops(case: tuple[int, int, int, list[Edge]], weighted: bool) -> None:
    nodes, first, rows, edges = case
    csr = single_loops(build(nodes, first, rows, edges, weighted=weighted, unique=False), 2.5)
    expected = []
    for row in range(rows):
        own = [w for r, c, w in edges if r == row and c == row + first]
        others = sorted((row, c, w) for r, c, w in edges if r == row and c != row + first)
        expected += [*others, (row, row + first, max(own) if own else 2.5)]
    if not weighted:
        expected = [(r, c, 1.0) for r, c, _ in expected]
        assert csr.weights is None
    assert entries(csr) == expected


@given(edge_lists(), st.booleans())
def test_rows_whose_loops_differ(case: tuple[int, int, int, list[Edge]], weighted: bool) -> None:
    nodes, first, rows, edges = case
    csr = build(nodes, first, rows, edges, weighted=weighted, unique=False)
    own = [{w for r, c, w in edges if r == row and c == row + first} for row in range(rows)]
    expected = [row for row in range(rows) if weighted and len(own[row]) > 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csr_module, "_ROWS_OF_LOOPS", 3)
        assert uneven_loops(csr).tolist() == expected
        if csr.weights is not None:
            told = replace(csr, weights=None, features=csr.weights.view(-1, 1))
            assert uneven_loops(told).tolist() == expected


@given(edge_lists(), st.booleans())
def test_new_loops(case: tuple[int, int, int, list[Edge]], weighted: bool) -> None:
    nodes, first, rows, edges = case
    csr = new_loops(build(nodes, first, rows, edges, weighted=weighted, unique=False), 2.5)
    expected = []
    for row in range(rows):
        others = sorted((row, c, w) for r, c, w in edges if r == row and c != row + first)
        expected += [*others, (row, row + first, 2.5)]
    if not weighted:
        expected = [(r, c, 1.0) for r, c, _ in expected]
        assert csr.weights is None
    assert entries(csr) == expected


@given(edge_lists(), st.booleans())
def test_more_loops(case: tuple[int, int, int, list[Edge]], weighted: bool) -> None:
    nodes, first, rows, edges = case
    stored = build(nodes, first, rows, edges, weighted=weighted, unique=False)
    expected = []
    for row in range(rows):
        expected += [one for one in entries(stored) if one[0] == row]
        expected.append((row, row + first, 2.5 if weighted else 1.0))
    assert entries(more_loops(stored, 2.5)) == expected


@given(edge_lists(), st.data())
def test_slices_are_the_rows(case: tuple[int, int, int, list[Edge]], data: st.DataObject) -> None:
    nodes, first, rows, edges = case
    csr = build(nodes, first, rows, edges, weighted=True, unique=False)
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    part = csr.slice(start, stop)
    assert (part.first, part.rows) == (first + start, stop - start)
    inside = [(r - start, c, w) for r, c, w in entries(csr) if start <= r < stop]
    assert entries(part) == inside


def test_node_ids_of_2_to_the_31_nodes_are_wide() -> None:
    assert id_type(2**31 - 1) is torch.int32
    assert id_type(2**31) is torch.int64
    far = 2**31 + 5
    csr = build(2**31 + 8, 0, 2, [(1, far, 1.0), (0, 3, 1.0)], weighted=False, unique=False)
    assert csr.cols.tolist() == [3, far]
