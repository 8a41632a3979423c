"""What is on disk, or in host memory beside a GPU, while layers are computed in parts."""

from __future__ import annotations

from collections.abc import Sequence

from embertide.engine.planning.graph import PlannedGraph
from embertide.engine.planning.memory import planned_spill
from embertide.engine.planning.spilled import disk_seconds, link_seconds
from embertide.facts.telemetry.estimate import PlannedSpill
from embertide.program.plans.plan import Plan


def stored_elsewhere(
    graph: PlannedGraph, plan: Plan, fanout: Sequence[int] | None, *, gpu: bool = False
) -> PlannedSpill:
    """What one worker has there, and what goes there and back.

    Args:
        fanout: in-edges that each layer samples of a node; None: all of them.
        gpu: it is in host memory, and parts of it are on a GPU; else on disk.
    """
    costs = planned_spill(graph, plan, fanout, gpu=gpu)
    if gpu:
        # Each worker has its own link.
        seconds = link_seconds(costs.read, costs.written)
    else:
        seconds = disk_seconds(costs.read, costs.written) * graph.size.workers
    moved = int(costs.disk), int(costs.read), int(costs.written)
    how = plan.target.spills_graph, costs.largest, int(costs.memory)
    return PlannedSpill(plan.target.panel, *moved, seconds, *how)
