"""All passes, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from embertide.program.plans.fuse import fuse
from embertide.program.plans.layouts import check, choose_layouts, choose_whole_rows, mark_phases
from embertide.program.plans.order import (
    gather_needs,
    keep_readers_close,
    narrow_scores,
    order_products,
)
from embertide.program.plans.plan import Pass, Plan, Target
from embertide.program.steps.program import Program

ORDERING: tuple[Pass, ...] = (
    # First: the passes that follow look at steps that are next to each other.
    keep_readers_close,
    # Before scores are narrowed, which takes products away that this would move.
    order_products,
    # Before needs are gathered: no step waits for scores that are made of the features.
    narrow_scores,
    # The last one that moves steps: it may separate steps that were next to each other.
    gather_needs,
)
"""Passes that put the steps in order."""

MARKING: tuple[Pass, ...] = (
    # Needs the final operations, so after all passes that change them.
    choose_layouts,
    # By what operations read.
    mark_phases,
    # Changes nothing.
    check,
)

PASSES: tuple[Pass, ...] = (
    *ORDERING,
    # Fuses steps that are next to each other, so after all passes that move them.
    fuse,
    # Looks at what the operations would move, and orders and fuses again where it changes the grid.
    partial(choose_whole_rows, again=(*ORDERING, fuse)),
    *MARKING,
)


def make_plan(program: Program, target: Target, passes: Sequence[Pass] = PASSES) -> Plan:
    """How workers run a program; the same for planning, running and showing it."""
    plan = Plan(program=program, target=target, sliced=program)
    for apply in passes:
        plan = apply(plan)
    return plan
