"""GEMM between layouts: the ring that turns tiles into rows while multiplying, and back.

``tile`` -> ``rows`` receives, in M - 1 steps, the columns of our rows that the other slices
hold and multiplies each block with its rows of the weight while the next travels; ``rows`` ->
``tile`` sends each slice its columns. Both move N*D/(P*M*M) * (M - 1) values per rank
(Deal, section 3.4, Fig. 7b, Table 1); no [N/P, D'] partial product ever exists. With M = 1
both directions are free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

import torch

from embertide.grid import ColumnSlices, Grid, RowRanges
from embertide.kernels.memory import empty_as
from embertide.kernels.spmm import NOTHING, Epilogue, multiply
from embertide.layouts import Layout
from embertide.primitives.buffers import Buffers
from embertide.primitives.exchange import Channel
from embertide.primitives.in_place import shown
from embertide.primitives.pending import Pending

BLOCK_ROWS = 1 << 14
"""Rows sent at a time: what is in flight stays small however many rows a worker has."""
IN_PLACE_ROWS = 1 << 12
"""Rows of all slices that are used one after the other where they are read in place: what is made
of them stays in the cache meanwhile."""


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    last: Epilogue,
    onto: torch.Tensor | None = None,
    *,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """epilogue(x @ weight.T) for a tensor with all its columns, in any row order.

    Args:
        onto: [n, D'] what the product is added to, before the epilogue, and where the result is.
        dtype: of the result, where there is nothing that it is added to.
    """
    out = empty_as(x, len(x), len(weight), dtype=dtype) if onto is None else onto
    multiply(out, x, weight, last, accumulate=onto is not None)
    return out


def ring_gemm(
    channel: Channel,
    ranges: RowRanges,
    tile: torch.Tensor,
    weight: torch.Tensor,
    last: Epilogue,
    onto: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiply a tile with a weight into the ``rows`` layout.

    Collective: every rank of the feature axis must call.

    Args:
        channel: of the feature axis.
        tile: [N/P, D/M], in the type in which it travels.
        weight: [D', D], on every rank.
        last: bias and activation of the finished rows.
        onto: as in :func:`linear`.

    Returns:
        [N/(P*M), D'].
    """
    slices = ColumnSlices(weight.shape[1], channel.grid.feature)
    start, stop = ranges.within(channel.grid.rank)
    out = empty_as(tile, stop - start, len(weight), dtype=weight.dtype) if onto is None else onto
    axis = channel.axis
    final = (axis.index + 1) % axis.size
    factors = [weight[:, slice(*slices.bounds(m))].contiguous() for m in range(axis.size)]
    for m, span, block in ring_blocks(channel, ranges, tile, slices):
        done = last.part(span) if m == final else NOTHING
        first = m == axis.index and onto is None
        multiply(out[span], block, factors[m], done, accumulate=not first)
    return out


def tile_to_rows(
    channel: Channel,
    ranges: RowRanges,
    tile: torch.Tensor,
    width: int,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """[N/P, D/M] -> [N/(P*M), D] on the feature axis; the tile itself when M is 1.

    Collective: every rank of the feature axis must call.

    Args:
        dtype: of the rows; None: that of the tile, in which it travels.
    """
    if channel.grid.feature == 1:
        return tile
    slices = ColumnSlices(width, channel.grid.feature)
    start, stop = ranges.within(channel.grid.rank)
    out = empty_as(tile, stop - start, width, dtype=dtype)
    for m, span, block in ring_blocks(channel, ranges, tile, slices):
        out[span, slice(*slices.bounds(m))] = block
    return out


def ring_blocks(
    channel: Channel,
    ranges: RowRanges,
    tile: torch.Tensor,
    slices: ColumnSlices,
) -> Iterator[tuple[int, slice, torch.Tensor]]:
    """(slice m, rows of our sub-range, their columns of that slice), ours first.

    What other ranks hold is read in place where it can be, ``IN_PLACE_ROWS`` of all slices at a
    time, the ring's next rank last. Else ours come as a whole, and the others' in blocks of
    ``BLOCK_ROWS`` rows, one being received while the one before is used; a block is overwritten
    after the next one has been asked for. The tile must not change before the last block.
    Collective: every rank of the feature axis must call.
    """
    if channel.in_place:
        yield from _blocks_in_place(channel, ranges, tile, slices)
        return
    grid, axis = channel.grid, channel.axis
    first, last = ranges.within(grid.rank)
    ahead: deque[tuple[int, slice, torch.Tensor, Pending]] = deque()
    posts = enumerate(_ring_rounds(grid, ranges))
    buffers, leaving = Buffers(2, tile), []

    def post(
        number: int, work: tuple[int, slice, slice]
    ) -> tuple[int, slice, torch.Tensor, Pending]:
        step, outgoing, incoming = work
        target, origin = (axis.index + step) % axis.size, (axis.index - step) % axis.size
        base = ranges.within(axis.ranks[target])[0]
        shape = incoming.stop - incoming.start, slices.size(origin)
        block = buffers.take(number, shape[0] * shape[1]).view(shape)
        pending = channel.group(step).start(
            [(target, tile[base + outgoing.start : base + outgoing.stop])], [(origin, block)]
        )
        return origin, incoming, block, pending

    ahead.extend(post(*work) for work in islice(posts, 1))
    with channel.computing():
        yield axis.index, slice(0, last - first), tile[first:last]
    while ahead:
        origin, span, block, pending = ahead.popleft()
        ahead.extend(post(*work) for work in islice(posts, 1))
        pending.received()
        leaving.append(pending)
        with channel.computing():
            yield origin, span, block
    for pending in leaving:
        pending.wait()


def _blocks_in_place(
    channel: Channel, ranges: RowRanges, tile: torch.Tensor, slices: ColumnSlices
) -> Iterator[tuple[int, slice, torch.Tensor]]:
    """:func:`ring_blocks` where peers show their tiles; they count as if they travelled."""
    axis = channel.axis
    first, last = ranges.within(channel.grid.rank)
    count_conversion(channel, ranges, slices.width, "rows", tile.element_size())
    order = [(axis.index - step) % axis.size for step in range(axis.size)]
    with shown(channel, [tile]) as (seen,):
        tiles = {m: seen.of(m, slices.size(m))[first:last] for m in order}
        for at in range(0, last - first, IN_PLACE_ROWS):
            span = slice(at, min(at + IN_PLACE_ROWS, last - first))
            for m in order:
                with channel.computing():
                    yield m, span, tiles[m][span]


def count_conversion(
    channel: Channel, ranges: RowRanges, width: int, to: Layout, value_bytes: int
) -> None:
    """Count what the ring moves of a tensor on its way to another layout.

    Args:
        channel: of the feature axis.
        width: columns of the tensor.
        value_bytes: of each of its values.
    """
    axis, slices = channel.axis, ColumnSlices(width, channel.axis.size)
    own = slices.size(axis.index)
    for step, there, here in _ring_rounds(channel.grid, ranges):
        peer = slices.size((axis.index - step) % axis.size)
        theirs, ours = (value_bytes * (rows.stop - rows.start) for rows in (there, here))
        sent, received = theirs * own, ours * peer
        if to == "tile":
            sent, received = received, sent
        channel.group(step).count([sent], received)


def _ring_rounds(grid: Grid, ranges: RowRanges) -> Iterator[tuple[int, slice, slice]]:
    """(ring step, rows to send counted from the target's first, rows of ours to receive)."""
    axis = grid.feature_axis
    sizes = [stop - start for start, stop in map(ranges.within, axis.ranks)]
    for step in range(1, axis.size):
        theirs, ours = sizes[(axis.index + step) % axis.size], sizes[axis.index]
        for at in range(0, max(theirs, ours), BLOCK_ROWS):
            outgoing, incoming = (
                slice(min(at, size), min(at + BLOCK_ROWS, size)) for size in (theirs, ours)
            )
            yield step, outgoing, incoming


def rows_to_tile(channel: Channel, ranges: RowRanges, rows: torch.Tensor) -> torch.Tensor:
    """[N/(P*M), D] -> [N/P, D/M] on the feature axis; the rows themselves when M is 1.

    Collective: every rank of the feature axis must call.
    """
    grid, axis = channel.grid, channel.axis
    if grid.feature == 1:
        return rows
    slices = ColumnSlices(rows.shape[1], grid.feature)
    start, stop = ranges.partition(grid.p)
    out = empty_as(rows, stop - start, slices.size(grid.m))
    own = slice(*slices.bounds(grid.m))
    out[slice(*ranges.within(grid.rank))] = rows[:, own]
    if channel.in_place:
        _columns_in_place(channel, ranges, rows, own, out)
        return out
    buffers = Buffers(2, rows)
    flying: deque[Pending] = deque()
    # The ring's rounds with both ends exchanged: we send rows of ours, and receive theirs.
    for number, (step, incoming, outgoing) in enumerate(_ring_rounds(grid, ranges)):
        target, origin = (axis.index - step) % axis.size, (axis.index + step) % axis.size
        base = ranges.within(axis.ranks[origin])[0]
        columns = rows[outgoing, slice(*slices.bounds(target))]
        if number >= 2:
            flying.popleft().wait()
        sent = buffers.take(number, columns.numel()).view(columns.shape).copy_(columns)
        received = out[base + incoming.start : base + incoming.stop]
        flying.append(channel.group(step).start([(target, sent)], [(origin, received)]))
    for pending in flying:
        pending.wait()
    return out


def _columns_in_place(
    channel: Channel, ranges: RowRanges, rows: torch.Tensor, own: slice, out: torch.Tensor
) -> None:
    """The other sub-ranges' part of :func:`rows_to_tile`, where peers show their rows."""
    axis, width = channel.axis, rows.shape[1]
    count_conversion(channel, ranges, width, "tile", rows.element_size())
    with shown(channel, [rows]) as (seen,), channel.computing():
        for i in axis.others():
            out[slice(*ranges.within(axis.ranks[i]))] = seen.of(i, width)[:, own]
