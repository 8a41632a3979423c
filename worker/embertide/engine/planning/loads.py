"""How much each worker reads, which decides in how many rounds it is sent on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from embertide.engine.planning.graph import PlannedRelation, PlannedType
from embertide.footprint import Size
from embertide.graph.shuffle import histogram_size, round_edges
from embertide.kernels.edge_sort import bucket_count


@dataclass(frozen=True, kw_only=True)
class NodeLoads:
    """The rows of a node type that workers read.

    Attributes:
        rows: feature rows of each.
        histogram: buckets of destinations.
    """

    rows: list[int]
    histogram: int

    def rounds(self, most: int) -> tuple[int, float]:
        """Rounds of at most ``most`` rows: of the worker with the most rows, and on average."""
        return _rounds(self.rows, most)


@dataclass(frozen=True, kw_only=True)
class EdgeLoads:
    """The edges of a relation that workers read.

    Attributes:
        edges: of each, about.
        round_edges: that each sends at a time.
        buckets: of rows of a sub-range, by which edges are sorted.
    """

    edges: list[float]
    round_edges: int
    buckets: int

    def rounds(self) -> tuple[int, float]:
        """Rounds of the worker with the most edges, and on average."""
        return _rounds(self.edges, self.round_edges)


def _rounds(items: Sequence[float], most: int) -> tuple[int, float]:
    each = [math.ceil(count / most) for count in items]
    return max(each), sum(each) / len(each)


def node_loads(of_type: PlannedType, workers: int) -> NodeLoads:
    """The loads of so many workers that read a node type."""
    _, buckets = histogram_size(of_type.nodes)
    return NodeLoads(rows=of_type.splits.shares.rows(workers), histogram=buckets)


def edge_loads(relation: PlannedRelation, size: Size) -> EdgeLoads:
    """The loads of the workers that read a relation of that size."""
    read = relation.shares.rows(size.workers)
    total = max(1, sum(read))
    return EdgeLoads(
        # Of text, `read` counts bytes; undirected edges are two each.
        edges=[size.edges * part / total for part in read],
        round_edges=round_edges(size.workers, relation.features),
        buckets=bucket_count(-(-size.nodes // size.workers)),
    )
