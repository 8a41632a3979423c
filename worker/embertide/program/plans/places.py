"""Which part of a tensor is ours, and how its values come from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
import torch

from embertide.grid import ColumnSlices
from embertide.layouts import Layout
from embertide.program.steps.execution import Execution

Range = tuple[int, int]
"""From one to before another."""
Fill = Callable[[slice, slice, npt.NDArray[Any]], None]
"""Called with rows, by their dense ids, and columns of a tensor; sets their values."""
_AS_NUMBERS = {torch.float32: torch.float32, torch.bfloat16: torch.int16}
"""numpy has no bfloat16; its bits are as good."""


def as_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor on the CPU as numpy has it, in the same memory."""
    return tensor.view(_AS_NUMBERS[tensor.dtype]).numpy()


def place_of(execution: Execution, name: str, layout: Layout) -> tuple[Range, Range]:
    """The rows and columns of a tensor that we have in a layout."""
    grid, ranges = execution.grid, execution.ranges_of(name)
    width = execution.program.widths[name]
    if layout == "rows":
        return ranges.worker(grid.rank), (0, width)
    return ranges.partition(grid.p), ColumnSlices(width, grid.feature).bounds(grid.m)
