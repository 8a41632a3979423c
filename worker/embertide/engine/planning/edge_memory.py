"""Peak memory of edges while they are read, looked up and sorted, stage by stage.

Edges on disk are written as they are read, sorted by way of the disk into parts of consecutive
rows, and gone over part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embertide.engine.planning.graph import PlannedGraph, PlannedRelation, edge_loads
from embertide.footprint import ID_BYTES, Size
from embertide.graph.edge_log import PIECE_EDGES, log_bytes
from embertide.graph.ghosts import POSITION_BYTES, StoredEdges
from embertide.io.readers.edges import splits_at_once
from embertide.io.readers.parquet import BUFFER_BYTES, UNBUFFERED_BYTES
from embertide.io.readers.pool import (
    AHEAD_BYTES,
    are_remote,
    remote_bytes_arriving,
    remote_bytes_held,
)
from embertide.io.readers.table import BATCH_ROWS
from embertide.kernels.edge_sort import bucket_shift, key_bytes
from embertide.kernels.pages import LEAST_BYTES
from embertide.kernels.spilled_sort import READ_EDGES, part_edges
from embertide.program.plans.plan import Plan
from embertide.spec.tables import COLUMN_FORMATS

STRING_BYTES = 24
"""A string id: 16 bytes of text, assumed, since metadata lack it, and where it begins."""
_REMOTE_TEXT_BYTES = 20 << 20
"""Upper bound for string columns held while remote chunks arrive."""
_WORDS_IN_ROUNDS = 5
"""A hash is among a round's, twice among the different ones and twice among those asked of us."""
_ROUND_ID_BYTES = 32
"""An id that is looked up, without its hashes: its places and dense ids, of two rounds."""
_BATCHES_IN_ROUNDS = 2
"""Batches that readers hold no longer, but rounds do."""
_END_COLUMNS = 3
"""Columns of a file of edges without features: both ends, and a weight."""
_PIECES = 4
"""How often a piece of edges on disk is in memory: waiting, as columns, as loaded, and packed."""
_PAGE_BYTES = 2 << 20
"""A parquet column that is being read: a page of 1 MiB, stored and decoded."""
_PARTS = 3
"""Parts that are in memory: what the kernels go over, the next one, and the one that is read."""
_REQUEST_BYTES = 4
_BATCHES = 3
"""How often a batch of packed edges is in memory: as it comes, its buckets, and in their order."""


def relations(graph: PlannedGraph) -> list[tuple[PlannedRelation, Size]]:
    """Each relation with its size, in the order in which they are built."""
    return [(relation, graph.size.of_relation(name)) for name, relation in graph.relations.items()]


def edge_types(graph: PlannedGraph) -> list[tuple[PlannedRelation, Size]]:
    """One relation of each edge type, whose reverse shares its memory, or its files."""
    by_edge_type = {item[0].edge.relation: item for item in reversed(relations(graph))}
    return list(reversed(by_edge_type.values()))


def _read_edges(relation: PlannedRelation, size: Size, worker: int) -> float:
    """Edges that a worker reads."""
    return edge_loads(relation, size).edges[worker]


def _chunks(relation: PlannedRelation, size: Size, worker: int) -> float:
    """Bytes of the edges as a worker has read them."""
    return _read_edges(relation, size, worker) * (size.end_bytes + relation.carried_bytes)


def ingesting(
    graph: PlannedGraph, worker: int, threads: int, buffers: int, *, spills: bool
) -> float:
    """Edge types are read one after another; what is being read or mapped is in the buffers.

    Args:
        spills: edges go to the disk as they are read.
    """
    kinds = {of_type.node.name: of_type.node.ids for of_type in graph.types.values()}
    peak = before = 0.0
    for relation, size in edge_types(graph):
        before += 0.0 if spills else _chunks(relation, size, worker)
        logging = logging_bytes(relation, size, threads) if spills else 0.0
        ends = (relation.relation.source, relation.relation.destination)
        # With one worker, each reader looks up small batches.
        hashed = size.workers > 1 and any(kinds[name] != "dense" for name in ends)
        text = any(kinds[name] == "string" for name in ends)
        buffered = remote_bytes_held(relation.splits, size.workers, threads)
        arriving: float = remote_bytes_arriving(relation.splits, buffered) + text * min(
            _REMOTE_TEXT_BYTES, buffered
        )
        if hashed:
            # Readers wait while ids are looked up.
            # A worker that reads more than others takes more rounds, not larger ones (measured).
            even = max(size.edges / size.workers, float(BATCH_ROWS))
            arriving = _mapping(min(_read_edges(relation, size, worker), even), text=text)
        reading = arriving + max(_reading(relation, size, threads), float(buffered))
        peak = max(peak, before + logging + max(reading, buffers))
    return peak


def logged_bytes(relation: PlannedRelation, size: Size) -> float:
    """Bytes of an edge that is written as it is read."""
    return float(size.end_bytes + relation.carried_bytes)


def logging_bytes(relation: PlannedRelation, size: Size, threads: int = 0) -> float:
    """Bytes in memory while edges are written as they are read, or read again.

    Args:
        threads: that read them, each with pages that a batch begins.
    """
    edges = min(float(PIECE_EDGES), size.edges / size.workers)
    pages = min(threads, splits_at_once(relation.splits, threads)) * LEAST_BYTES if threads else 0
    return _PIECES * edges * logged_bytes(relation, size) + pages


def _reading(relation: PlannedRelation, size: Size, threads: int) -> float:
    """Bytes of row groups with features of edges that are being read, by as many threads at once.

    They are large, and fetched whole from a store; a page of each column is decoded.
    """
    features = relation.edge.features
    if relation.edge.format not in COLUMN_FORMATS or features is None:
        return 0.0
    largest = max((split.size for split in relation.splits), default=0)
    columns = len(features.columns or ()) + (features.vector_column is not None)
    streamed = BUFFER_BYTES * (columns + _END_COLUMNS)
    whole = UNBUFFERED_BYTES if are_remote(relation.splits) else streamed
    fetched, decoded = min(largest, whole), min(largest, _PAGE_BYTES * columns)
    at_once = splits_at_once(relation.splits, threads)
    readers = min(at_once, -(-len(relation.splits) // size.workers))
    return float(readers * (fetched + decoded))


def csr_bytes(relation: PlannedRelation, size: Size, *, spills: bool) -> float:
    """Bytes of the CSR of our sub-range in memory; ``spills``: its edges are on disk."""
    edges, nodes = 0.0 if spills else size.edges / size.workers, size.nodes / size.workers
    return edges * (size.index_bytes + relation.carried_bytes) + ID_BYTES * nodes


def _mapping(edges: float, *, text: bool) -> float:
    """Bytes of the edges that are read ahead while hashed ids are looked up, and of the rounds.

    Args:
        edges: that the worker reads.
        text: ids are strings.
    """
    batch = float(BATCH_ROWS)
    edge_bytes = 2 * (STRING_BYTES if text else ID_BYTES)
    ahead = min(AHEAD_BYTES + _BATCHES_IN_ROUNDS * batch * edge_bytes, edges * edge_bytes)
    word_bytes = (2 if text else 1) * ID_BYTES
    round_bytes = _WORDS_IN_ROUNDS * word_bytes + _ROUND_ID_BYTES
    return ahead + round_bytes * 2 * min(batch, edges)


@dataclass(frozen=True)
class SortingBytes:
    """Bytes of a worker while the edges of all relations are sent to their owners and sorted.

    Attributes:
        peak: while they are.
        kept: of large pages that stay afterwards, for the layers; buffers of rounds do not.
    """

    peak: float
    kept: float


def sorting(graph: PlannedGraph, worker: int) -> SortingBytes:
    """Relations are sorted one after another, each from its edges to its CSR."""
    of_all = relations(graph)
    peak = kept = done = 0.0
    for number, (relation, size) in enumerate(of_all):
        later = of_all[number + 1 :]
        shared = any(other.edge.relation == relation.edge.relation for other, _ in later)
        files = {other.edge.relation: _chunks(other, of, worker) for other, of in later}
        keys, sorting = _sorting_one(relation, size)
        # A reverse that is still to be sorted keeps the edges.
        packed = keys + (0.0 if shared else _chunks(relation, size, worker))
        before = done + sum(files.values())
        kept = max(kept, before + max(packed, sorting))
        peak = max(peak, kept, before + packed + sending_bytes(relation, size, worker))
        done += csr_bytes(relation, size, spills=False)
    return SortingBytes(peak, kept)


def sending_bytes(relation: PlannedRelation, size: Size, worker: int) -> float:
    """Bytes of the rounds in which a worker sends the edges that it has read, and receives others.

    Two rounds have buffers; with a single one, the other's are never touched.
    """
    if size.workers == 1:
        return 0.0
    loads = edge_loads(relation, size)
    sent = [min(edges, 2.0 * loads.round_edges) for edges in loads.edges]
    received = (sum(sent) - sent[worker]) / size.workers
    return (sent[worker] + received) * (ID_BYTES + relation.carried_bytes)


def key_bytes_of(relation: PlannedRelation, size: Size) -> int:
    """Bytes of a packed edge, for the worker with the most rows: twice its share."""
    rows = max(1, min(size.nodes, -(-2 * size.nodes // size.workers)))
    return key_bytes(bucket_shift(rows), max(1, size.columns), relation.features)


def _sorting_one(relation: PlannedRelation, size: Size) -> tuple[float, float]:
    """Bytes in addition to the edges as read: once they are packed, then while sorted."""
    index, carried = size.index_bytes, relation.carried_bytes
    nodes, edges = size.nodes / size.workers, size.edges / size.workers
    keys = edges * (key_bytes_of(relation, size) + carried)
    sorting = keys + edges * index + ID_BYTES * nodes
    if relation.edge.duplicates == "remove":
        # What stays is copied.
        sorting += edges * relation.feature_bytes
    if not relation.edge.adds_loops:
        return keys, sorting
    return keys, max(sorting, looping_bytes(relation, size, edges, nodes))


def looping_bytes(relation: PlannedRelation, size: Size, edges: float, rows: float) -> float:
    """Bytes of so many edges into so many rows while self-loops are added to them."""
    return (2 * edges + rows) * (size.index_bytes + relation.carried_bytes) + 2 * ID_BYTES * rows


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
