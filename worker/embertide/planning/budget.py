"""The memory that a worker may take, compared with what its plan needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from embertide.planning.sizing import IMPORTS_BYTES, worker_bytes
from embertide.spec.grid import GridShape
from embertide.telemetry.estimate import Estimate, MemoryBudget
from embertide.telemetry.format import human_bytes

MOST_WORKERS = 256
"""Largest grid that is tried: with more workers, constant parts are most of each one's memory."""


def within_budget(
    found: Estimate, limit: int | None, nodes: int, estimate: Callable[[GridShape], Estimate]
) -> Estimate:
    """An estimate with its budget, where there is one.

    Args:
        limit: bytes that a worker may take, its imports included.
        nodes: of the largest node type, of which every worker needs one.
        estimate: the estimate of the same job on another grid.
    """
    if limit is None:
        return found
    needed, problem = worker_bytes(found.peak_memory_per_worker_bytes), ""
    if needed > limit:
        larger = _fitting(found.grid, limit, nodes, estimate)
        problem = _problem(found, limit, needed, larger)
    return replace(found, budget=MemoryBudget(limit, needed, problem))


def _fitting(
    grid: GridShape, limit: int, nodes: int, estimate: Callable[[GridShape], Estimate]
) -> GridShape | None:
    """The grid of 2, 4, ... times as many graph partitions that fits; None if none does."""
    graph = 2 * grid.graph
    while graph * grid.feature <= min(MOST_WORKERS, nodes):
        larger = GridShape.of(graph, grid.feature)
        if worker_bytes(estimate(larger).peak_memory_per_worker_bytes) <= limit:
            return larger
        graph *= 2
    return None


def _problem(found: Estimate, limit: int, needed: int, larger: GridShape | None) -> str:
    stages = found.memory_per_worker_bytes
    fullest = max(stages, key=lambda stage: stages[stage])
    advice = (
        f"no grid of up to {MOST_WORKERS} workers fits; give each"
        if larger is None
        else f"use at least {larger.workers} workers (grid {larger}), or give each"
    )
    return (
        f"grid {found.grid} needs {human_bytes(needed)} of {human_bytes(limit)} for a worker"
        f" (--memory, spec.workers.memory): {human_bytes(stages[fullest])} in the stage {fullest},"
        f" and {human_bytes(IMPORTS_BYTES)} of imports; {advice} {human_bytes(needed)}"
    )
