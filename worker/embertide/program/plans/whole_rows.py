"""Whether workers that all read each other's memory compute whole rows, whatever the grid slices.

Slices of columns would read every source row in M pieces and change layouts twice a layer, and a
product would go before a sum of the input features to move less, although nothing moves. So each
worker computes its sub-range of the rows with all columns, as on a grid of (P*M) x 1, in the
order of steps that is best where nothing moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from embertide.footprint import GraphSize
from embertide.graph.moves import (
    Conversion,
    HeadScores,
    LoadedRows,
    Move,
    Statistics,
    TileRows,
)
from embertide.program.plans.layouts import choose_layouts
from embertide.program.plans.plan import Pass, Plan
from embertide.program.steps.dry_run import DryRun
from embertide.program.steps.program import Program
from embertide.spec.relations import Relation


def choose_whole_rows(plan: Plan, again: Sequence[Pass]) -> Plan:
    """Whole rows where they are faster: not where layers are sampled, or on several hosts.

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
