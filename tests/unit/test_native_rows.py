"""Rows are gathered and scattered as by plain indexing, natively and by torch."""

from __future__ import annotations

import pytest
import torch

from embertide.kernels import native
from embertide.kernels.rows import gather_rows, scatter_rows
from embertide.kernels.threads import set_threads

WIDTHS = (1, 3, 17, 128, 129)
COUNTS = (0, 1, 5000)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("scaled", [False, True])
def test_rows_of_column_slices_are_gathered(width: int, count: int, scaled: bool) -> None:
    source = torch.randn(900, width + 5)[:, 2 : 2 + width]
    index = torch.randint(900, (count,))
    scale = torch.rand(900) if scaled else None
    expected = source[index] if scale is None else source[index] * scale[index].unsqueeze(1)
    out = torch.full((count, width), -1.0)
    assert torch.equal(gather_rows(source, index, scale=scale), expected)
    assert gather_rows(source, index, scale=scale, out=out) is out
    assert torch.equal(out, expected)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", COUNTS)
def test_rows_are_scattered_into_column_slices(width: int, count: int) -> None:
    out, expected = torch.zeros(6000, width + 5), torch.zeros(6000, width + 5)
    index, values = torch.randperm(6000)[:count], torch.randn(count, width)
    scatter_rows(out[:, 2 : 2 + width], index, values)
    expected[:, 2 : 2 + width][index] = values
    assert torch.equal(out, expected)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("row", [-1, 4])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    with pytest.raises((ValueError, IndexError)):
        gather_rows(torch.zeros(4, 2), torch.tensor([0, row]))
    with pytest.raises((ValueError, IndexError)):
        scatter_rows(torch.zeros(4, 2), torch.tensor([0, row]), torch.zeros(2, 2))


@pytest.mark.skipif(native.lib is None, reason=native.describe())
def test_threads_change_nothing() -> None:
    source, index, scale = torch.randn(900, 33), torch.randint(900, (20000,)), torch.rand(900)
    set_threads(1)
    alone = gather_rows(source, index, scale=scale)
    set_threads(3)
    try:
        assert torch.equal(gather_rows(source, index, scale=scale), alone)
    finally:
        set_threads(0)
