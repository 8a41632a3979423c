"""How operations run with their tensors on disk: in which parts, and which layouts they read.

A sum over edges goes over some columns of all rows at a time, as a feature partition does on a
grid, one part after the other; functions of rows that follow each other go together over some rows
at a time, and what they alone read of each other is never on disk. Any other operation has whole
tensors in memory: those that it reads and makes, while all others are on disk. A tensor that a sum
reads or makes is stored panel by panel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from embertide.footprint import FLOAT_BYTES
from embertide.kernels.scratch import PAGE_ROWS
from embertide.layouts import Layout
from embertide.program.plans.plan import Plan
from embertide.program.steps.op import Held, Input, Op, Reach
from embertide.program.steps.shapes import Shapes

Parts = Literal["columns", "rows", "whole", "ready", "later"]
"""``ready``: the result is there, made by an operation before that brought its rows; ``later``: it
is made with that of a function of rows after it."""

BLOCK_BYTES = 8 << 20
"""Bytes of the widest tensor's rows that are in memory at a time."""
_ROWS = 16
"""A block has a multiple of these: torch rounds what remains of its vectors in another way."""


@dataclass(frozen=True)
class Change:
    """A tensor that is put in another layout, before an operation reads it.

    Attributes:
        primitive: as of :class:`Input`.
        layer: of the operation that reads it.
        ends: the layout that it had is not read any more.
    """

    name: str
    origin: Held
    to: Layout
    primitive: str
    layer: int
    ends: bool


@dataclass(frozen=True)
class DiskOp:
    """An operation with its tensors on disk.

    Attributes:
        ops: what runs, in order: the operation, after the functions of rows that run with it. A
            product of features reads them in order, and makes rows.
        changes: of layouts, which come first.
        stores: the results that are stored, and in which layout.
        frees: tensors that are on disk and that no later operation reads.
    """

    ops: tuple[Op, ...]
    parts: Parts
    changes: tuple[Change, ...]
    stores: dict[str, Layout]
    frees: tuple[str, ...]

    @property
    def op(self) -> Op:
        """The operation itself."""
        return self.ops[-1]

    @property
    def reads(self) -> list[Input]:
        """What is read that no operation of these makes."""
        return from_before(self.ops)


@dataclass(frozen=True)
class DiskPlan:
    """All operations in order, and what makes rows of the results after them."""

    ops: list[DiskOp]
    results: tuple[Change, ...]


def parts_of(plan: Plan, op: Op) -> Parts:
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


def stored_reads(plan: Plan, reads: Sequence[Input]) -> list[Input]:
    """What is read from the disk: each tensor once in each layout that is stored."""
    return list({(read.name, stored(plan, read.layout)): read for read in reads}.values())


def on_disk(plan: Plan, first: int = 0, made: Mapping[str, Held] | None = None) -> DiskPlan:
    """A plan with what its operations change and free on disk.

    Args:
        first: the number of the operation to begin with, with which a part does.
        made: tensors that those before it have made, beside features -> the layout as stored.
    """
    groups = list(_groups(plan.ops[first:], plan.program.types))
    results = [Input(name, "rows") for name in dict.fromkeys(plan.program.results.values())]
    reads = [*map(from_before, groups), results]
    there: dict[str, set[Held]] = {name: {"loaded"} for name in plan.program.inputs.values()}
    there |= {name: {layout} for name, layout in (made or {}).items()}
    disk = [DiskOp((op,), "later", (), {}, ()) for op in plan.ops[:first]]
    for number, ops in enumerate(groups):
        layers = {read: op.steps[0].layer for op in reversed(ops) for read in op.inputs}
        changes = tuple(_changes(plan, there, reads[number:], layers))
        gone = dict.fromkeys(name for op in ops for name in _last_read(op))
        sums = [read.name for read in reads[number] if read.layout == "sums"]
        frees = tuple(name for name in [*gone, *sums] if there.pop(name, None))
        for op in ops:
            there |= {step.out: {"sums"} for step in op.brings if step.out != op.steps[0].out}
        layouts = [op.layout for op in plan.ops[len(disk) :][: len(ops)]]
        stores = {
            op.out: layout for op, layout in zip(ops, layouts, strict=True) if op.out not in gone
        }
        there |= {name: {stored(plan, layout)} for name, layout in stores.items()}
        disk += [DiskOp((op,), "later", (), {}, ()) for op in ops[:-1]]
        disk.append(DiskOp(tuple(ops), parts_of(plan, ops[-1]), changes, stores, frees))
    layers = dict.fromkeys(results, plan.program.layers - 1)
    return DiskPlan(disk, tuple(_changes(plan, there, reads[-1:], layers)))


def _groups(ops: Sequence[Op], types: Mapping[str, str]) -> Iterator[list[Op]]:
    """Operations that run together: functions of rows of a node type that follow each other."""
    for _, alike in groupby(
        enumerate(map(_as_read, ops)),
        lambda item: types[item[1].out] if item[1].reach is Reach.ROW else item[0],
    ):
        yield [op for _, op in alike]


def from_before(ops: Sequence[Op]) -> list[Input]:
    """What operations read that none of them makes."""
    inside = {op.out for op in ops}
    return [read for op in ops for read in op.inputs if read.name not in inside]


def _last_read(op: Op) -> list[str]:
    """The tensors that no operation after this one reads."""
    return [*op.frees, *filter(None, [op.onto])]


def _as_read(op: Op) -> Op:
    """A product of features where they were loaded is one of their rows in order, on disk."""
    if op.reach is not Reach.ROW or not any(read.layout == "loaded" for read in op.inputs):
        return op
    inputs = (
        read._replace(layout="rows" if read.layout == "loaded" else read.layout)
        for read in op.inputs
    )
    return replace(op, inputs=tuple(inputs), layout="rows")


def _changes(
    plan: Plan,
    there: dict[str, set[Held]],
    reads: Sequence[Sequence[Input]],
    layers: Mapping[Input, int],
) -> Iterator[Change]:
    """What the next inputs need; notes what is there after each change.

    Args:
        reads: inputs of the operations that are still to run, of the next ones first.
        layers: of the operations that have the next inputs.
    """
    wants = {(read.name, stored(plan, read.layout)) for inputs in reads for read in inputs}
    for read in reads[0]:
        name, wanted = read.name, stored(plan, read.layout)
        layouts = there[name]
        if wanted in layouts:
            continue
        if wanted not in ("rows", "tile"):
            raise AssertionError(f"{name!r} is read as {wanted}, which it is not")
        origin: Held = "loaded" if "loaded" in layouts else next(iter(layouts))
        ends = (name, origin) not in wants
        yield Change(name, origin, wanted, read.primitive, layers[read], ends)
        there[name] = (layouts - {origin} if ends else layouts) | {wanted}


def block_rows(plan: Plan, ops: Sequence[Op]) -> int:
    """Rows of a block of operations that run together for some rows at a time.

    Also what is read for the next block, and written of the one before, has a place.
    """
    widths = plan.program.widths
    inside = {name for op in ops for name in _last_read(op)}
    moved = {read.name for read in from_before(ops)} | {op.out for op in ops} - inside
    widest = max(widths[name] for op in ops for name in (op.out, *(r.name for r in op.inputs)))
    shapes = Shapes(widths, plan.program.params)
    steps = (step for op in ops for step in op.steps)
    together = math.lcm(_ROWS, *(step.rows_at_once(shapes) for step in steps))
    return _rows_at_once(max(widest, -(-sum(widths[name] for name in moved) // 2)), together)


def change_rows(plan: Plan, name: str) -> int:
    """Rows of a block of a tensor that is put in another layout."""
    return _rows_at_once(plan.program.widths[name], _ROWS)


def _rows_at_once(width: int, together: int) -> int:
    """Rows of a block, a multiple of some; of whole pages of every panel unless that is too much,
    since those go past the page cache."""
    rows = -(-BLOCK_BYTES // (FLOAT_BYTES * width * together)) * together
    pages = math.lcm(PAGE_ROWS, together)
    return rows // pages * pages or rows
