"""Sending each edge to the rank that owns its destination row.

Edges are held packed, eight bytes each, sorted by owner chunk by chunk; the receive buffer is
allocated once at its exact size, so beside it only one chunk per peer is in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from embertide.errors import GridError
from embertide.grid import RowRanges
from embertide.kernels.csr import column_bits, pack
from embertide.primitives.exchange import Channel, Exchange


@dataclass
class EdgeChunk:
    """Some edges with dense ids: sources and destinations [e], weights [e] float32 or None."""

    source: npt.NDArray[np.integer]
    destination: npt.NDArray[np.integer]
    weight: npt.NDArray[np.float32] | None


@dataclass
class Edges:
    """This rank's share of the edges, and a histogram of their destinations.

    ``histogram[b]`` counts destinations d with ``d >> shift == b``.
    """

    chunks: list[EdgeChunk]
    histogram: npt.NDArray[np.int64]
    shift: int
    weighted: bool
    count: int = 0


@dataclass
class _Packed:
    """A chunk's keys ordered by owner, and how many each owner gets."""

    keys: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32] | None
    counts: list[int]


def shuffle_edges(
    exchange: Exchange, ranges: RowRanges, chunks: list[EdgeChunk], *, weighted: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32] | None]:
    """All-to-all of edges by owner; ``chunks`` is emptied on the way.

    Collective: every rank must call.

    Returns:
        [e] keys packed as (row of our sub-range, source node), unsorted, and weights [e].

    Raises:
        GridError: rows and nodes don't fit into one packed word on so few workers.
    """
    rows = max(b - a for a, b in zip(ranges.workers, ranges.workers[1:], strict=False))
    if rows.bit_length() + column_bits(ranges.nodes) > 63:
        raise GridError(
            f"grid {exchange.grid.shape}: {rows} rows per worker of {ranges.nodes} nodes are"
            " too many to sort; use more workers"
        )
    packed = [_pack(chunks.pop(), ranges) for _ in range(len(chunks))]
    channel = exchange.channel("world", "shuffle")
    world = exchange.grid.world
    counts = torch.tensor([[sum(p.counts[w] for p in packed)] for w in range(world)])
    total = int(channel.sizes(counts).sum())
    keys = np.empty(total, np.int64)
    weights = np.empty(total, np.float32) if weighted else None
    at = 0
    for _ in range(max(exchange.all_objects(len(packed)))):
        chunk = (
            packed.pop()
            if packed
            else _Packed(np.empty(0, np.int64), np.empty(0, np.float32), [0] * world)
        )
        got = _swap(channel, chunk.keys, chunk.counts)
        keys[at : at + len(got)] = got
        if weights is not None:
            assert chunk.weights is not None
            weights[at : at + len(got)] = _swap(channel, chunk.weights, chunk.counts)
        at += len(got)
    return keys, weights


def _pack(chunk: EdgeChunk, ranges: RowRanges) -> _Packed:
    """Order by owner and pack rows counted from the owner's first."""
    bounds = np.array(ranges.workers)
    world = len(bounds) - 1
    if world == 1:
        keys = pack(chunk.destination, chunk.source, ranges.nodes)
        return _Packed(keys, chunk.weight, [len(keys)])
    owner = np.searchsorted(bounds, chunk.destination, side="right") - 1
    owner = owner.astype(np.uint8 if world < 2**8 else np.uint16)
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=world)
    rows = chunk.destination[order].astype(np.int64) - np.repeat(bounds[:-1], counts)
    keys = pack(rows, chunk.source[order], ranges.nodes)
    weights = None if chunk.weight is None else chunk.weight[order]
    return _Packed(keys, weights, counts.tolist())


def _swap(
    channel: Channel, values: npt.NDArray[np.generic], counts: list[int]
) -> npt.NDArray[np.generic]:
    """One round: send each owner its run of ``values``; what the ranks sent us, in rank order.

    Collective: every rank must call.
    """
    if channel.grid.world == 1:
        return values
    tensor = torch.from_numpy(values).to(channel.device)
    return torch.cat(channel.all_to_all(tensor.split(counts))).cpu().numpy()
