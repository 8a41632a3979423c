"""Messages reduced by row, in runs of any length, against a plain loop."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from embertide.kernels.block import Block
from embertide.kernels.segments import Reduce, Segments, edge_runs

LENGTHS = torch.tensor([0, 3, 1, 0, 0, 11, 2, 0])
"""Of the rows' messages."""


def expected_row(reduce: Reduce, values: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    match reduce:
        case "max":
            return values.amax(0)
        case "min":
            return values.amin(0)
        case "var":
            return values.var(0, unbiased=False)
        case "std":
            return values.std(0, unbiased=False)
        case "softmax":
            share = scores.softmax(0).repeat_interleave(2, dim=1)
            return (share * values).sum(0)
    return getattr(values, reduce)(0)


@pytest.mark.parametrize("limit", [1, 4, 100])
@pytest.mark.parametrize("reduce", get_args(Reduce))
def test_runs_of_any_length_give_the_same(reduce: Reduce, limit: int) -> None:
    g = torch.Generator().manual_seed(2)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), LENGTHS.cumsum(0)])
    values = 100 + torch.randn(int(indptr[-1]), 6, generator=g)
    scores = 30 * torch.randn(len(values), 3, generator=g)
    # Of ten outputs the block has eight.
    rows = torch.tensor([0, 1, 3, 4, 5, 6, 8, 9])
    block = Block(rows.int(), indptr, torch.arange(len(values)))
    segments = Segments(reduce, values, 10, 6, 3)
    runs = list(edge_runs(block, limit))
    assert [at for run in runs for at in range(run.span.start, run.span.stop)] == list(
        range(len(values))
    )
    for run in runs:
        assert len(values[run.span]) == int(run.lengths.sum()) <= limit
        segments.add(run, values[run.span], scores[run.span])
    found = segments.finish()
    wanted = torch.zeros(10, 6, dtype=torch.float64)
    for number, row in enumerate(rows.tolist()):
        mine = slice(int(indptr[number]), int(indptr[number + 1]))
        if LENGTHS[number]:
            wanted[row] = expected_row(reduce, values[mine].double(), scores[mine].double())
    # Far from zero, where a difference of two large sums would lose every digit of a spread.
    torch.testing.assert_close(found.double(), wanted, rtol=2e-5, atol=2e-5)
