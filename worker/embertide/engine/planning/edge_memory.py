"""Peak memory of edges while they are read, looked up and sorted, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass

from embertide.engine.planning.graph import PlannedGraph, PlannedRelation, edge_loads
from embertide.footprint import ID_BYTES, Size
from embertide.graph.edge_log import PIECE_EDGES
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
