"""SPMM: sums and maxima over in-neighbours, with sources fetched in bounded groups.

The local group runs first, while the first groups travel; then ``depth`` groups are on their
way while one is computed (Deal, section 3.5, Figs. 11 and 12). Per use a worker receives
``unique * width`` values, nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
from embertide.primitives.exchange import Exchange, Pending
from embertide.primitives.sources import Sources
from embertide.telemetry.recorder import Label, computing

Pick = Callable[[int, torch.Tensor], torch.Tensor]
"""(axis index of the asking peer, our row numbers) -> [k, width of that peer] to send."""


@dataclass(frozen=True)
class Arrived:
    """One group whose sources are at hand.

    Attributes:
        block: its non-zeros.
        source: [s, width] what ``block.indices`` point into.
        slots: the group's slots; None for the local group.
    """

    block: Block
    source: torch.Tensor
    slots: slice | None
    label: Label


def arriving(
    exchange: Exchange,
    label: Label,
    sources: Sources,
    local: torch.Tensor,
    pick: Pick,
    *,
    width: int,
    depth: int,
) -> Iterator[Arrived]:
    """Yield the local group, then the remote ones in order, fetching ahead.

    Between two yields the caller computes; that time is counted beside the transfers.

    Args:
        local: what the local block's indices point into, [s, width].
        pick: makes what a peer gets.
        width: columns received.
        depth: groups on their way at a time, at least 1.
    """
    ahead: deque[tuple[int, torch.Tensor, Pending]] = deque()
    rounds = iter(range(sources.rounds))
    fetch = _Fetch(exchange, label, sources, pick, width, local.dtype)
    ahead.extend(map(fetch, islice(rounds, depth)))
    with computing(exchange.recorder, label):
        yield Arrived(sources.local, local, None, label)
    while ahead:
        number, buffer, pending = ahead.popleft()
        pending.wait()
        ahead.extend(map(fetch, islice(rounds, 1)))
        if number < len(sources.remote):
            here = replace(label, group=number + 1)
            with computing(exchange.recorder, here):
                slots = slice(*sources.group(number))
                yield Arrived(sources.remote[number], buffer, slots, here)


@dataclass(frozen=True)
class _Fetch:
    """Posts the transfers of one round: our group's rows in, peers' groups out."""

    exchange: Exchange
    label: Label
    sources: Sources
    pick: Pick
    width: int
    dtype: torch.dtype

    def __call__(self, number: int) -> tuple[int, torch.Tensor, Pending]:
        axis, device = self.sources.axis, self.exchange.device
        start, stop = self.sources.group(number)
        buffer = torch.empty(stop - start, self.width, dtype=self.dtype, device=device)
        receives = [
            (axis.ranks[i], buffer[a - start : b - start])
            for i, a, b in self.sources.incoming(number)
        ]
        sends = [(axis.ranks[i], self.pick(i, rows)) for i, rows in self.sources.outgoing(number)]
        label = replace(self.label, group=number + 1)
        return number, buffer, self.exchange.start(label, sends, receives)


@dataclass(frozen=True)
class Operand:
    """The dense source of an aggregation, as its holder sees it.

    Attributes:
        local: [s, width] what the local block's indices point into.
        pick: what a peer that asks for rows of ours gets.
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
    exchange: Exchange,
    label: Label,
    sources: Sources,
    operand: Operand,
    *,
    depth: int,
    reduce: str = "sum",
    weighted: bool = False,
) -> torch.Tensor:
    """out[i] = sum (or max) over in-edges j -> i of w_ij * scale_j * x[j].

    Every worker of the sources' axis must call. Rows without in-edges are zero.

    Args:
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
    groups = arriving(
        exchange, label, sources, operand.local, operand.picked, width=width, depth=depth
    )
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
