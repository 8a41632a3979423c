"""SPMM: sums and maxima over in-neighbours, with sources fetched in bounded groups.

The local group runs first, while the first groups travel; then ``depth`` groups are on their
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
from embertide.kernels.memory import empty_rows
from embertide.kernels.spmm import (
    NOTHING,
    Epilogue,
    Factors,
    Reduce,
    reduce_linear,
    reduce_rows,
)
from embertide.primitives.exchange import Channel, Pending
from embertide.primitives.gemm import linear
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


@dataclass(frozen=True)
class Reduction:
    """What is computed over the in-edges of each row.

    Attributes:
        weighted: use the graph's stored weights.
        target: [outputs] factors of the results, or None.
    """

    reduce: Reduce = "sum"
    weighted: bool = False
    target: torch.Tensor | None = None

    def factors(self, block: Block, source: torch.Tensor | None) -> Factors:
        """Of a block's non-zeros, with [s] factors of its sources."""
        return Factors(block.weights if self.weighted else None, source, self.target)


def spmm(
    channel: Channel,
    sources: Sources,
    operand: Operand,
    reduction: Reduction,
    last: Epilogue,
    *,
    depth: int,
) -> torch.Tensor:
    """out[i] = epilogue(target_i * sum (or max) over in-edges j -> i of w_ij * scale_j * x[j]).

    The sum of a row without in-edges is zero, and so is its maximum. Collective: every rank of
    the sources' axis must call.

    Args:
        channel: of the sources' axis.
        sources: built for the layout that ``operand`` is in.

    Returns:
        [outputs, width] in the ``tile`` layout.
    """
    width, reduce = operand.local.shape[1], reduction.reduce
    out = empty_rows(operand.local, sources.outputs, width)
    whole = not sources.remote
    # With groups to come the bias goes in first and the activation waits for the last of them.
    first = last if whole else Epilogue(last.bias if reduce == "sum" else None)
    empty = 0.0 if whole else float("-inf")
    groups = arriving(channel, sources, operand.local, operand.picked, width=width, depth=depth)
    for block, source, slots in ((a.block, a.source, a.slots) for a in groups):
        if slots is None:
            factors = reduction.factors(block, operand.scale)
            reduce_rows(out, block, source, factors, first, reduce=reduce, empty=empty)
        else:
            factors = reduction.factors(block, None)
            reduce_rows(out, block, source, factors, NOTHING, reduce=reduce, accumulate=True)
    if whole:
        return out
    if reduce == "max":
        return last.apply_(out.masked_fill_(out == float("-inf"), 0.0))
    return replace(last, bias=None).apply_(out)


def spmm_linear(
    channel: Channel,
    sources: Sources,
    operand: Operand,
    weight: torch.Tensor,
    reduction: Reduction,
    last: Epilogue,
    *,
    depth: int,
) -> torch.Tensor:
    """As :func:`spmm`, multiplied by a weight before the epilogue; for tensors with all columns.

    On an axis of one rank the sums never exist as a whole. Collective: every rank of the
    sources' axis must call.

    Args:
        weight: [D', D].

    Returns:
        [outputs, D'].
    """
    if sources.axis.size > 1:
        sums = spmm(channel, sources, operand, reduction, NOTHING, depth=depth)
        return linear(sums, weight, last)
    out = empty_rows(operand.local, sources.outputs, len(weight))
    block = sources.local
    factors = reduction.factors(block, operand.scale)
    with channel.computing():
        reduce_linear(out, block, operand.local, weight, factors, last, reduce=reduction.reduce)
    return out
