"""Edge lists in: each rank streams its share, maps ids, and keeps the edges packed narrow.

What the manifest says of direction and self-loops is applied batch by batch. A histogram of
destinations over at most 2^16 buckets of consecutive nodes is kept beside, from which the
row ranges are cut later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from embertide.context import RunContext
from embertide.errors import InputError
from embertide.kernels.csr import column_bits
from embertide.primitives.idmap import NodeIds
from embertide.primitives.shuffle import EdgeChunk, Edges
from embertide.readers.edges import EdgeBatch, read_edges
from embertide.readers.prefetch import prefetch
from embertide.readers.splits import Split
from embertide.spec.edges import EdgeInput

HISTOGRAM_BITS = 16


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
    done, total = 0, sum(split.size for split in splits)
    batches = _batches(ctx, splits, ids.count)
    ends = ((item, (item[0].source, item[0].destination)) for item in batches)
    for (batch, size), (source, destination) in ids.find_all(ends):
        _refuse_unknown(batch, "source", source, ids, ctx)
        _refuse_unknown(batch, "destination", destination, ids, ctx)
        done += size
        _keep(edges, ctx.edges, source, destination, batch.weight, ids.count)
        ctx.progress("ingest", done / max(1, total))
    return edges


def _batches(ctx: RunContext, splits: list[Split], nodes: int) -> Iterator[tuple[EdgeBatch, int]]:
    """Batches of all our splits, read ahead; a split's size comes with its first batch."""
    kind = ctx.nodes.ids
    count = nodes if kind == "dense" else None

    def read() -> Iterator[tuple[EdgeBatch, int]]:
        for split in splits:
            size = split.size
            for batch in read_edges(ctx.storage, ctx.edges, kind, split, count=count):
                yield batch, size
                size = 0

    return prefetch(read())


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


def _keep(
    edges: Edges,
    edge: EdgeInput,
    source: npt.NDArray[np.int64],
    destination: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float32] | None,
    nodes: int,
) -> None:
    """Apply direction and self-loop rules, count destinations, keep the edges narrow."""
    narrow = np.int32 if nodes < 2**31 else np.int64
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
    edges.histogram += np.bincount(destination >> edges.shift, minlength=len(edges.histogram))
    edges.count += len(source)
    edges.chunks.append(EdgeChunk(source.astype(narrow), destination.astype(narrow), weight))
