"""The sources of the edges of some rows, and the rows that some sources have edges to."""

from __future__ import annotations

import pytest
import torch

from embertide.kernels import csr as kernel
from embertide.kernels.csr import Csr, sources_of, targets_of

ROWS, NODES = 40, 25


def graph() -> Csr:
    """Rows without edges at both ends and between, one with many."""
    g = torch.Generator().manual_seed(3)
    lengths = torch.randint(0, 5, (ROWS,), generator=g)
    lengths[[0, 7, 8, ROWS - 1]], lengths[20] = 0, 60
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    cols = torch.randint(0, NODES, (int(indptr[-1]),), generator=g, dtype=torch.int32)
    return Csr(100, indptr, cols)


@pytest.mark.parametrize("edges", [1, 7, 1 << 22])
@pytest.mark.parametrize(
    "rows", [[], [0], [7, 8], [20], [ROWS - 1], [1, 19, 20, 21, 38], list(range(ROWS))]
)
def test_sources_are_those_of_the_rows_edges(
    rows: list[int], edges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_EDGES", edges)
    csr, wanted = graph(), torch.zeros(ROWS, dtype=torch.bool)
    wanted[rows] = True
    expected = {int(col) for row in rows for col in csr.slice(row, row + 1).cols}
    assert set(sources_of(csr, wanted, NODES).nonzero().squeeze(1).tolist()) == expected


def test_targets_are_the_rows_with_such_an_edge() -> None:
    csr, sources = graph(), torch.zeros(NODES, dtype=torch.bool)
    sources[[3, 11]] = True
    expected = [row for row in range(ROWS) if set(csr.slice(row, row + 1).cols.tolist()) & {3, 11}]
    assert targets_of(csr, sources).nonzero().squeeze(1).tolist() == expected
