"""Which operations can run with their tensors on disk, and in which parts.

Sums over edges go over some columns of all rows at a time, as a feature partition does on a grid,
one part after the other; functions of rows over some rows at a time. A tensor that a sum reads or
makes is stored panel by panel. Other operations have no such form: they are named, and no run
starts.
"""

from __future__ import annotations

import math
from typing import Literal

from embertide.footprint import FLOAT_BYTES
from embertide.plans.plan import Plan
from embertide.steps.reach import Reach
from embertide.steps.run import Run
from embertide.steps.shapes import Shapes

Parts = Literal["columns", "rows"]

BLOCK_BYTES = 8 << 20
"""Bytes of the widest tensor's rows that are in memory at a time."""
_ROWS = 16
"""A block has a multiple of these: torch rounds what remains of its vectors in another way."""


def parts_of(op: Run) -> Parts | None:
    """In which parts an operation runs with its tensors on disk; None where it can't."""
    if op.reach is Reach.ROW:
        return "rows"
    apart = op.steps[0].columns_apart and op.product is None and len(op.brings) < 2
    return "columns" if apart and not op.reads(op.steps[0].out, "sums") else None


def block_rows(plan: Plan, op: Run) -> int:
    """Rows of a block of an operation that runs for some rows at a time."""
    program = plan.program
    widest = max(program.widths[name] for name in [op.out, *(read.name for read in op.inputs)])
    shapes = Shapes(program.widths, program.params)
    together = math.lcm(_ROWS, *(step.rows_at_once(shapes) for step in op.steps))
    return -(-BLOCK_BYTES // (FLOAT_BYTES * widest * together)) * together


def without_parts(plan: Plan) -> list[str]:
    """The operations that need whole tensors in memory, each by its kind and its result."""
    return [
        f"{op.steps[0].kind_name} ({op.out}, layer {op.steps[0].layer})"
        for op in plan.ops
        if parts_of(op) is None
    ]


def panel_columns(plan: Plan, name: str) -> int:
    """Columns of a panel of a tensor on disk: all, unless a sum reads or makes it.

    Features that are put in order are stored in panels, too.
    """
    width, panel = plan.program.widths[name], plan.target.panel
    if name in not_in_order(plan):
        return min(width, panel)
    summed = {
        tensor
        for op in plan.ops
        if parts_of(op) == "columns"
        for tensor in (op.out, *(read.name for read in op.inputs))
    }
    return min(width, panel) if name in summed else width


def not_in_order(plan: Plan) -> set[str]:
    """The features that are not in the order of their nodes as they are read."""
    inputs = plan.program.inputs
    return {name for node_type, name in inputs.items() if node_type not in plan.target.placed}
