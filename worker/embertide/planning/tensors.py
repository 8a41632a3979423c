"""The largest tensors a plan holds at a time, and how they move between workers."""

from __future__ import annotations

from collections.abc import Container

from embertide.footprint import GraphSize
from embertide.plans.plan import Plan
from embertide.steps.moves import Move
from embertide.steps.walk import Walk


def tensor_moves(plan: Plan, size: GraphSize) -> list[Move]:
    """What moves between several workers during the layers, in order."""
    walk = Walk(plan.program, plan.ops, size)
    walk.all()
    return walk.moves


def tensor_peak(
    plan: Plan,
    size: GraphSize,
    *,
    placed: Container[str],
    building: dict[str, float],
    block: dict[str, float],
) -> float:
    """Peak bytes of the tensors that are alive during the layers.

    Args:
        placed: node types whose features are in order from the start.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
    """
    walk = Walk(plan.program, plan.ops, size, dict(building), block)
    walk.all(placed)
    return max(walk.peak, walk.held())
