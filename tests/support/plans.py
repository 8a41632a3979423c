"""Programs as plans, for what needs some of the passes alone."""

from __future__ import annotations

from functools import partial

from embertide.engine.planning.graph import PlannedGraph
from embertide.program.plans.fuse import fuse
from embertide.program.plans.layouts import choose_whole_rows
from embertide.program.plans.passes import MARKING, ORDERING, make_plan
from embertide.program.plans.plan import Plan, Target
from embertide.program.steps import Program
from embertide.program.steps.op import Op
from embertide.spec.grid import GridShape

AS_GIVEN = (fuse, partial(choose_whole_rows, again=(*ORDERING, fuse)), *MARKING)
"""Passes that keep the order of the steps, unless workers compute whole rows."""


def target(workers: int) -> Target:
    """So many workers, on several hosts."""
    return Target(grid=GridShape.of(workers, 1))


def order_steps(program: Program, workers: int) -> Program:
    """The program with its steps in the order for so many workers on several hosts."""
    return make_plan(program, target(workers), ORDERING).program


def as_given(program: Program, at: Target) -> Plan:
    """A program whose steps run in the order that they have."""
    return make_plan(program, at, AS_GIVEN)


def in_slices(program: Program, grid: GridShape) -> Plan:
    """As :func:`as_given`, in the slices of the grid wherever its workers are."""
    return make_plan(program, Target(grid=grid), (fuse, *MARKING))


def ops_of(program: Program) -> list[Op]:
    """The operations of a program whose steps run in the order that they have."""
    return list(in_slices(program, GridShape()).ops)


def planned_for(program: Program, graph: PlannedGraph, fanout: object = None) -> Plan:
    """The plan of a run over a planned graph."""
    size = graph.size
    at = Target(grid=size.grid, in_place=size.in_place, sampled=fanout is not None)
    return make_plan(program, at)
