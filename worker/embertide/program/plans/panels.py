"""Panels: some columns of every slice of a tensor, which are in memory at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from embertide.grid import ColumnSlices
from embertide.program.plans.plan import Plan
from embertide.program.plans.spill import Change, parts_of
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.op import Held, Op

_READS = 3
"""Times that features are read where they are stored panel by panel first: twice, and written."""


@dataclass(frozen=True)
class Panel:
    """Some columns of every slice of a tensor.

    Attributes:
        own: of our slice, counted from its first.
        columns: the same, of the whole tensor.
        each: those of every slice, of the whole tensor.
    """

    own: slice
    columns: slice
    each: tuple[slice, ...]


@dataclass(frozen=True)
class PanelOp:
    """An operation for a panel of its result.

    Attributes:
        op: it, for so many columns.
        reads: name of an input -> its columns, slice by slice.
        widths: columns of the tensors that it reads and makes, by name.
    """

    op: Op
    reads: dict[str, tuple[slice, ...]]
    widths: dict[str, int]


def panel_columns(plan: Plan, width: int) -> int:
    """Columns of each slice of a tensor that are in memory at a time.

    Whole heads of attention. Every slice has as many panels, and none without columns.
    """
    slices, together = plan.grid.feature, _together(plan, width)
    widest, narrowest = -(-width // slices), width // slices
    panel = min(widest, -(-plan.target.panel // together) * together)
    while panel < widest and widest > narrowest and narrowest % panel == 0:
        panel += 1
    return panel


def _together(plan: Plan, width: int) -> int:
    """Columns that no panel parts, by the operations whose results have so many columns."""
    widths, slices = plan.program.widths, plan.grid.feature
    return math.lcm(
        *(
            step.columns_together(widths, slices)
            for op in plan.ops
            if widths[op.out] == width and parts_of(plan, op) == "columns"
            for step in (op.steps[0], *op.brings)
        )
    )


def panels(plan: Plan, width: int, m: int) -> Iterator[Panel]:
    """Those of a tensor of so many columns, as slice ``m`` has them."""
    slices, step = ColumnSlices(width, plan.grid.feature), panel_columns(plan, width)
    bounds = [slices.bounds(at) for at in range(slices.count)]
    for first in range(0, max(last - start for start, last in bounds), step):
        each = tuple(slice(a + first, min(a + first + step, b)) for a, b in bounds)
        own, start = each[m], bounds[m][0]
        yield Panel(slice(own.start - start, own.stop - start), own, each)


def narrower(plan: Plan, width: int, panel: Panel, most: int) -> Iterator[Panel]:
    """A panel of the only slice of a tensor, cut into some of at most so many columns.

    Columns that no panel parts stay together, also where they are more.
    """
    (columns,) = panel.each
    together = _together(plan, width)
    step = max(together, most // together * together)
    for first in range(columns.start, columns.stop, step):
        part = slice(first, min(first + step, columns.stop))
        yield Panel(part, part, (part,))


def for_panel(plan: Plan, op: Op, each: Sequence[slice]) -> PanelOp:
    """An operation for some columns of its result, slice by slice."""
    full, count = plan.program.widths, count_columns(each)
    first, reads = op.steps[0], dict[str, tuple[slice, ...]]()
    for step in (first, *op.brings):
        for name in step.reads():
            reads[name] = tuple(step.columns_of(name, columns, full) for columns in each)
    widths = {name: count_columns(columns) for name, columns in reads.items()}
    results = [step.out for step in (*op.steps, *op.brings)]
    steps = (first.of_columns(count, full), *op.steps[1:])
    brings = tuple(step.of_columns(count, full) for step in op.brings)
    edge_steps = tuple(step for step in brings if isinstance(step, EdgeStep))
    if op.reads(first.out, "sums"):
        reads = {first.out: tuple(each)}
    narrow = replace(op, steps=steps, brings=edge_steps)
    return PanelOp(narrow, reads, widths | dict.fromkeys(results, count))


def count_columns(each: Sequence[slice]) -> int:
    """Columns of all slices."""
    return sum(columns.stop - columns.start for columns in each)


def stored_columns(plan: Plan, name: str, layout: Held) -> int:
    """Columns that are stored together, of a tensor in a layout other than ``loaded``.

    All, unless an operation goes over some of them at a time, or features are put in order so.
    """
    width, slices = plan.program.widths[name], plan.grid.feature
    if name in plan.program.inputs.values():
        return panel_columns(plan, width)
    if layout == "rows" and slices > 1:
        return width
    return panel_columns(plan, width) if name in _in_panels(plan) else -(-width // slices)


def sorted_by_panels(plan: Plan, change: Change) -> bool:
    """Whether features are stored panel by panel before they are put in the order of their nodes.

    A panel is put in order at a time. Where whole rows are stored, all of them are read for each
    panel; to store them panel by panel first takes as long as to read them twice.
    """
    if change.origin != "loaded" or not change.ends or plan.grid.feature > 1:
        return False
    width = plan.program.widths[change.name]
    return -(-width // panel_columns(plan, width)) > _READS


def _in_panels(plan: Plan) -> set[str]:
    """The tensors that operations read or make some columns at a time."""
    return {
        name
        for op in plan.ops
        if parts_of(plan, op) == "columns"
        for name in (op.out, *(r.name for r in op.inputs), *(step.out for step in op.brings))
    }
