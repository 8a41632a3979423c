"""Edge lists in: each rank streams its share, maps ids, and keeps the edges packed narrow.

What the manifest says of direction and self-loops is applied batch by batch. A histogram of
destinations over at most 2^16 buckets of consecutive nodes is kept beside, from which the
row ranges are cut later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from embertide.context import RunContext
from embertide.errors import InputError
from embertide.kernels.csr import column_bits
from embertide.kernels.reading import count_ids, narrow_ids
from embertide.primitives.idmap import NodeIds
from embertide.primitives.shuffle import HISTOGRAM_BITS, EdgeChunk, Edges
from embertide.readers.edges import EdgeBatch, read_edges
from embertide.readers.pool import map_splits, read_ahead
from embertide.readers.splits import Split
from embertide.spec.edges import EdgeInput


def ingest(ctx: RunContext, splits: list[Split], ids: NodeIds) -> Edges:
    """Read our share of the edges as dense ids.

    Mapping ``int64`` and ``string`` ids is an exchange per batch; ranks may have
    different numbers of them.
    Collective: every rank must call.

    Raises:
        InputError: an edge whose end is no node of the graph (names the row and the field).
    """
    shift = max(0, column_bits(ids.count) - HISTOGRAM_BITS)
    histogram = np.zeros(((ids.count - 1) >> shift) + 1, np.int64)
    edges = Edges([], histogram, shift, ctx.edges.columns.weight is not None)
    if ids.collective:
        _ingest_in_step(ctx, splits, ids, edges)
    else:
        _ingest_at_once(ctx, splits, ids, edges)
    return edges


def _ingest_at_once(ctx: RunContext, splits: list[Split], ids: NodeIds, edges: Edges) -> None:
    """Each split by one thread, from the file to narrow edges; appended in their order."""
    counting = threading.Lock()
    done, total = 0, sum(split.size for split in splits)

    def read(split: Split) -> list[EdgeChunk]:
        nonlocal done
        chunks: list[EdgeChunk] = []
        for batch in read_edges(ctx.storage, ctx.edges, "dense", split, count=ids.count):
            chunk = _narrow(ctx.edges, batch.source, batch.destination, batch.weight, ids.count)
            with counting:
                count_ids(edges.histogram, chunk.destination, edges.shift)
            ctx.work.add("ingest", edges=len(chunk.source))
            chunks.append(chunk)
        with counting:
            done += split.size
            ctx.progress("ingest", done / max(1, total))
        return chunks

    for chunks in map_splits(splits, read, ctx.threads):
        for chunk in chunks:
            _append(edges, chunk)


def _ingest_in_step(ctx: RunContext, splits: list[Split], ids: NodeIds, edges: Edges) -> None:
    """Batch by batch, since mapping is collective. Collective: every rank must call."""
    done, total = 0, sum(split.size for split in splits)
    ends = ((item, (item[0].source, item[0].destination)) for item in _batches(ctx, splits))
    for (batch, size), (source, destination) in ids.find_all(ends):
        _refuse_unknown(batch, "source", source, ids, ctx)
        _refuse_unknown(batch, "destination", destination, ids, ctx)
        chunk = _narrow(ctx.edges, source, destination, batch.weight, ids.count)
        count_ids(edges.histogram, chunk.destination, edges.shift)
        _append(edges, chunk)
        ctx.work.add("ingest", edges=len(chunk.source))
        done += size
        ctx.progress("ingest", done / max(1, total))


def _append(edges: Edges, chunk: EdgeChunk) -> None:
    edges.count += len(chunk.source)
    edges.chunks.append(chunk)


def _batches(ctx: RunContext, splits: list[Split]) -> Iterator[tuple[EdgeBatch, int]]:
    """Batches of all our splits, read ahead; a split's size comes with its first batch."""

    def read(split: Split) -> Iterator[tuple[EdgeBatch, int]]:
        size = split.size
        for batch in read_edges(ctx.storage, ctx.edges, ctx.nodes.ids, split):
            yield batch, size
            size = 0

    return read_ahead([read(split) for split in splits], ctx.threads, lambda item: item[0].nbytes)


def _refuse_unknown(
    batch: EdgeBatch,
    end: Literal["source", "destination"],
    dense: npt.NDArray[np.int64],
    ids: NodeIds,
    ctx: RunContext,
) -> None:
    """Dense ids are in range already: the reader has checked them."""
    if not len(dense) or dense.min() >= 0:
        return
    at = int(np.argmin(dense >= 0))
    edge, node = ctx.edges, ctx.nodes
    given = batch.source if end == "source" else batch.destination
    value = int(given[at]) if isinstance(given, np.ndarray) else given[at].as_py()
    nodes = node.table.uri if node.table else node.features.uri
    more = " and its features" if node.table else ""
    raise InputError(
        f"{batch.where.row(at)}: column {getattr(edge.columns, end)!r} (columns.{end}) is"
        f" {value!r}, which is not among the {ids.count} nodes of {nodes}. Correct or drop the"
        f" row, or add the node there{more}"
    )


def _narrow(
    edge: EdgeInput,
    source: npt.NDArray[np.integer],
    destination: npt.NDArray[np.integer],
    weight: npt.NDArray[np.float32] | None,
    nodes: int,
) -> EdgeChunk:
    """Narrow edges of dense ids, after the rules of direction and self-loops."""
    source, destination = narrow_ids(source, nodes), narrow_ids(destination, nodes)
    if edge.self_loops == "remove" or not edge.directed:
        other = source != destination
        if edge.self_loops == "remove":
            source, destination = source[other], destination[other]
            weight = None if weight is None else weight[other]
            other = other[other]
        if not edge.directed:
            source, destination = (
                np.concatenate([source, destination[other]]),
                np.concatenate([destination, source[other]]),
            )
            weight = None if weight is None else np.concatenate([weight, weight[other]])
    return EdgeChunk(source, destination, weight)
