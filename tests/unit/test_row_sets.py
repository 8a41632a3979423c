"""Some rows of a graph: the sources of their edges, the rows alone, and the rows that some sources
have edges to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from embertide.kernels import native, some_rows
from embertide.kernels.csr import Csr
from embertide.kernels.scratch import Scratch
from embertide.kernels.some_rows import edges_of, sources_of, take_rows, targets_of
from embertide.kernels.spilled_csr import AnyCsr, SpilledCsr

ROWS, NODES = 40, 25


@pytest.fixture(params=["native", "torch"], autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The native kernels, and what takes their place without them."""
    if request.param == "torch":
        monkeypatch.setattr(native, "lib", None)
    else:
        assert native.lib is not None


def graph() -> Csr:
    """Rows without edges at both ends and between, one with many."""
    g = torch.Generator().manual_seed(3)
    lengths = torch.randint(0, 5, (ROWS,), generator=g)
    lengths[[0, 7, 8, ROWS - 1]], lengths[20] = 0, 60
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    cols = torch.randint(0, NODES, (int(indptr[-1]),), generator=g, dtype=torch.int32)
    return Csr(100, indptr, cols)


@pytest.fixture(params=["memory", "disk"])
def placed(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Csr], AnyCsr]:
    """Puts a graph where it is: on disk in three parts, of which the second has no rows."""

    def place(csr: Csr) -> AnyCsr:
        if request.param == "memory":
            return csr
        cuts = pairwise([0, 15, 15, csr.rows])
        parts = (csr.slice(*cut) for cut in cuts)
        return SpilledCsr.write(Scratch(tmp_path), csr.first, csr.rows, parts)

    return place


@pytest.mark.parametrize("edges", [1, 7, 1 << 22])
@pytest.mark.parametrize(
    "rows", [[], [0], [7, 8], [20], [ROWS - 1], [1, 19, 20, 21, 38], list(range(ROWS))]
)
def test_sources_are_those_of_the_rows_edges(
    rows: list[int],
    edges: int,
    placed: Callable[[Csr], AnyCsr],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(some_rows, "_EDGES", edges)
    csr, wanted = graph(), torch.zeros(ROWS, dtype=torch.bool)
    wanted[rows] = True
    expected = {int(col) for row in rows for col in csr.slice(row, row + 1).cols}
    assert set(sources_of(placed(csr), wanted, NODES).nonzero().squeeze(1).tolist()) == expected


def test_targets_are_the_rows_with_such_an_edge(placed: Callable[[Csr], AnyCsr]) -> None:
    csr, sources = graph(), torch.zeros(NODES, dtype=torch.bool)
    sources[[3, 11]] = True
    expected = [row for row in range(ROWS) if set(csr.slice(row, row + 1).cols.tolist()) & {3, 11}]
    assert targets_of(placed(csr), sources).nonzero().squeeze(1).tolist() == expected


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("weighted", [True, False])
def test_rows_alone_have_their_edges_by_other_numbers(
    index: torch.dtype, placed: Callable[[Csr], AnyCsr], *, weighted: bool
) -> None:
    csr = graph()
    csr = replace(csr, cols=csr.cols.to(index))
    if weighted:
        csr = replace(csr, weights=torch.arange(csr.nnz, dtype=torch.float32))
    rows, wanted = torch.tensor([0, 3, 4, 20, 39]), torch.tensor([True, False, True, True, True])
    numbers = torch.arange(0, 2 * (NODES + 1), 2)
    some = take_rows(placed(csr), rows, wanted, numbers, first=7)
    expected = [csr.slice(int(row), int(row) + 1) for row in rows[wanted]]
    assert some.first == 7
    assert some.indptr.diff().tolist() == [0, 0, expected[1].nnz, 60, 0]
    assert some.cols.dtype == torch.int32
    assert some.cols.tolist() == [2 * int(col) for row in expected for col in row.cols]
    edges = edges_of(csr.indptr, rows, wanted)
    assert csr.cols[edges].tolist() == [int(col) for row in expected for col in row.cols]
    if csr.weights is None:
        assert some.weights is None
    else:
        assert some.weights is not None
        assert some.weights.tolist() == csr.weights[edges].tolist()


def test_no_rows_have_no_edges(placed: Callable[[Csr], AnyCsr]) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    some = take_rows(placed(graph()), none, none.bool(), torch.arange(NODES + 1), first=0)
    assert (some.rows, some.nnz) == (0, 0)


def test_rows_outside_the_graph_are_refused() -> None:
    every = torch.arange(NODES + 1)
    with pytest.raises((ValueError, IndexError)):
        take_rows(graph(), torch.tensor([ROWS]), torch.ones(1).bool(), every, first=0)


def test_sources_outside_the_nodes_are_refused() -> None:
    csr = graph()
    with pytest.raises((ValueError, IndexError)):
        sources_of(csr, torch.ones(ROWS, dtype=torch.bool), NODES - 1)
    with pytest.raises((ValueError, IndexError)):
        targets_of(csr, torch.arange(NODES - 1) == 0)
