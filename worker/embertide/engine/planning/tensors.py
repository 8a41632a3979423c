"""The largest tensors a plan holds at a time, and how they move between workers."""

from __future__ import annotations

from collections.abc import Collection

from embertide.footprint import GraphSize
from embertide.graph.moves import Move
from embertide.program.plans.layouts import with_placed
from embertide.program.plans.plan import Plan
from embertide.program.steps.dry_run import DryRun


def tensor_moves(plan: Plan, size: GraphSize) -> list[Move]:
    """What moves between several workers during the layers, in order."""
    return DryRun(plan.program, size).to_results(plan.ops).moves


def tensor_peak(
    plan: Plan,
    size: GraphSize,
    *,
    placed: Collection[str],
    building: dict[str, float],
    block: dict[str, float],
) -> float:
    """Peak bytes of the tensors that are alive during the layers.

    Args:
        placed: node types whose features are in order from the start.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
    """
    dry = DryRun(plan.program, size, placed, dict(building), block)
    return dry.to_results((with_placed(plan, placed) if placed else plan).ops).peak
