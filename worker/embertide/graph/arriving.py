"""Rows of sources as they arrive: in bounded groups, or read in place.

The local group comes first, while the first groups travel; then ``depth`` messages are on their
way while one is computed (Deal, section 3.5, Figs. 11 and 12). A message has the rows of one group,
or of several where :mod:`embertide.graph.merging` finds that faster. Per use a rank receives
``unique * width`` values, nothing else.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

import torch

from embertide.footprint import FLOAT_BYTES
from embertide.graph.exchange import Buffers, Channel, Pending
from embertide.graph.ghosts import GhostSources, ghosts_of
from embertide.graph.in_place import shared
from embertide.graph.sources import Sources
from embertide.kernels.ghosts import on_ghosts
from embertide.kernels.rows import gather_rows


@dataclass(frozen=True)
class Pick:
    """What is sent to a peer that requests rows of ours.

    Attributes:
        of: axis index of the peer -> [n, width of that peer] our rows, in its columns.
        scale: [n] factor of each row, applied on the way, or None.
    """

    of: Callable[[int], torch.Tensor]
    scale: torch.Tensor | None = None


@dataclass(frozen=True)
class Arrived:
    """One group whose sources have been received.

    Attributes:
        source: [s, width] what the indices of its block point into.
        slots: the group's slots; None for the local group.
        number: of the remote group; None for the local one.
        scale: [s] factors of the sources that are still to be applied, or None.
    """

    source: torch.Tensor
    slots: slice | None
    number: int | None = None
    scale: torch.Tensor | None = None


def _ghosts_arriving(
    channel: Channel,
    sources: Sources,
    local: torch.Tensor,
    pick: Pick,
    *,
    width: int,
    depth: int,  # noqa: ARG001
    reuse: bool = False,  # noqa: ARG001
) -> Iterator[Arrived]:
    """One group for all, while the buffers of as many are there as are at a time."""
    assert isinstance(sources, GhostSources)
    exchange, scaled = ghosts_of(channel), pick.scale is not None
    exchange.moves.append(sources.move(width, channel.label.primitive, scaled=scaled))
    buffers = [exchange.buffer(sources.in_flight(width))]
    if scaled and channel.in_place and sources.union.graph > 1:
        # Factors are copied to where peers can read them.
        buffers.append(exchange.buffer(FLOAT_BYTES * sources.union.columns / sources.union.graph))
    yield Arrived(local, None, scale=pick.scale)
    if sources.remote:
        yield Arrived(local, slice(0, 0), 0)


@on_ghosts(_ghosts_arriving)
def arriving(
    channel: Channel,
    sources: Sources,
    local: torch.Tensor,
    pick: Pick,
    *,
    width: int,
    depth: int,
    reuse: bool = False,
) -> Iterator[Arrived]:
    """Yield the local group, then the remote ones in order, fetching ahead.

    Between two yields the caller computes; that time is counted beside the transfers. Sends are
    waited for when their buffer is needed again, a round after the peers need them.
    Collective: every rank of the sources' axis must call.

    Args:
        channel: of the sources' axis.
        local: what the local block's indices point into, [s, width].
        pick: what is sent to a peer that requests rows of ours.
        width: columns received.
        depth: messages in flight at a time, at least 1.
        reuse: a group's ``source`` is overwritten once the caller asks for the next; without it,
            each has memory of its own.
    """
    if sources.window is not None:
        yield from _in_place(channel, sources, local, pick.scale)
        return
    pace = channel.exchange.merging.pace(channel, depth)
    ahead: deque[_Message] = deque()
    computed: Pending | None = None
    spans = enumerate(pace.spans(sources.rounds))
    # One is being computed, or still being read by a peer, while `depth` are in flight.
    buffers = pace.depth + 1
    incoming = Buffers(buffers if reuse else 0, local)
    fetch = _Fetch(channel, sources, pick, width, incoming, Buffers(buffers, local))
    ahead.extend(map(fetch, islice(spans, pace.depth)))
    apart = Buffers(1 if reuse else 0, local)
    with channel.computing():
        yield Arrived(local, None, scale=pick.scale)
    while ahead:
        start = time.perf_counter()
        message = ahead.popleft()
        message.pending.received()
        if computed is not None:
            computed.wait()
        computed = message.pending
        ahead.extend(map(fetch, islice(spans, 1)))
        for number in range(message.first, min(message.last, len(sources.remote))):
            with channel.group(number + 1).computing():
                slots, rows = slice(*sources.group(number)), message.rows(sources, number, apart)
                yield Arrived(rows, slots, number)
        pace.took(message.number, message.last - message.first, time.perf_counter() - start)
    if computed is not None:
        computed.wait()


def _in_place(
    channel: Channel, sources: Sources, rows: torch.Tensor, scale: torch.Tensor | None
) -> Iterator[Arrived]:
    """Yield all non-zeros at once, over the rows of all ranks; the caller counts what it reads."""
    tensors = [rows] if scale is None else [rows, scale]
    with every_row(channel, sources, tensors) as (source, *scales), channel.computing():
        yield Arrived(source, None, scale=scales[0] if scales else None)


@contextmanager
def _every_ghost(
    channel: Channel, sources: Sources, tensors: Sequence[torch.Tensor]
) -> Iterator[list[torch.Tensor]]:
    assert isinstance(sources, GhostSources)
    ghosts_of(channel).moves.append(sources.move(tensors[0].shape[1], "spmm", scaled=False))
    yield list(tensors)


@on_ghosts(_every_ghost)
@contextmanager
def every_row(
    channel: Channel, sources: Sources, tensors: Sequence[torch.Tensor]
) -> Iterator[list[torch.Tensor]]:
    """Tensors [s, width] that the local block's indices point into, with the rows of all ranks.

    They are ours where no rows are read in place; the caller counts what it reads. Collective:
    every rank of the sources' axis must call.
    """
    if sources.window is None:
        yield list(tensors)
        return
    with shared(channel, tensors) as seen:
        yield [one.window(sources.window) for one in seen]


def reduced(
    channel: Channel, sources: Sources, number: int | None, *tensors: torch.Tensor | None
) -> None:
    """Count that the non-zeros of a group were gone over, and the rows that were read in place.

    Args:
        number: of the remote group; None for the local one.
        tensors: [s, ...] of whose rows each non-zero read one.
    """
    block = sources.local if number is None else sources.remote[number]
    channel.exchange.recorder.reduced(block.nnz)
    row = sum(t.element_size() * math.prod(t.shape[1:]) for t in tensors if t is not None)
    if number is None:
        channel.read_in_place(sources.read_in_place * row)


@dataclass(frozen=True)
class _Message:
    """Rows of our groups first..last in flight, and those of peers' groups.

    Attributes:
        buffer: [rows, width] peer by peer.
    """

    number: int
    first: int
    last: int
    buffer: torch.Tensor
    pending: Pending

    def rows(self, sources: Sources, number: int, apart: Buffers) -> torch.Tensor:
        """[s, width] those of one group, put together where they lie apart."""
        pieces = [self.buffer[a:b] for a, b in sources.pieces(number, self.first, self.last)]
        if len(pieces) == 1:
            return pieces[0]
        if self.last - self.first == 1:
            return self.buffer
        slots, width = sum(map(len, pieces)), self.buffer.shape[1]
        return torch.cat(pieces, out=apart.take(0, slots * width).view(slots, width))


@dataclass(frozen=True)
class _Fetch:
    """Posts the transfers of one message from and to each peer: rows of groups in, and out."""

    channel: Channel
    sources: Sources
    pick: Pick
    width: int
    incoming: Buffers
    outgoing: Buffers

    def __call__(self, message: tuple[int, tuple[int, int]]) -> _Message:
        number, (first, last) = message
        incoming = self.sources.incoming(first, last)
        rows = incoming[-1][2] if incoming else 0
        buffer = self.incoming.take(number, rows * self.width).view(rows, self.width)
        receives = [(i, buffer[a:b]) for i, a, b in incoming]
        sends = self._sends(number, first, last)
        pending = self.channel.group(first + 1).start(sends, receives)
        return _Message(number, first, last, buffer, pending)

    def _sends(self, number: int, first: int, last: int) -> list[tuple[int, torch.Tensor]]:
        """Every peer's rows of some rounds, in one buffer."""
        wanted = [(i, rows, self.pick.of(i)) for i, rows in self.sources.outgoing(first, last)]
        sizes = [len(rows) * matrix.shape[1] for _, rows, matrix in wanted]
        parts = self.outgoing.take(number, sum(sizes)).split(sizes)
        sends = []
        for (i, rows, matrix), part in zip(wanted, parts, strict=True):
            out = part.view(len(rows), matrix.shape[1])
            sends.append((i, gather_rows(matrix, rows, scale=self.pick.scale, out=out)))
        return sends


@dataclass(frozen=True)
class Operand:
    """The dense source of an aggregation, as its holder sees it.

    Attributes:
        local: [s, width] what the local block's indices point into.
        pick: what is sent to a peer that requests rows of ours.
        scale: [s'] factor of each of our rows, or None: applied to what is sent and to the
            local non-zeros, so that no scaled copy of the tensor exists.
    """

    local: torch.Tensor
    pick: Pick
    scale: torch.Tensor | None = None

    @property
    def picked(self) -> Pick:
        """Rows to send, scaled."""
        return replace(self.pick, scale=self.scale)


def tile_operand(tile: torch.Tensor, scale: torch.Tensor | None = None) -> Operand:
    """A tensor in the ``tile`` layout: peers on the graph axis share our columns."""
    return Operand(tile, Pick(lambda _peer: tile), scale)


def arriving_rows(
    channel: Channel, sources: Sources, rows: torch.Tensor, depth: int
) -> Iterator[Arrived]:
    """As :func:`arriving`, of a tensor that every peer holds its rows of, in the same columns.

    A group's ``source`` is overwritten once the caller asks for the next. Collective: every rank
    of the sources' axis must call.
    """
    pick = tile_operand(rows).pick
    return arriving(channel, sources, rows, pick, width=rows.shape[1], depth=depth, reuse=True)
