"""Edge lists in: each rank streams its share, maps ids, and keeps the edges packed narrow.

What the manifest says of direction and self-loops is applied batch by batch. A histogram of
destinations over at most 2^16 buckets of consecutive nodes is kept beside, from which the
row ranges are cut later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.context import RunContext
from embertide.errors import InputError
from embertide.graph.edge_log import EdgeChunk, EdgeLog
from embertide.graph.node_ids import Dense, Ends, NodeIds, Nodes, described
from embertide.graph.shuffle import Edges, histogram_size
from embertide.io.readers.edges import (
    EdgeBatch,
    read_edges,
    splits_at_once,
)
from embertide.io.readers.ids import Mask
from embertide.io.readers.pool import map_splits, read_ahead
from embertide.io.readers.splits import Split
from embertide.io.readers.table import BATCH_ROWS
from embertide.io.readers.unknown_nodes import UnknownEnds, settle
from embertide.kernels.ids import Ids
from embertide.kernels.pages import Pages
from embertide.kernels.reading import count_ids, end_type, narrow_ids
from embertide.spec.edges import EdgeInput

_CACHED_ROWS = 1 << 16
"""Rows of a batch that one thread decodes, looks up and narrows while they are in the cache."""


def ingest(ctx: RunContext, ends: Ends, splits: list[Split]) -> Edges:
    """Read our share of an edge type's edges as dense ids.

    Those whose end is no node of its type are left out where ``unknownNodes`` allows it.
    On several workers mapping ``int64`` and ``string`` ids is an exchange per batch; ranks may
    have different numbers of them.
    Collective: every rank must call.

    Raises:
        InputError: edges whose end is no node of its type: how many, and a few by row and field.
    """
    weighted = ends.edge.columns.weight is not None
    edges = empty_edges(ends.counts[1], weighted=weighted, features=ends.features)
    if ctx.disk is not None:
        kind = end_type(max(ends.counts))
        edges.log = EdgeLog(ctx.disk, kind, weighted=weighted, features=ends.features)
    read = _ingest_in_step if ends.collective else _ingest_at_once
    unknown = read(ctx, splits, ends, edges)
    edges.complete()
    nodes = [described(of_type) for of_type in (ends.sources, ends.destinations)]
    edges.dropped = settle(
        ctx.exchange.all_objects, ctx.grid.rank, ends.edge, unknown, edges.rows, nodes, ends.counts
    )
    return edges


def reverse(edges: Edges, sources: int) -> Edges:
    """The same edges the other way round, sharing their memory, or their files.

    Args:
        sources: nodes of the edges' source type.

    Raises:
        StorageError: the disk of edges that are there cannot be read.
    """
    turned = empty_edges(sources, weighted=edges.weighted, features=edges.features)
    turned.chunks = [chunk.turned() for chunk in edges.chunks]
    turned.count = edges.count
    turned.log = None if edges.log is None else edges.log.shared()
    for chunk in turned.chunks:
        count_ids(turned.histogram, chunk.destination, turned.shift)
    return turned


def empty_edges(nodes: int, *, weighted: bool, features: int = 0) -> Edges:
    """No edges yet, to a type of so many nodes."""
    shift, buckets = histogram_size(nodes)
    return Edges([], np.zeros(buckets, np.int64), shift, weighted, features=features)


def _ingest_at_once(ctx: RunContext, splits: list[Split], ends: Ends, edges: Edges) -> UnknownEnds:
    """Each split by one thread, from the file to narrow edges; appended in their order."""
    counting, unknown = threading.Lock(), UnknownEnds()
    done, total = 0, sum(split.size for split in splits)

    def read(split: Split) -> tuple[list[EdgeChunk], UnknownEnds, tuple[int, int]]:
        nonlocal done
        chunks: list[EdgeChunk] = []
        rows = kept = 0
        pages, left_out = Pages(), UnknownEnds()
        for batch in _read(ctx, ends, split, _CACHED_ROWS):
            source = _find(ends.sources, batch.source, pages)
            destination = _find(ends.destinations, batch.destination, pages)
            chunk = _narrow(ends, source, destination, batch, pages, left_out)
            with counting:
                count_ids(edges.histogram, chunk.destination, edges.shift)
                edges.rows += len(batch)
                if edges.log is not None:
                    # In any order: sorting makes the order.
                    edges.add(chunk)
                else:
                    chunks.append(chunk)
            rows, kept = rows + len(batch), kept + len(chunk)
            ctx.work.add("ingest", edges=len(chunk.source))
        with counting:
            done += split.size
            ctx.progress("ingest", done / max(1, total))
        return chunks, left_out, (rows, kept)

    for chunks, left_out, part in map_splits(splits, read, splits_at_once(splits, ctx.threads)):
        unknown.add(left_out)
        edges.parts.append(part)
        for chunk in chunks:
            edges.add(chunk)
    return unknown


def _ingest_in_step(ctx: RunContext, splits: list[Split], ends: Ends, edges: Edges) -> UnknownEnds:
    """Batch by batch, since mapping is collective. Collective: every rank must call."""
    done, total = 0, sum(split.size for split in splits)
    pages, unknown, edges.parts = Pages(), UnknownEnds(), [(0, 0)] * len(splits)
    mapped = _mapped(ctx, ends, _batches(ctx, splits, ends))
    for (batch, number, size), (source, destination) in mapped:
        chunk = _narrow(ends, source, destination, batch, pages, unknown)
        count_ids(edges.histogram, chunk.destination, edges.shift)
        edges.rows += len(batch)
        edges.add(chunk)
        rows, kept = edges.parts[number]
        edges.parts[number] = rows + len(batch), kept + len(chunk)
        ctx.work.add("ingest", edges=len(chunk.source))
        done += size
        ctx.progress("ingest", done / max(1, total))
    # What arrow keeps of batches would stay beside the rounds of the next edge type.
    pa.default_memory_pool().release_unused()
    return unknown


Carried = npt.NDArray[np.float32]
Sized = tuple[EdgeBatch, int, int]
"""A batch, the number of its split, and with a split's first one the bytes of the split."""
Mapped = tuple[Sized, list[Dense]]
"""The same, and dense ids of its sources and destinations."""


def _mapped(ctx: RunContext, ends: Ends, batches: Iterator[Sized]) -> Iterator[Mapped]:
    """Batches with their dense ids. Collective: every rank must go on to the end."""
    sources, destinations = ends.sources.ids, ends.destinations.ids
    if sources is destinations:
        return sources.find_all((item, (item[0].source, item[0].destination)) for item in batches)
    return _mapped_by_two(ctx, sources, destinations, batches)


def _mapped_by_two(
    ctx: RunContext, sources: NodeIds, destinations: NodeIds, batches: Iterator[Sized]
) -> Iterator[Mapped]:
    """As :func:`_mapped`, of two node types: a batch of every rank at a time.

    Looking up the ids of one type while those of the other are in flight would let the ranks,
    whose batches differ, disagree on the order. Collective: every rank must go on to the end.
    """
    while True:
        item = next(batches, None)
        if not any(ctx.exchange.all_objects(item is not None)):
            return
        given = ([item[0].source], [item[0].destination]) if item is not None else ([], [])
        found = [
            [dense for _, (dense,) in ids.find_all((None, [one]) for one in some)]
            for ids, some in zip((sources, destinations), given, strict=True)
        ]
        if item is not None:
            yield item, [dense for (dense,) in found]


def _batches(ctx: RunContext, splits: list[Split], ends: Ends) -> Iterator[Sized]:
    """Batches of all our splits, read ahead; a split's size comes with its first batch."""

    def read(number: int, split: Split) -> Iterator[Sized]:
        size = split.size
        for batch in _read(ctx, ends, split, BATCH_ROWS):
            yield batch, number, size
            size = 0

    readers = splits_at_once(splits, ctx.threads)
    every = [read(number, split) for number, split in enumerate(splits)]
    return read_ahead(every, readers, lambda item: item[0].nbytes)


def _read(ctx: RunContext, ends: Ends, split: Split, rows: int) -> Iterator[EdgeBatch]:
    """A split's edges, at most so many rows a batch."""
    kinds = ends.sources.node.ids, ends.destinations.node.ids
    for batch in read_edges(ctx.storage, ends.edge, kinds, split, rows, ends.counts, ends.features):
        for column, count in ends.categories:
            _check_category(batch, ends.edge, column, count)
        yield batch


def _check_category(batch: EdgeBatch, edge: EdgeInput, column: int, count: int) -> None:
    """Refuse what is no whole number from 0 to count - 1.

    Raises:
        InputError: names object, row and column of the first one.
    """
    if batch.features is None:
        return
    values = batch.features[:, column]
    bad = np.flatnonzero((values != np.floor(values)) | (values < 0) | (values >= count))
    if len(bad):
        at, named = int(bad[0]), edge.features.columns or [] if edge.features is not None else []
        after = column - (batch.features.shape[1] - len(named))
        name = f" ({named[after]!r})" if after >= 0 else ""
        raise InputError(
            f"{batch.where.row(at)}: feature {column}{name} of the edge is {float(values[at]):g},"
            f" but the model knows the categories 0 to {count - 1}; clean the features, or train"
            " the model again with it"
        )


def _find(nodes: Nodes, ids: Ids, pages: Pages) -> Dense:
    """Dense ids of some that are looked up on the calling thread; -1 for an unknown one."""
    return ids if nodes.node.ids == "dense" else nodes.ids.find(ids, pages)


def _unknown(nodes: Nodes, dense: Dense, beyond: Mask | None) -> Mask | None:
    """[n] which ends are not among the nodes; None where all are.

    Args:
        beyond: the same of ids that are dense in the files, as the reader saw them.
    """
    if nodes.node.ids == "dense":
        return beyond
    if not len(dense) or dense.min() >= 0:
        return None
    missing: Mask = dense < 0
    return missing


def _narrow(
    ends: Ends,
    source: Dense,
    destination: Dense,
    batch: EdgeBatch,
    pages: Pages,
    unknown: UnknownEnds,
) -> EdgeChunk:
    """Narrow edges of dense ids, after the rules of direction and self-loops.

    Those whose end is no node are left out, and counted in ``unknown``.
    """
    edge, widest = ends.edge, max(ends.counts)
    no_source = _unknown(ends.sources, source, batch.beyond[0])
    no_destination = _unknown(ends.destinations, destination, batch.beyond[1])
    known = unknown.known_of(batch, no_source, no_destination)
    chunk = EdgeChunk(
        narrow_ids(source, widest, pages),
        narrow_ids(destination, widest, pages),
        batch.weight,
        batch.features,
    )
    if known is not None:
        chunk = chunk.part(known)
    if edge.removes_loops:
        chunk = chunk.part(chunk.source != chunk.destination)
    if ends.only is not None:
        of_sources, of_destinations = ends.only
        chunk = chunk.part(of_sources[chunk.source] | of_destinations[chunk.destination])
    if edge.directed:
        return chunk
    other = chunk.part(chunk.source != chunk.destination)
    return EdgeChunk(
        np.concatenate([chunk.source, other.destination]),
        np.concatenate([chunk.destination, other.source]),
        _both(chunk.weight, other.weight),
        _both(chunk.features, other.features),
    )


def _both(some: Carried | None, others: Carried | None) -> Carried | None:
    """What edges carry, one after the other."""
    return None if some is None or others is None else np.concatenate([some, others])
