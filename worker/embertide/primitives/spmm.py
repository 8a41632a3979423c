"""SPMM: sums and maxima over in-neighbours, with sources fetched in bounded groups.

The local group runs first, while the first groups travel; then ``depth`` groups are on their
way while one is computed (Deal, section 3.5, Figs. 11 and 12). Per use a rank receives
``unique * width`` values, nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch

from embertide.kernels.block import (
    Block,
    Chunk,
    EdgeWeights,
    add_rows,
    max_rows,
    set_rows,
    stored_weights,
)
from embertide.primitives.exchange import Channel, Pending
from embertide.primitives.sources import Sources

Pick = Callable[[int, torch.Tensor], torch.Tensor]
"""(axis index of the requesting peer, our row numbers) -> [k, width of that peer] to send."""


@dataclass(frozen=True)
class Arrived:
    """One group whose sources have been received.

    Attributes:
        block: its non-zeros.
        source: [s, width] what ``block.indices`` point into.
        slots: the group's slots; None for the local group.
    """

    block: Block
    source: torch.Tensor
    slots: slice | None


def arriving(
    channel: Channel,
    sources: Sources,
    local: torch.Tensor,
    pick: Pick,
    *,
    width: int,
    depth: int,
) -> Iterator[Arrived]:
    """Yield the local group, then the remote ones in order, fetching ahead.

    Between two yields the caller computes; that time is counted beside the transfers.
    Collective: every rank of the sources' axis must call.

    Args:
        channel: of the sources' axis.
        local: what the local block's indices point into, [s, width].
        pick: what is sent to a peer that requests rows of ours.
        width: columns received.
        depth: groups in flight at a time, at least 1.
    """
    ahead: deque[tuple[int, torch.Tensor, Pending]] = deque()
    rounds = iter(range(sources.rounds))
    fetch = _Fetch(channel, sources, pick, width, local.dtype)
    ahead.extend(map(fetch, islice(rounds, depth)))
    with channel.computing():
        yield Arrived(sources.local, local, None)
    while ahead:
        number, buffer, pending = ahead.popleft()
        pending.wait()
        ahead.extend(map(fetch, islice(rounds, 1)))
        if number < len(sources.remote):
            with channel.group(number + 1).computing():
                slots = slice(*sources.group(number))
                yield Arrived(sources.remote[number], buffer, slots)


@dataclass(frozen=True)
class _Fetch:
    """Posts the transfers of one round: our group's rows in, peers' groups out."""

    channel: Channel
    sources: Sources
    pick: Pick
    width: int
    dtype: torch.dtype

    def __call__(self, number: int) -> tuple[int, torch.Tensor, Pending]:
        start, stop = self.sources.group(number)
        shape = stop - start, self.width
        buffer = torch.empty(shape, dtype=self.dtype, device=self.channel.device)
        receives = [(i, buffer[a - start : b - start]) for i, a, b in self.sources.incoming(number)]
        sends = [(i, self.pick(i, rows)) for i, rows in self.sources.outgoing(number)]
        return number, buffer, self.channel.group(number + 1).start(sends, receives)


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

    def picked(self, peer: int, rows: torch.Tensor) -> torch.Tensor:
        """Rows to send, scaled."""
        sent = self.pick(peer, rows)
        if self.scale is not None:
            sent = sent * self.scale[rows].unsqueeze(1)
        return sent


def tile_operand(tile: torch.Tensor, scale: torch.Tensor | None = None) -> Operand:
    """A tensor in the ``tile`` layout: peers on the graph axis share our columns."""
    return Operand(tile, lambda _peer, rows: tile.index_select(0, rows), scale)


def spmm(
    channel: Channel,
    sources: Sources,
    operand: Operand,
    *,
    depth: int,
    reduce: str = "sum",
    weighted: bool = False,
) -> torch.Tensor:
    """out[i] = sum (or max) over in-edges j -> i of w_ij * scale_j * x[j].

    Rows without in-edges are zero. Collective: every rank of the sources' axis must call.

    Args:
        channel: of the sources' axis.
        sources: built for the layout that ``operand`` is in.
        reduce: ``sum`` or ``max``.
        weighted: use the graph's stored weights.

    Returns:
        [outputs, width] in the ``tile`` layout.
    """
    width = operand.local.shape[1]
    fill = 0.0 if reduce == "sum" else float("-inf")
    out = operand.local.new_empty(sources.outputs, width)
    if reduce != "sum":
        out.fill_(fill)
    groups = arriving(channel, sources, operand.local, operand.picked, width=width, depth=depth)
    for arrived in groups:
        scale = operand.scale if arrived.slots is None else None
        weights = _weights(weighted, scale)
        if reduce == "max":
            max_rows(out, arrived.block, arrived.source, weights)
        elif arrived.slots is None:
            set_rows(out, arrived.block, arrived.source, weights)
        else:
            add_rows(out, arrived.block, arrived.source, weights)
    if reduce == "max":
        out.masked_fill_(out == fill, 0.0)
    return out


def _weights(weighted: bool, scale: torch.Tensor | None) -> EdgeWeights:
    """Stored weights, source factors, both or neither."""

    def weights(chunk: Chunk) -> torch.Tensor | None:
        stored = stored_weights(chunk) if weighted else None
        if scale is None:
            return stored
        factor = scale.index_select(0, chunk.indices)
        return factor if stored is None else factor.mul_(stored)

    return weights
