"""Which layout each operation reads and makes, and what it frees, reuses and brings for others.

Costs and runs go by what is decided here, as by the grid that computes the layers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate

from embertide.footprint import GraphSize
from embertide.graph.moves import (
    Conversion,
    HeadScores,
    LoadedRows,
    Move,
    Statistics,
    TileRows,
)
from embertide.program.plans.plan import Pass, Plan, Target
from embertide.program.steps.alive import Alive
from embertide.program.steps.dry_run import DryRun
from embertide.program.steps.op import Op, Reach
from embertide.program.steps.program import Program
from embertide.spec.relations import Relation


def choose_layouts(plan: Plan) -> Plan:
    """Every operation with its layouts, for what is there as it begins."""
    target, last, ops = plan.target, plan.last_reads, list[Op]()
    # On disk features are put in order where sums read every row in place: bits are the same.
    in_order = plan.program.inputs.keys() if target.panel and plan.reads_all else target.placed
    at = Alive(plan.program, plan.grid, target.in_place, in_order)
    for number, op in enumerate(plan.ops):
        kept = {name for name, read in last.items() if read > number} | at.sums
        at.frees = frozenset(at.layouts.keys() - kept)
        placed = replace(op.place(at), frees=at.frees)
        for read in placed.inputs:
            at.convert(read)
        at.make(placed)
        at.end(placed)
        ops.append(placed)
    if target.panel:
        whole = choose_layouts(replace(plan, target=replace(target, panel=0))).ops
        ops = [_as_in_memory(op, own, target) for op, own in zip(ops, whole, strict=True)]
    return replace(plan, ops=tuple(ops))


def _as_in_memory(op: Op, own: Op, target: Target) -> Op:
    """An operation on disk that rounds where it would in memory, so that the bits are the same."""
    loaded = any(read.layout == "loaded" for read in own.inputs)
    travels = loaded and own.onto is not None and not target.in_place
    return replace(op, scales=own.scales, adds_last=travels)


def with_placed(plan: Plan, node_types: Collection[str]) -> Plan:
    """The plan for features of some node types that are in order from the start."""
    target = replace(plan.target, placed=frozenset(node_types))
    return choose_layouts(replace(plan, target=target))


def mark_phases(plan: Plan) -> Plan:
    """Number the phase of each operation, from 0.

    One begins where an operation needs rows of other nodes, or a statistic. The others compute each
    row from that row alone, so they can run for any rows, in any blocks. Only tensors that later
    phases read (:meth:`Plan.kept_after`) have to stay.
    """
    begins = [int(at > 0 and op.reach is not Reach.ROW) for at, op in enumerate(plan.ops)]
    return replace(plan, phases=tuple(accumulate(begins)))


def check(plan: Plan) -> Plan:
    """Every step is in one operation, in order, and reads what is there by then, in every plan."""
    steps = [step for op in plan.ops for step in op.steps]
    assert steps == list(plan.program.steps), "operations have other steps than the program"
    assert len(plan.phases) == len(plan.ops), "operations without a phase"
    there = set(plan.program.inputs.values())
    for step in steps:
        missing = set(step.reads()) - there
        assert not missing, f"step {step.out!r} reads {missing} before it is made"
        there.add(step.out)
    for op in plan.ops:
        named, first = {read.name for read in op.inputs}, op.steps[0]
        bare = set() if op.reads(first.out, "sums") else set(first.reads()) - named
        assert not bare, f"step {first.out!r} reads {bare} without a layout"
    lacking = set(plan.program.results.values()) - there
    assert not lacking, f"nothing makes the results {lacking}"
    return plan


def choose_whole_rows(plan: Plan, again: Sequence[Pass]) -> Plan:
    """Whole rows where they are faster: not where layers are sampled, or on several hosts.

    Where workers all read each other's memory, slices of columns would read every source row in M
    pieces and change layouts twice a layer, and a product would go before a sum of the input
    features to move less, although nothing moves. So each worker computes its sub-range of the rows
    with all columns, as on a grid of (P*M) x 1, in the order of steps that is best for that.

    Nor where the bits of a result depend on the slices: statistics over all nodes are joined slice
    by slice, and a head in several slices is summed in each.

    Args:
        again: the passes that order and fuse the steps, whose result depends on this choice.
    """
    plan = replace(plan, sliced=plan.program)
    if not plan.target.in_place or plan.target.sampled:
        return plan
    whole = replace(plan, whole_rows=True)
    for apply in again:
        whole = apply(whole)
    moves = _moves(plan)
    return whole if _gains(plan, whole, moves) and not _depends_on_slices(plan, moves) else plan


def _gains(plan: Plan, whole: Plan, moves: Sequence[Move]) -> bool:
    """Whether whole rows are faster than what the grid has.

    Than slices: unless sums follow each other, with no change of layout between them. On a grid
    without slices: where features are summed as they were loaded, or steps would be ordered
    otherwise.
    """
    if plan.grid.feature == 1:
        loaded = any(isinstance(move, LoadedRows) for move in moves)
        return loaded or whole.program.steps != plan.program.steps
    sums = sum(isinstance(move, TileRows) and move.primitive == "spmm" for move in moves)
    return sum(isinstance(move, Conversion) for move in moves) >= sums


def _depends_on_slices(plan: Plan, moves: Sequence[Move]) -> bool:
    return any(
        isinstance(move, Statistics)
        or (isinstance(move, HeadScores) and move.heads % plan.grid.feature > 0)
        for move in moves
    )


def _moves(plan: Plan) -> list[Move]:
    """What would move between hosts; the kinds of moves do not depend on the sizes of the graph."""
    size = GraphSize(
        nodes=dict.fromkeys(_node_types(plan.program), 1),
        edges=dict.fromkeys(plan.program.relations, 0),
        grid=plan.grid,
        group_bytes=0,
        depth=1,
    )
    # On disk as in memory, so that the bits are the same.
    target = replace(plan.target, in_place=False, panel=0)
    apart = choose_layouts(replace(plan, target=target))
    return DryRun(apart.program, size).to_results(apart.ops).moves


def _node_types(program: Program) -> set[str]:
    ends = [Relation.parse(name) for name in program.relations if name]
    return {*program.types.values(), *(end for r in ends for end in (r.source, r.destination))}
