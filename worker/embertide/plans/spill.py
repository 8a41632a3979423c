"""How operations run with their tensors on disk: in which parts, and which layouts they read.

A sum over edges goes over some columns of all rows at a time, as a feature partition does on a
grid, one part after the other; a function of rows over some rows at a time. Any other operation has
whole tensors in memory: those that it reads and makes, while all others are on disk. A tensor that
a sum reads or makes is stored panel by panel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from embertide.footprint import FLOAT_BYTES
from embertide.kernels.scratch import PAGE_ROWS
from embertide.layouts import Layout
from embertide.plans.plan import Plan
from embertide.steps.reach import Reach
from embertide.steps.run import Held, Input, Run
from embertide.steps.shapes import Shapes

Parts = Literal["columns", "rows", "whole", "ready"]
"""``ready``: the result is there, made by an operation before that brought its rows."""

BLOCK_BYTES = 8 << 20
"""Bytes of the widest tensor's rows that are in memory at a time."""
_ROWS = 16
"""A block has a multiple of these: torch rounds what remains of its vectors in another way."""


@dataclass(frozen=True)
class Change:
    """A tensor that is put in another layout, before an operation reads it.

    Attributes:
        primitive: as of :class:`Input`.
        ends: the layout that it had is not read any more.
    """

    name: str
    origin: Held
    to: Layout
    primitive: str
    ends: bool


@dataclass(frozen=True)
class DiskOp:
    """An operation with its tensors on disk.

    Attributes:
        op: what runs. A product of features reads them in order, and makes rows.
        changes: of layouts, which come first.
        layout: in which the result is stored.
        frees: tensors that are on disk and that no later operation reads.
    """

    op: Run
    parts: Parts
    changes: tuple[Change, ...]
    layout: Layout
    frees: tuple[str, ...]


@dataclass(frozen=True)
class DiskPlan:
    """All operations in order, and what makes rows of the results after them."""

    ops: list[DiskOp]
    results: tuple[Change, ...]


def parts_of(plan: Plan, op: Run) -> Parts:
    """In which parts an operation runs with its tensors on disk."""
    first, slices = op.steps[0], plan.grid.feature
    if op.reach is Reach.ROW:
        return "rows"
    if op.leader is None and op.reads(first.out, "sums"):
        return "ready"
    apart = all(step.columns_together(plan.program.widths, slices) for step in (first, *op.brings))
    return "columns" if apart else "whole"


def stored(plan: Plan, layout: Held) -> Held:
    """The layout in which a tensor is stored: with one slice a tile and its rows are the same."""
    return "rows" if layout == "tile" and plan.grid.feature == 1 else layout


def reads_of(plan: Plan, op: Run) -> list[Input]:
    """What an operation reads from the disk: each tensor once in each layout that is stored."""
    return list({(read.name, stored(plan, read.layout)): read for read in op.inputs}.values())


def on_disk(plan: Plan) -> DiskPlan:
    """A plan with what its operations change and free on disk."""
    ops = [_as_read(op) for op in plan.ops]
    results = [Input(name, "rows") for name in dict.fromkeys(plan.program.results.values())]
    reads: list[Sequence[Input]] = [*(op.inputs for op in ops), results]
    there: dict[str, set[Held]] = {name: {"loaded"} for name in plan.program.inputs.values()}
    disk = []
    for number, op in enumerate(ops):
        changes = tuple(_changes(plan, there, reads[number:]))
        sums = [read.name for read in op.inputs if read.layout == "sums"]
        gone = dict.fromkeys([*op.frees, *filter(None, [op.onto]), *sums])
        frees = tuple(name for name in gone if there.pop(name, None))
        there |= {step.out: {"sums"} for step in op.brings if step.out != op.steps[0].out}
        layout = plan.ops[number].layout
        there[op.out] = {stored(plan, layout)}
        disk.append(DiskOp(op, parts_of(plan, op), changes, layout, frees))
    return DiskPlan(disk, tuple(_changes(plan, there, reads[-1:])))


def _as_read(op: Run) -> Run:
    """A product of features where they were loaded is one of their rows in order, on disk."""
    if op.reach is not Reach.ROW or not any(read.layout == "loaded" for read in op.inputs):
        return op
    inputs = (
        read._replace(layout="rows" if read.layout == "loaded" else read.layout)
        for read in op.inputs
    )
    return replace(op, inputs=tuple(inputs), layout="rows")


def _changes(
    plan: Plan, there: dict[str, set[Held]], reads: Sequence[Sequence[Input]]
) -> Iterator[Change]:
    """What the next inputs need; notes what is there after each change.

    Args:
        reads: inputs of the operations that are still to run, of the next one first.
    """
    wants = {(read.name, stored(plan, read.layout)) for inputs in reads for read in inputs}
    for name, layout, primitive in reads[0]:
        wanted, layouts = stored(plan, layout), there[name]
        if wanted in layouts:
            continue
        if wanted not in ("rows", "tile"):
            raise AssertionError(f"{name!r} is read as {wanted}, which it is not")
        origin: Held = "loaded" if "loaded" in layouts else next(iter(layouts))
        ends = (name, origin) not in wants
        yield Change(name, origin, wanted, primitive, ends)
        there[name] = (layouts - {origin} if ends else layouts) | {wanted}


def block_rows(plan: Plan, op: Run) -> int:
    """Rows of a block of an operation that runs for some rows at a time."""
    program = plan.program
    widest = max(program.widths[name] for name in [op.out, *(read.name for read in op.inputs)])
    shapes = Shapes(program.widths, program.params)
    together = math.lcm(_ROWS, *(step.rows_at_once(shapes) for step in op.steps))
    return _rows_at_once(widest, together)


def change_rows(plan: Plan, name: str) -> int:
    """Rows of a block of a tensor that is put in another layout."""
    return _rows_at_once(plan.program.widths[name], _ROWS)


def _rows_at_once(width: int, together: int) -> int:
    """Rows of a block, a multiple of some; of whole pages of every panel unless that is too much,
    since those go past the page cache."""
    rows = -(-BLOCK_BYTES // (FLOAT_BYTES * width * together)) * together
    pages = math.lcm(PAGE_ROWS, together)
    return rows // pages * pages or rows
