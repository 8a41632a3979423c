"""What edges and the graph take where they are on disk: memory, and bytes to the disk and back.

Edges are written as they are read, sorted by way of the disk into parts of consecutive rows, and
gone over part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embertide.engine.planning.edge_memory import (
    SortingBytes,
    csr_bytes,
    edge_types,
    key_bytes_of,
    logged_bytes,
    logging_bytes,
    looping_bytes,
    relations,
    sending_bytes,
)
from embertide.engine.planning.graph import PlannedGraph, PlannedRelation
from embertide.engine.planning.publishing import published, target_of_job
from embertide.footprint import ID_BYTES, Size
from embertide.graph.edge_log import log_bytes
from embertide.graph.ghosts import POSITION_BYTES, StoredEdges
from embertide.kernels.spilled_sort import READ_EDGES, part_edges
from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Plan
from embertide.program.steps.program import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob

_PARTS = 3
"""Parts that are in memory: what the kernels go over, the next one, and the one that is read."""
_REQUEST_BYTES = 4
_BATCHES = 3
"""How often a batch of packed edges is in memory: as it comes, its buckets, and in their order."""


def spilled_sorting(graph: PlannedGraph, worker: int) -> SortingBytes:
    """Bytes in memory while edges are sorted by way of the disk, one relation after another; of
    those before, the ends of rows stay."""
    peak = kept = done = 0.0
    for relation, size in relations(graph):
        each = _sorting(relation, size, worker)
        peak, kept = max(peak, done + each.peak), max(kept, done + each.kept)
        done += csr_bytes(relation, size, spills=True)
    return SortingBytes(peak, kept)


def _sorting(relation: PlannedRelation, size: Size, worker: int) -> SortingBytes:
    index, carried = size.index_bytes, relation.carried_bytes
    edges, nodes = size.edges / size.workers, size.nodes / size.workers
    part = min(edges, float(part_edges(edges, relation.features)))
    batch = part / 2 * (ID_BYTES + carried)
    taking = _BATCHES * batch + logging_bytes(relation, size)
    keys = part * (key_bytes_of(relation, size) + carried)
    reading = min(float(READ_EDGES), part) * (ID_BYTES + carried)
    rows = _part_rows(relation, size)
    # Of features, those that stay are copied.
    removing = part * relation.feature_bytes * (relation.edge.duplicates == "remove")
    sorting = batch + keys + max(reading, part * index + removing) + ID_BYTES * rows
    if relation.edge.adds_loops:
        sorting = max(sorting, batch + looping_bytes(relation, size, part, rows))
    kept = max(taking, sorting) + ID_BYTES * nodes
    sending = taking + sending_bytes(relation, size, worker) + ID_BYTES * nodes
    return SortingBytes(max(kept, sending), kept)


def _part_rows(relation: PlannedRelation, size: Size) -> float:
    """Rows of a part; without edges all of a worker's are one."""
    edges, rows = size.edges / size.workers, size.nodes / size.workers
    return rows * min(1.0, part_edges(edges, relation.features) / edges) if edges else rows


@dataclass
class SpilledGraph:
    """The bytes that one worker moves for a graph on disk until layers go over it.

    Attributes:
        graph: on the grid that computes the layers.
        widest: columns of the widest tensor.
        pairs: whole rows are exchanged, too, for the edges of sub-ranges.
        fanout: in-edges that each layer samples of a node; None: all of them.
        disk: bytes of its files from then on.
        building: bytes of files that are gone by then.
        read, written: bytes by then.
    """

    graph: PlannedGraph
    widest: int
    pairs: bool
    fanout: Sequence[int] | None = None
    disk: float = 0.0
    building: float = 0.0
    read: float = 0.0
    written: float = 0.0

    def __post_init__(self) -> None:
        """Count what it takes until the graph is there."""
        sorted_bytes = 0.0
        for relation, size in edge_types(self.graph):
            edges, edge_bytes = size.edges / size.workers, logged_bytes(relation, size)
            self.written += edges * edge_bytes
            self.building += log_bytes(edges, edge_bytes)
            if len(relation.edge.relations) > 1:
                # Sources are counted as destinations of the reverse.
                self.read += edges * size.end_bytes / 2
        for relation, size in relations(self.graph):
            edges = size.edges / size.workers
            ends = edges * logged_bytes(relation, size)
            keys = edges * (ID_BYTES + relation.carried_bytes)
            counted = edges * size.end_bytes / 2 if size.workers > 1 else 0.0
            loops = size.nodes / size.workers if relation.edge.adds_loops else 0.0
            csr = (edges + loops) * _column_bytes(relation, size)
            # All workers of a partition have its edges, of samples those alone.
            members = size.feature if self.fanout is None else 1
            self.read += ends + counted + keys + (csr if members > 1 else 0.0)
            self.written += keys + members * csr
            self.disk += members * csr
            sorted_bytes = max(sorted_bytes, keys)
        self.building += sorted_bytes

    @property
    def stored(self) -> dict[str, StoredEdges]:
        """Relation -> its edges there."""
        sizes = {name: self.graph.size.of_relation(name) for name in self.graph.relations}
        return {
            name: StoredEdges(
                relation.weight_bytes,
                relation.feature_bytes,
                relation.edge.adds_loops,
                self.widest,
                _longest(relation, sizes[name]) / max(1.0, sizes[name].edges / sizes[name].workers),
                self.fanout,
            )
            for name, relation in self.graph.relations.items()
        }

    @property
    def requests(self) -> float:
        """Bytes in memory of the numbers of rows that other workers request."""
        sizes = [size for _, size in relations(self.graph)]
        each = ((size, members) for size in sizes for members in self._exchanging(size))
        return sum(_REQUEST_BYTES * size.unique(members) for size, members in each)

    @property
    def part(self) -> float:
        """Bytes of the edges that are in memory while a sum goes over them."""
        most = 0.0
        for relation, size in relations(self.graph):
            longest = _longest(relation, size)
            columns = longest * _column_bytes(relation, size)
            # Read in place, sources are rows of all workers' tensors.
            held = _PARTS * (columns + longest * (size.index_bytes if size.graph > 1 else 0))
            for members in self._exchanging(size):
                # A part is cut into blocks, which are put together for the disk.
                pairs = members == size.workers
                touched = size.touched(self.widest, pairs=pairs)
                touched *= longest / max(1.0, size.edges / members)
                cut = columns + touched + POSITION_BYTES * longest * self.pairs
                held = max(held, _PARTS * columns + 2 * cut)
            ends = min(_PARTS * _part_rows(relation, size), size.nodes / size.workers)
            most = max(most, held + ID_BYTES * ends)
        return most

    def _exchanging(self, size: Size) -> list[int]:
        """Ranges of rows for whose edges workers exchange rows in groups: partitions, and
        sub-ranges."""
        if size.in_place:
            return []
        return [count for count in {size.graph, size.workers * self.pairs} if count > 1]

    @property
    def gathering(self) -> float:
        """Bytes while workers of a partition get each other's parts, with the ends of all rows."""
        ends = sum(ID_BYTES * size.nodes / size.graph for _, size in relations(self.graph))
        return ends + self.part * (_PARTS + self.graph.size.grid.feature - 1) / _PARTS


def _column_bytes(relation: PlannedRelation, size: Size) -> int:
    """Bytes of an edge of the graph, with all that it carries."""
    return size.index_bytes + relation.carried_bytes


def _longest(relation: PlannedRelation, size: Size) -> float:
    """Edges of a part."""
    edges = size.edges / size.workers
    return min(edges, float(part_edges(edges, relation.features)))


def spilled_graph(
    graph: PlannedGraph, plan: Plan, fanout: Sequence[int] | None
) -> SpilledGraph | None:
    """What the graph takes on disk; None where it is in memory."""
    if not plan.target.spills_graph:
        return None
    pairs = any(step.pairs for step in plan.program.steps)
    return SpilledGraph(graph, max(plan.program.widths.values()), pairs, fanout)


def graph_problem(job: EmbeddingJob, program: Program, grid: GridShape, *, in_place: bool) -> str:
    """Why the graph can't be on disk beside the tensors; "" where it can.

    Args:
        in_place: all workers are on one host, and read each other's tensors where they stand.
    """
    program = published(job, program)
    return needed_in_memory(make_plan(program, target_of_job(job, grid, in_place=in_place)))


def needed_in_memory(plan: Plan) -> str:
    """The step of a plan that goes over all of its edges at once; "" where none does.

    Where workers exchange rows, or compute slices of columns, scores of edges are sent in the order
    of the edges.
    """
    if plan.grid.workers == 1 or (plan.target.in_place and plan.grid.feature == 1):
        return ""
    how = "compute slices of columns" if plan.grid.feature > 1 else "exchange rows"
    for step in plan.program.steps:
        if step.pairs and step.tiles:
            return (
                f"{step.kind_name} ({step.out}, layer {step.layer}) needs the graph in memory where"
                f" workers {how}, as on the grid {plan.target.grid}"
            )
    return ""
