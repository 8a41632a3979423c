"""What edges and the graph take where they are on disk: memory, and bytes to the disk and back.

Edges are written as they are read, sorted by way of the disk into parts of consecutive rows, and
gone over part by part.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from embertide.footprint import ID_BYTES, Size
from embertide.kernels.spilled_sort import READ_EDGES, part_edges
from embertide.planning.edge_memory import (
    SortingBytes,
    key_bytes_of,
    logged_bytes,
    logging_bytes,
    looping_bytes,
    relations,
    sending_bytes,
)
from embertide.planning.graph import PlannedGraph, PlannedRelation
from embertide.primitives.edge_log import log_bytes
from embertide.primitives.views import EdgeView
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.steps.aggregate import Aggregate
from embertide.steps.base import EdgeStep, Step
from embertide.steps.degree import Degree
from embertide.steps.norms import ends_read, weighs
from embertide.steps.program import Program
from embertide.steps.propagate import Propagate
from embertide.steps.reach import Reach
from embertide.steps.reference import End

_PARTS = 3
"""Parts that are in memory: what the kernels go over, the next one, and the one that is read."""
_BATCHES = 3
"""How often a batch of packed edges is in memory: as it comes, its buckets, and in their order."""


def graph_problem(job: EmbeddingJob, program: Program, grid: GridShape, *, in_place: bool) -> str:
    """Why the graph can't be on disk beside the tensors; "" where it can.

    Args:
        in_place: all workers are on one host, and read each other's tensors where they stand.
    """
    if grid.workers > 1 and not in_place:
        return "the graph can be on disk with one worker, or in a run whose workers are on one host"
    if grid.feature > 1 or len(job.spec.input.nodes) > 1 or job.spec.inference.fanout != "full":
        return (
            "the graph can be on disk on grids of one feature partition, such as"
            f" {grid.workers}x1, with one node type, and where layers sample no edges (fanout)"
        )
    for step in program.steps:
        if step.reach is Reach.NEIGHBOURS and not (isinstance(step, EdgeStep) and step.by_parts):
            return f"{step.kind_name} ({step.out}, layer {step.layer}) needs the graph in memory"
    featured = [edge for edge in job.spec.input.edges if edge.features is not None]
    return f"edges with features can't be on disk ({featured[0].uri})" if featured else ""


def spilled_sorting(graph: PlannedGraph, worker: int) -> SortingBytes:
    """Bytes in memory while edges are sorted by way of the disk, one relation after another."""
    each = [_sorting(*of, worker) for of in relations(graph)]
    return SortingBytes(max(of.peak for of in each), max(of.kept for of in each))


def _sorting(relation: PlannedRelation, size: Size, worker: int) -> SortingBytes:
    index, weight = size.index_bytes, relation.weight_bytes
    edges, nodes = size.edges / size.workers, size.nodes / size.workers
    part = min(edges, float(part_edges(edges)))
    batch = part / 2 * (ID_BYTES + weight)
    taking = _BATCHES * batch + logging_bytes(relation, size)
    keys = part * (key_bytes_of(relation, size) + weight)
    reading = min(float(READ_EDGES), part) * (ID_BYTES + weight)
    sorting = batch + keys + max(reading, part * index)
    if relation.edge.adds_loops:
        # Without edges all rows are one part.
        rows = nodes * part / edges if edges else nodes
        sorting = max(sorting, batch + looping_bytes(relation, size, part, rows))
    kept = max(taking, sorting) + ID_BYTES * nodes
    sending = taking + sending_bytes(relation, size, worker) + ID_BYTES * nodes
    return SortingBytes(max(kept, sending), kept)


@dataclass
class SpilledGraph:
    """The bytes that one worker moves for a graph on disk, as operations go over it.

    Attributes:
        graph: on the grid that computes the layers.
        disk: bytes of its files while layers are computed.
        building: bytes of files that are gone by then.
        read, written: bytes so far.
    """

    graph: PlannedGraph
    disk: float = 0.0
    building: float = 0.0
    read: float = 0.0
    written: float = 0.0
    _passes: set[tuple[object, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Count what it takes until the graph is there."""
        sorted_bytes = 0.0
        for relation, size in relations(self.graph):
            edges = size.edges / size.workers
            ends = edges * logged_bytes(relation, size)
            keys = edges * (ID_BYTES + relation.weight_bytes)
            counted = edges * size.end_bytes / 2 if size.workers > 1 else 0.0
            loops = size.nodes / size.workers if relation.edge.adds_loops else 0.0
            csr = (edges + loops) * _column_bytes(relation, size)
            self.read += ends + counted + keys
            self.written += ends + keys + csr
            self.disk += csr
            self.building += log_bytes(edges, logged_bytes(relation, size))
            sorted_bytes = max(sorted_bytes, keys)
        self.building += sorted_bytes

    @property
    def part(self) -> float:
        """Bytes of the edges that are in memory while a sum goes over them."""
        most = 0.0
        for relation, size in relations(self.graph):
            edges = size.edges / size.workers
            # Read in place, sources are rows of all workers' tensors.
            places = size.index_bytes if size.workers > 1 else 0
            one = min(edges, float(part_edges(edges))) * (_column_bytes(relation, size) + places)
            most = max(most, _PARTS * one)
        return most

    def go_over(self, step: Step, times: int) -> None:
        """A step is run so many times, each over its edges, after what it first needs of them."""
        assert isinstance(step, EdgeStep)
        view = step.edges
        self.read_degrees(step)
        if self.graph.size.of_relation(view.relation).workers > 1:
            self._once(view, "places")
        self.read += times * step.passes * self._csr(view)

    def read_degrees(self, step: Step) -> None:
        """A step reads degrees, which stay once they are known; in memory is where a row ends."""
        view = step.edges
        if view is None:
            return
        if view.loops != "keep" and ("loops", view._replace(layer=0)) not in self._passes:
            self._passes.add(("loops", view._replace(layer=0)))
            self.read += self._bytes(view._replace(loops="keep"), weighted=view.edge_weight)
            self.written += self._csr(view)
            self.disk += self._csr(view)
        ends, by_weight = _degrees(step)
        weighted = by_weight and self.graph.relations[view.relation].weight_bytes > 0
        for end in sorted(ends):
            if end == "out" or weighted:
                self._once(view, end, weighted)

    def _once(self, view: EdgeView, *what: object) -> None:
        key = (*what, view._replace(layer=0))
        if key not in self._passes:
            self._passes.add(key)
            self.read += self._csr(view)

    def _csr(self, view: EdgeView) -> float:
        """Bytes of a worker's graph as a step sees it; other self-loops have files of their own,
        and weights there only where the step reads some."""
        return self._bytes(view, weighted=view.loops == "keep" or view.edge_weight)

    def _bytes(self, view: EdgeView, *, weighted: bool) -> float:
        relation = self.graph.relations[view.relation]
        size = self.graph.size.of_relation(view.relation)
        loops = size.nodes if view.loops in ("single", "replace", "more") else 0
        edge_bytes = size.index_bytes + (relation.weight_bytes if weighted else 0)
        return (size.edges + loops) / size.workers * edge_bytes


def _degrees(step: Step) -> tuple[set[End], bool]:
    """The ends whose degrees a step reads, and whether weights are added up for them."""
    if isinstance(step, Aggregate | Propagate):
        return ends_read(step.norm), weighs(step.norm)
    if isinstance(step, Degree):
        by_weight = step.of in ("weight", "out_weight")
        return ({"out"} if step.of.startswith("out") else {"in"}), by_weight
    return set(), False


def _column_bytes(relation: PlannedRelation, size: Size) -> int:
    """Bytes of an edge of the graph."""
    return size.index_bytes + relation.weight_bytes


def spilled_graph(graph: PlannedGraph, *, spills: bool) -> SpilledGraph | None:
    """What the graph takes on disk; None where it is in memory."""
    return SpilledGraph(graph) if spills else None
