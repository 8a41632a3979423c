"""What a worker takes to compute some rows alone beside the tensors of all.

How many rows that are is known only once the inputs are read. So all are planned for; with tensors
on disk rows are computed alone if they take no more than the parts of tensors that are planned.
"""

from __future__ import annotations

from collections.abc import Mapping

from embertide.engine.planning.graph import PlannedGraph
from embertide.engine.planning.keeping import kept_bytes
from embertide.footprint import FLOAT_BYTES, ID_BYTES, GraphSize
from embertide.program.plans.boundaries import Part, boundaries, results_of
from embertide.program.plans.flow import why_whole
from embertide.program.plans.plan import Plan
from embertide.program.steps.dry_run import DryRun

_CUT_BYTES = 32
"""An edge of a layer graph of some rows while it is made: where the edge was, its source as it is
numbered in the whole graph, and there, as int64 and as they stay."""
_KEPT_EDGE_BYTES = 12
"""The columns of the whole graph, which stay, and columns and weights of that of some rows."""


_EXCERPT_EDGE_BYTES = 24
"""An edge of some rows: its column and its weight, also in a block, and where it was."""
_DISTANCE_BYTES = 64
"""A node while it is found which rows a change may move: distances as float64, and sets of rows."""


def excerpt_memory(plan: Plan, graph: PlannedGraph, *, rounded: bool, tolerant: bool) -> int:
    """Bytes of a worker beside those of a run of all rows, where it takes over kept ones.

    0 of a plan that takes over none.

    Args:
        rounded: rows that are only read over edges are held as bfloat16.
        tolerant: with a tolerance, exact rows are kept beside those of the first layer, and
            distances for every node.
    """
    target = plan.target
    if target.spills_graph or why_whole(plan, sampled=target.sampled):
        return 0
    if target.panel:
        nodes, sets = sum(graph.size.nodes.values()), len(plan.program.steps) + ID_BYTES
        far = _DISTANCE_BYTES if tolerant else 0
        return nodes * (sets + far) + graph.edges * _KEPT_EDGE_BYTES // graph.size.grid.graph
    size, tensors, before = graph.size, 0, _feature_bytes(plan, graph)
    ends = boundaries(plan)
    exact = kept_bytes(plan, size, ends[:1], rounded=rounded) if tolerant else 0
    distances = sum(size.nodes.values()) * _DISTANCE_BYTES if tolerant and ends else 0
    for end in (*ends, results_of(plan)):
        kept = kept_bytes(plan, size, [end], rounded=rounded)
        # Some rows of what a part reads, and all rows of what it makes, as they were kept.
        tensors, before = max(tensors, before + kept), kept
    largest = max(size.edges.values(), default=0)
    edges = largest * _CUT_BYTES + graph.edges * _KEPT_EDGE_BYTES
    return (tensors + exact) // size.grid.workers + distances + edges // size.grid.graph


def excerpt_bytes(part: Part, size: GraphSize, edges: Mapping[tuple[int, str], int]) -> int:
    """Bytes of a worker for the tensors and graphs of some rows alone, at their peak.

    Args:
        part: of a plan in which features are in order.
        size: the nodes of the rows, on as many workers as there are; the edges of a relation are
            those of the layer that has the most.
        edges: layer and relation -> edges that a worker has of the rows.
    """
    plan = part.plan
    read = [
        of
        for of, name in plan.program.inputs.items()
        if plan.last_reads.get(name, -1) >= part.first
    ]
    dry = DryRun(plan.program, size, read)
    dry.run(part.ops, part.starts)
    cut = max(edges.values(), default=0) * _CUT_BYTES
    # Features of edges are in memory twice while they are taken from parts of the graph.
    values = sum(
        2 * count * plan.program.edge_needs(relation).features
        for (_, relation), count in edges.items()
    )
    beside = sum(edges.values()) * _EXCERPT_EDGE_BYTES + values * FLOAT_BYTES
    return int(dry.peak) + beside + cut


def _feature_bytes(plan: Plan, graph: PlannedGraph) -> int:
    program = plan.program
    values = (graph.size.nodes[of] * program.widths[name] for of, name in program.inputs.items())
    return sum(values) * FLOAT_BYTES
