"""GEMM between layouts: rings that turn tiles into rows while multiplying, and back.

``tile`` -> ``rows`` receives the columns of our rows that the other slices hold, and multiplies
some whole rows while the next travel; ``rows`` -> ``tile`` sends each slice its columns. Both move
N*D/(P*M*M) * (M - 1) values per rank (Deal, section 3.4, Fig. 7b, Table 1); no [N/P, D'] partial
product ever exists. With M = 1 both directions are free.

Deal's ring brings one slice after the other. Here all M - 1 slices of some rows come before the
next rows do: a product of whole rows writes its result once, where M products of slices read and
write it M times, and every peer sends in each round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch

from embertide.footprint import FLOAT_BYTES
from embertide.graph.exchange import Buffers, Channel, Pending
from embertide.graph.ghosts import GhostRanges, ghosts_of
from embertide.graph.in_place import shared
from embertide.graph.moves import Conversion
from embertide.grid import Axis, ColumnSlices, RowRanges
from embertide.kernels.epilogue import Epilogue
from embertide.kernels.ghosts import on_ghosts
from embertide.kernels.memory import empty_as
from embertide.kernels.spmm import multiply
from embertide.layouts import Layout

ROUND_BYTES = 4 << 20
"""Bytes of the whole rows that travel in a round: what is in flight stays small however many rows a
worker has."""
PANEL_BYTES = 1 << 20
"""Bytes of whole rows that are put together and used at a time: they stay in the cache."""

Parts = tuple[slice, list[torch.Tensor]]
"""Some rows of our sub-range, and their columns slice by slice."""


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
    out = empty_as(x, x.shape[0], len(weight), dtype=dtype) if onto is None else onto
    multiply(out, x, weight, last, accumulate=onto is not None)
    return out


def _count_ring(channel: Channel, ranges: RowRanges, width: int, to: Layout = "rows") -> None:
    assert isinstance(ranges, GhostRanges)
    move = Conversion(channel.label.layer, ranges.node_type, width, channel.label.primitive, to)
    ghosts_of(channel).moves.append(move)


def _ring_of_ghosts(
    channel: Channel,
    ranges: RowRanges,
    tile: torch.Tensor,
    weight: torch.Tensor,
    last: Epilogue,  # noqa: ARG001
    onto: torch.Tensor | None = None,
) -> torch.Tensor:
    _count_ring(channel, ranges, weight.shape[1])
    rows = tile.shape[0] / channel.grid.feature
    made = ghosts_of(channel).tensor
    return made(rows, len(weight), dtype=weight.dtype) if onto is None else onto


@on_ghosts(_ring_of_ghosts)
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
    width = weight.shape[1]
    slices = ColumnSlices(width, channel.grid.feature)
    start, stop = ranges.within(channel.grid.rank)
    out = empty_as(tile, stop - start, len(weight), dtype=weight.dtype) if onto is None else onto
    panel = Buffers(1, weight)
    for span, parts in ring_parts(channel, ranges, tile, slices):
        rows = panel.take(0, len(parts[0]) * width).view(-1, width)
        _put_together(rows, parts, slices)
        multiply(out[span], rows, weight, last.part(span), accumulate=onto is not None)
    return out


def _put_together(out: torch.Tensor, parts: list[torch.Tensor], slices: ColumnSlices) -> None:
    for m, part in enumerate(parts):
        out[:, slice(*slices.bounds(m))] = part


def _ghosts_to_rows(
    channel: Channel,
    ranges: RowRanges,
    tile: torch.Tensor,
    width: int,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    if channel.grid.feature == 1:
        return tile
    _count_ring(channel, ranges, width)
    rows = tile.shape[0] / channel.grid.feature
    return ghosts_of(channel).tensor(rows, width, dtype=dtype or tile.dtype)


@on_ghosts(_ghosts_to_rows)
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
    for span, parts in ring_parts(channel, ranges, tile, slices):
        _put_together(out[span], parts, slices)
    return out


def ring_parts(
    channel: Channel, ranges: RowRanges, tile: torch.Tensor, slices: ColumnSlices
) -> Iterator[Parts]:
    """The rows of our sub-range in order, some at a time, from the tiles of all slices.

    What other ranks hold is read in place where it can be. Else it comes in rounds, one being
    received while the one before is used; its memory is used again after the next one has been
    asked for. The tile must not change before the last round.
    Collective: every rank of the feature axis must call.
    """
    received = _read_in_place if channel.in_place else _received
    panel = max(1, PANEL_BYTES // (FLOAT_BYTES * slices.width))
    for span, parts in received(channel, ranges, tile, slices):
        rows = span.stop - span.start
        step = panel if tile.device.type == "cpu" else rows
        for at in range(0, rows, step):
            some = slice(at, min(at + step, rows))
            with channel.computing():
                yield _moved(some, span.start), [part[some] for part in parts]


def _received(
    channel: Channel, ranges: RowRanges, tile: torch.Tensor, slices: ColumnSlices
) -> Iterator[Parts]:
    """Round after round: the next is asked for before one is waited for."""
    axis, buffers = channel.axis, Buffers(2, tile)
    starts = [ranges.within(rank)[0] for rank in axis.ranks]
    posted: deque[tuple[Parts, list[Pending]]] = deque()
    leaving: list[Pending] = []

    def arrived() -> Parts:
        parts, pending = posted.popleft()
        for transfer in pending:
            transfer.received()
        leaving.extend(pending)
        return parts

    for number, spans in enumerate(_rounds(axis, ranges, slices.width)):
        here = [tile[_moved(span, start)] for span, start in zip(spans, starts, strict=True)]
        parts = _room(buffers, number, here[axis.index], slices, axis.index)
        pending = [
            channel.group(step).start([(target, here[target])], [(origin, parts[origin])])
            for step, target, origin in _steps(axis)
        ]
        posted.append(((spans[axis.index], parts), pending))
        if number:
            yield arrived()
    while posted:
        yield arrived()
    _end(leaving)


def _room(
    buffers: Buffers, number: int, own: torch.Tensor, slices: ColumnSlices, index: int
) -> list[torch.Tensor]:
    """Some rows slice by slice: our columns, and room for those of the others."""
    shapes = [(0 if m == index else len(own), slices.size(m)) for m in range(slices.count)]
    sizes = [rows * columns for rows, columns in shapes]
    blocks = buffers.take(number, sum(sizes)).split(sizes)
    parts = [block.view(shape) for block, shape in zip(blocks, shapes, strict=True)]
    parts[index] = own
    return parts


def _read_in_place(
    channel: Channel, ranges: RowRanges, tile: torch.Tensor, slices: ColumnSlices
) -> Iterator[Parts]:
    """Peers show their tiles, of which the rows of our sub-range are read."""
    first, last = ranges.within(channel.grid.rank)
    others = slices.width - slices.size(channel.axis.index)
    channel.read_in_place((last - first) * others * tile.element_size())
    with shared(channel, [tile]) as (seen,):
        tiles = [seen.of(m, slices.size(m))[first:last] for m in range(channel.axis.size)]
        yield slice(0, last - first), tiles


def round_rows(width: int) -> int:
    """Whole rows of a worker that travel in a round."""
    return max(1, ROUND_BYTES // (FLOAT_BYTES * width))


def _rounds(axis: Axis, ranges: RowRanges, width: int) -> Iterator[list[slice]]:
    """The rows of each rank's sub-range, counted from its first, that travel in a round."""
    sizes = [stop - start for start, stop in map(ranges.within, axis.ranks)]
    step = round_rows(width)
    for at in range(0, max(sizes), step):
        yield [slice(min(at, size), min(at + step, size)) for size in sizes]


def _steps(axis: Axis) -> Iterator[tuple[int, int, int]]:
    """(ring step, whose rows we have columns of, who has columns of ours) for a ring's steps."""
    for step in range(1, axis.size):
        yield step, (axis.index + step) % axis.size, (axis.index - step) % axis.size


def _ghosts_to_tile(channel: Channel, ranges: RowRanges, rows: torch.Tensor) -> torch.Tensor:
    feature = channel.grid.feature
    if feature == 1:
        return rows
    _count_ring(channel, ranges, rows.shape[1], "tile")
    shape = rows.shape[0] * feature, rows.shape[1] / feature
    return ghosts_of(channel).tensor(*shape, dtype=rows.dtype)


@on_ghosts(_ghosts_to_tile)
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
    flying: deque[list[Pending]] = deque()
    # The ring's rounds with both ends exchanged: we send rows of ours, and receive theirs.
    for number, spans in enumerate(_rounds(axis, ranges, rows.shape[1])):
        if number >= 2:
            _end(flying.popleft())
        ours = rows[spans[axis.index]]
        parts = _room(buffers, number, ours[:, own], slices, axis.index)
        flying.append([])
        for step, origin, target in _steps(axis):
            sent = parts[target].copy_(ours[:, slice(*slices.bounds(target))])
            received = out[_moved(spans[origin], ranges.within(axis.ranks[origin])[0])]
            transfer = channel.group(step).start([(target, sent)], [(origin, received)])
            flying[-1].append(transfer)
    for pending in flying:
        _end(pending)
    return out


def _moved(span: slice, by: int) -> slice:
    return slice(span.start + by, span.stop + by)


def _end(transfers: list[Pending]) -> None:
    for transfer in transfers:
        transfer.wait()


def _columns_in_place(
    channel: Channel, ranges: RowRanges, rows: torch.Tensor, own: slice, out: torch.Tensor
) -> None:
    """The other sub-ranges' part of :func:`rows_to_tile`, where peers show their rows."""
    axis, width = channel.axis, rows.shape[1]
    channel.read_in_place((len(out) - len(rows)) * out.shape[1] * rows.element_size())
    with shared(channel, [rows]) as (seen,), channel.computing():
        for i in axis.others():
            out[slice(*ranges.within(axis.ranks[i]))] = seen.of(i, width)[:, own]
