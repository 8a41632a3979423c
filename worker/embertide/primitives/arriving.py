"""Rows of sources as they arrive: in bounded groups, or read in place.

The local group comes first, while the first groups travel; then ``depth`` groups are on their
way while one is computed (Deal, section 3.5, Figs. 11 and 12). Per use a rank receives
``unique * width`` values, nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import torch

from embertide.kernels.block import Block
from embertide.kernels.rows import gather_rows
from embertide.primitives.buffers import Buffers
from embertide.primitives.exchange import Channel, Pending
from embertide.primitives.in_place import WindowRows, shown
from embertide.primitives.sources import Sources


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
        block: its non-zeros.
        source: [s, width] what ``block.indices`` point into.
        slots: the group's slots; None for the local group.
        number: of the remote group; None for the local one.
        scale: [s] factors of the sources that are still to be applied, or None.
    """

    block: Block
    source: torch.Tensor
    slots: slice | None
    number: int | None = None
    scale: torch.Tensor | None = None


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
        depth: groups in flight at a time, at least 1.
        reuse: a group's ``source`` is overwritten once the caller asks for the next; without it,
            each has memory of its own.
    """
    if sources.window is not None:
        yield from _in_place(channel, sources, sources.window, local, pick.scale)
        return
    ahead: deque[tuple[int, torch.Tensor, Pending]] = deque()
    behind: Pending | None = None
    rounds = iter(range(sources.rounds))
    # One is being computed, or still being read by a peer, while `depth` are under way.
    incoming = Buffers(depth + 1 if reuse else 0, local)
    fetch = _Fetch(channel, sources, pick, width, incoming, Buffers(depth + 1, local))
    ahead.extend(map(fetch, islice(rounds, depth)))
    with channel.computing():
        yield Arrived(sources.local, local, None, scale=pick.scale)
    while ahead:
        number, buffer, pending = ahead.popleft()
        pending.received()
        if behind is not None:
            behind.wait()
        behind = pending
        ahead.extend(map(fetch, islice(rounds, 1)))
        if number < len(sources.remote):
            with channel.group(number + 1).computing():
                slots = slice(*sources.group(number))
                yield Arrived(sources.remote[number], buffer, slots, number)
    if behind is not None:
        behind.wait()


def _in_place(
    channel: Channel,
    sources: Sources,
    window: WindowRows,
    rows: torch.Tensor,
    scale: torch.Tensor | None,
) -> Iterator[Arrived]:
    """Yield all non-zeros at once, over the rows of all ranks; they count as if they travelled.

    Rows that are counted are those that sockets would bring: in the same groups, each once.
    """
    row = rows.element_size() * rows.shape[1]
    tensors = [rows] if scale is None else [rows, scale]
    with shown(channel, tensors) as seen:
        for number in range(sources.rounds):
            first, last = sources.group(number)
            sent = [len(asked) * row for _, asked in sources.outgoing(number)]
            channel.group(number + 1).count(sent, (last - first) * row)
        source, *scales = [one.window(window) for one in seen]
        with channel.computing():
            yield Arrived(sources.local, source, None, scale=scales[0] if scales else None)


@dataclass(frozen=True)
class _Fetch:
    """Posts the transfers of one round: our group's rows in, peers' groups out."""

    channel: Channel
    sources: Sources
    pick: Pick
    width: int
    incoming: Buffers
    outgoing: Buffers

    def __call__(self, number: int) -> tuple[int, torch.Tensor, Pending]:
        start, stop = self.sources.group(number)
        buffer = self.incoming.take(number, (stop - start) * self.width)
        buffer = buffer.view(stop - start, self.width)
        receives = [(i, buffer[a - start : b - start]) for i, a, b in self.sources.incoming(number)]
        return number, buffer, self.channel.group(number + 1).start(self._sends(number), receives)

    def _sends(self, number: int) -> list[tuple[int, torch.Tensor]]:
        """Every peer's rows of the round, in one buffer."""
        wanted = [(i, rows, self.pick.of(i)) for i, rows in self.sources.outgoing(number)]
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
