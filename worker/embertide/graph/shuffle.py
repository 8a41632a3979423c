"""Sending each edge to the rank that owns its destination row.

Edges travel packed, eight bytes each and beside them what they carry, in rounds of bounded size:
while one round is in flight the next is packed, and the one before is put into the buckets from
which the rows are sorted. How many edges each round and bucket has is counted and sent first, so
that all buffers have their exact size from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.errors import GridError
from embertide.facts.telemetry.omissions import DroppedEdges
from embertide.graph.edge_log import EdgeChunk, EdgeLog, StoredChunk
from embertide.graph.exchange import Channel, Exchange, Pending
from embertide.grid import RowRanges
from embertide.kernels.csr import column_bits
from embertide.kernels.edge_sort import (
    Chunk,
    EdgeSorter,
    bucket_count,
    bucket_shift,
    count_edges,
    partition_edges,
)
from embertide.kernels.scratch import Scratch
from embertide.kernels.spilled_sort import SpilledEdgeSorter

AnySorter = EdgeSorter | SpilledEdgeSorter
"""Sorts edges in memory or by way of the disk."""
ROUND_EDGES = 1 << 24
"""Edges that all ranks send in a round, each an equal share of at most a sixteenth: what a rank
receives in a round is bounded even where all send to it. Edges with features are fewer."""
_EDGE_BYTES = 12
"""Bytes of an edge with its weight."""
HISTOGRAM_BITS = 16
"""At most 2^16 buckets of consecutive nodes count the destinations, whatever N is."""


@dataclass
class Edges:
    """This rank's share of the edges, and a histogram of their destinations.

    ``histogram[b]`` counts destinations d with ``d >> shift == b``; ``features`` is K, 0 without.
    ``rows`` is how many were read of the input, before directions and self-loops were treated;
    ``dropped`` says how many of them all ranks left out, since an end is no node. With a ``log``
    edges are on disk: chunks are its pieces. ``parts`` has the rows and the edges of each split.
    """

    chunks: list[StoredChunk]
    histogram: npt.NDArray[np.int64]
    shift: int
    weighted: bool
    count: int = 0
    features: int = 0
    rows: int = 0
    dropped: DroppedEdges | None = None
    log: EdgeLog | None = None
    parts: list[tuple[int, int]] = field(default_factory=list)

    def add(self, chunk: EdgeChunk) -> None:
        """Take some edges, to disk where they go there.

        Raises:
            StorageError: the disk has no room, or cannot be written.
        """
        self.count += len(chunk)
        if self.log is None:
            self.chunks.append(chunk)
        else:
            self.log.add(chunk)

    def complete(self) -> None:
        """All edges were added.

        Raises:
            StorageError: the disk has no room, or cannot be written.
        """
        if self.log is not None:
            self.chunks += self.log.finish()

    def close(self) -> None:
        """No edge is read any more; the room of those on disk is given back."""
        if self.log is not None:
            self.log.close()


def histogram_size(nodes: int) -> tuple[int, int]:
    """Shift and buckets of a histogram of the edges to so many nodes."""
    shift = max(0, column_bits(nodes) - HISTOGRAM_BITS)
    return shift, ((nodes - 1) >> shift) + 1


def round_edges(world: int, features: int = 0) -> int:
    """Edges that one of ``world`` ranks sends in a round, at most."""
    most = min(1 << 20, ROUND_EDGES // world)
    return max(1, most * _EDGE_BYTES // (_EDGE_BYTES + 4 * features))


def shuffle_edges(
    exchange: Exchange,
    ranges: RowRanges,
    edges: Edges,
    nodes: int,
    relation: str = "",
    scratch: Scratch | None = None,
) -> AnySorter:
    """All-to-all of edges by owner; ``edges`` is emptied on the way.

    Collective: every rank must call.

    Args:
        ranges: of the destinations.
        nodes: N of the sources.
        relation: whose edges they are, where there are several.
        scratch: where they are until they are sorted; None: in memory.

    Returns:
        The edges into our sub-range, ready to be sorted.

    Raises:
        StorageError: the disk has no room, or cannot be read or written.
        GridError: rows and nodes don't fit into one packed word on so few workers.
    """
    rows = max(b - a for a, b in zip(ranges.workers, ranges.workers[1:], strict=False))
    if rows.bit_length() + column_bits(nodes) > 63:
        raise GridError(
            f"grid {exchange.grid.shape}: {rows} rows per worker and {nodes} sources are"
            " too many to sort; use more workers"
        )
    shift, buckets = bucket_shift(rows), bucket_count(rows)
    world, bounds = exchange.grid.world, np.array(ranges.workers, np.int64)
    chunks, features = edges.chunks, edges.features
    first, last = ranges.worker(exchange.grid.rank)

    def sorter(counts: npt.NDArray[np.int64]) -> AnySorter:
        if scratch is not None:
            return SpilledEdgeSorter(
                scratch,
                counts,
                shift,
                first=first,
                rows=last - first,
                nodes=nodes,
                weighted=edges.weighted,
                features=features,
            )
        return EdgeSorter(
            counts,
            shift,
            first=first,
            rows=last - first,
            nodes=nodes,
            weighted=edges.weighted,
            features=features,
        )

    if world == 1:
        # All rows are ours, so the histogram's buckets are parts of the sorter's.
        step = 1 << (shift - edges.shift)
        ours = sorter(np.add.reduceat(edges.histogram, np.arange(0, buckets * step, step)))
        _take_all(edges, ours)
        return ours
    plan = _plan_rounds(chunks, round_edges(world, features))
    rounds = max(exchange.all_objects(len(plan)))
    sent = np.zeros((world, rounds + buckets), np.int64)
    destinations = _Destinations(chunks)
    for number, parts in enumerate(plan):
        counts = np.zeros((world, buckets), np.int64)
        for part in parts:
            count_edges(destinations.of(*part), bounds, shift, counts)
        sent[:, number] = counts.sum(1)
        sent[:, rounds:] += counts
    channel = exchange.channel("world", "shuffle", relations=[relation])
    received = channel.sizes(torch.from_numpy(sent)).numpy()
    ours = sorter(received[:, rounds:].sum(0))
    sizes = sent[:, :rounds].T, received[:, :rounds].T
    carried = _Carried(edges.weighted, features)
    _Rounds(channel, ranges, nodes, *sizes, carried).run(_taken(chunks, plan, rounds), ours)
    edges.close()
    return ours


def _take_all(edges: Edges, sorter: AnySorter) -> None:
    """All edges of the only rank; of those on disk a chunk is in memory at a time."""
    if edges.log is None and isinstance(sorter, EdgeSorter):
        sorter.add_chunks([_ends(chunk.load()) for chunk in _popped(edges.chunks)])
        return
    for chunk in _popped(edges.chunks):
        sorter.add_chunks([_ends(chunk.load())])
    edges.close()


def _popped(chunks: list[StoredChunk]) -> Iterator[StoredChunk]:
    """The chunks, each of which is let go as it is taken."""
    chunks.reverse()
    while chunks:
        yield chunks.pop()


def _ends(chunk: EdgeChunk) -> Chunk:
    return chunk.destination, chunk.source, chunk.weight, chunk.features


class _Destinations:
    """Destinations of parts of chunks that follow each other; each chunk is read once."""

    def __init__(self, chunks: list[StoredChunk]) -> None:
        self._chunks, self._number = chunks, -1
        self._read: npt.NDArray[np.integer] = np.empty(0, np.int32)

    def of(self, number: int, start: int, stop: int) -> npt.NDArray[np.integer]:
        if number != self._number:
            self._number, self._read = number, self._chunks[number].destination
        return self._read[start:stop]


def _plan_rounds(chunks: list[StoredChunk], size: int) -> list[list[tuple[int, int, int]]]:
    """For each round (chunk, first, last) of its edges, ``size`` in all but the last."""
    plan: list[list[tuple[int, int, int]]] = []
    room = 0
    for number, chunk in enumerate(chunks):
        at, length = 0, len(chunk)
        while at < length:
            if room == 0:
                plan.append([])
                room = size
            stop = min(length, at + room)
            plan[-1].append((number, at, stop))
            room -= stop - at
            at = stop
    return plan


def _taken(
    chunks: list[StoredChunk], plan: list[list[tuple[int, int, int]]], rounds: int
) -> Iterator[list[EdgeChunk]]:
    """The edges of each round; a chunk is let go with its last."""
    held: list[StoredChunk | None] = [*chunks]
    chunks.clear()
    for parts in plan:
        taken = []
        for number, start, stop in parts:
            chunk = held[number]
            assert chunk is not None
            loaded = chunk.load()
            taken.append(loaded.part(slice(start, stop)))
            held[number] = loaded if stop < len(loaded) else None
        yield taken
    for _ in range(rounds - len(plan)):
        yield []


@dataclass(frozen=True)
class _Carried:
    """What travels with the packed edges."""

    weighted: bool
    features: int

    def buffers(self, edges: int) -> list[torch.Tensor]:
        """One for the keys and each thing that is carried."""
        found = [torch.empty(edges, dtype=torch.int64)]
        if self.weighted:
            found.append(torch.empty(edges))
        if self.features:
            found.append(torch.empty(edges, self.features))
        return found

    def named(self, buffers: list[torch.Tensor]) -> tuple[_Array, _Array | None, _Array | None]:
        """Keys, weights and features of some buffers."""
        keys, *rest = (tensor.numpy() for tensor in buffers)
        weights = rest.pop(0) if self.weighted else None
        return keys, weights, rest.pop(0) if self.features else None


_Array = npt.NDArray[Any]


class _Rounds:
    """The rounds of one rank; two are in flight at a time, each with buffers of its own.

    Args:
        outgoing, incoming: [rounds, world] edges for and from each rank.
    """

    def __init__(
        self,
        channel: Channel,
        ranges: RowRanges,
        nodes: int,
        outgoing: npt.NDArray[np.int64],
        incoming: npt.NDArray[np.int64],
        carried: _Carried,
    ) -> None:
        self.channel, self.nodes, self.carried = channel, nodes, carried
        self.bounds = np.array(ranges.workers, np.int64)
        self.outgoing, self.incoming = outgoing, incoming.copy()
        self.incoming[:, channel.axis.index] = 0
        most = [int(counts.sum(1).max(initial=0)) for counts in (outgoing, self.incoming)]
        self.send, self.receive = ([carried.buffers(size) for _ in range(2)] for size in most)

    def run(self, parts: Iterator[list[EdgeChunk]], sorter: AnySorter) -> None:
        """Send and receive all rounds. Collective: every rank must call."""
        before: tuple[int, Pending] | None = None
        for number, chunks in enumerate(parts):
            self._pack(number, chunks, sorter)
            pending = self._post(number)
            if before is not None:
                self._unpack(*before, sorter)
            before = number, pending
        if before is not None:
            self._unpack(*before, sorter)

    def _pack(self, number: int, chunks: list[EdgeChunk], sorter: AnySorter) -> None:
        """Fill the send buffer by owner; what is ours already goes to the sorter."""
        keys, weights, features = self.carried.named(self.send[number % 2])
        ends = np.cumsum(self.outgoing[number])
        cursors = ends - self.outgoing[number]
        for chunk in chunks:
            partition_edges(
                chunk.destination,
                chunk.source,
                chunk.weight,
                self.bounds,
                self.nodes,
                cursors=cursors,
                keys=keys,
                out_weights=weights,
                features=chunk.features,
                out_features=features,
            )
        own = self.channel.axis.index
        mine = slice(ends[own] - self.outgoing[number, own], ends[own])
        sorter.add_keys(keys[mine], *(None if x is None else x[mine] for x in (weights, features)))

    def _post(self, number: int) -> Pending:
        others = self.channel.axis.others()
        sends, receives = [], []
        for buffer in self.send[number % 2]:
            counts = self.outgoing[number].tolist()
            parts = buffer[: sum(counts)].split(counts)
            sends += [(i, parts[i]) for i in others]
        for buffer in self.receive[number % 2]:
            counts = self.incoming[number].tolist()
            parts = buffer[: sum(counts)].split(counts)
            receives += [(i, parts[i]) for i in others]
        return self.channel.start(sends, receives)

    def _unpack(self, number: int, pending: Pending, sorter: AnySorter) -> None:
        pending.wait()
        size = int(self.incoming[number].sum())
        received = [tensor[:size] for tensor in self.receive[number % 2]]
        sorter.add_keys(*self.carried.named(received))
