"""Input features, used on the ranks that loaded them.

Feature files come in any order. Instead of redistributing the features first, the first
primitive reads rows where they were loaded and its output goes to the owners of the rows (Deal,
section 3.5, Fig. 13): a linear step multiplies loaded rows and sends the products; an
aggregation requests the rows it needs from their loaders.

Loaded rows are handled in batches: while one travels, the next is computed. On one host nothing is
packed or sent: the owner of a row reads it in the memory of the worker that loaded it, and writes
what it makes of it straight to its place. Both go over some rows at a time: where each row is takes
more memory than a narrow row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch

from embertide.footprint import LOCATION_BYTES
from embertide.graph.arriving import Operand, Pick
from embertide.graph.exchange import Buffers, Channel, Pending
from embertide.graph.ghosts import ghosts_of, landed_ghosts
from embertide.graph.in_place import SharedTensor, WindowRows, shared
from embertide.grid import ColumnSlices, RowRanges
from embertide.kernels.block import Block
from embertide.kernels.counting import count_outside
from embertide.kernels.epilogue import Epilogue, Factors
from embertide.kernels.ghosts import on_ghosts
from embertide.kernels.memory import as_type, empty_as
from embertide.kernels.owners import split_by_owner
from embertide.kernels.rows import gather_rows, scatter_rows
from embertide.kernels.spmm import reduce_linear
from embertide.layouts import Layout, Loaded, Shard

LANDED_ROWS = 1 << 18
"""Rows that are located, read and counted at a time."""
_PLACE_BYTES = 32
"""A row that is read in place: where it was loaded, and in int64 the row to be read."""


def _ghost_operand(
    channel: Channel,
    loaded: Loaded,
    scale: torch.Tensor | None,
    dtype: torch.dtype = torch.float32,
) -> Operand:
    """A mean worker's columns."""
    data, feature = as_type(loaded.data, dtype), channel.grid.feature
    own = (
        data
        if feature == 1
        else ghosts_of(channel).tensor(data.shape[0], loaded.width / feature, dtype=dtype)
    )
    return Operand(own, Pick(lambda _peer: data), scale)


@on_ghosts(_ghost_operand)
def loaded_operand(
    channel: Channel, loaded: Loaded, scale: torch.Tensor | None, dtype: torch.dtype = torch.float32
) -> Operand:
    """Loaded rows as the source of an aggregation; a peer gets the columns of its own slice.

    Args:
        scale: [n] factor per loaded row, or None.
        dtype: in which they are summed and travel.
    """
    grid = channel.grid
    slices, data = ColumnSlices(loaded.width, grid.feature), as_type(loaded.data, dtype)

    def columns(peer: int) -> torch.Tensor:
        return data[:, slice(*slices.bounds(peer % grid.feature))]

    own = slice(*slices.bounds(grid.m))
    return Operand(data[:, own].contiguous(), Pick(columns), scale)


def _land_ghosts(
    channel: Channel,
    ranges: RowRanges,  # noqa: ARG001
    loaded: Loaded,
    compute: Callable[[torch.Tensor], torch.Tensor],
    *,
    layout: Layout,
    width: int,
    batch_rows: int,
    dtype: torch.dtype = torch.float32,
) -> Shard:
    """The batches that are made, two that are sent and two that are received beside the result."""
    out = landed_ghosts(channel, loaded, layout, width, dtype)
    batch = as_type(compute(loaded.data[:batch_rows]), dtype)
    if channel.axis.size > 1:
        ghosts_of(channel).ledger.need(4.0 * batch.numel() * dtype.itemsize)
    return out


@on_ghosts(_land_ghosts)
def land(
    channel: Channel,
    ranges: RowRanges,
    loaded: Loaded,
    compute: Callable[[torch.Tensor], torch.Tensor],
    *,
    layout: Layout,
    width: int,
    batch_rows: int,
    dtype: torch.dtype = torch.float32,
) -> Shard:
    """Compute a row-wise function of the loaded rows and send its rows to their owners.

    Each value moves once, with 8 bytes per row and receiver for its row number.
    Collective: every rank must call.

    Args:
        channel: of the world axis.
        compute: [b, D] -> [b, width], of our loaded rows.
        layout: of the result.
        width: columns of the result.
        batch_rows: loaded rows handled at a time.
        dtype: of the result, which travels so.
    """
    grid = channel.grid
    slices = ColumnSlices(width, 1 if layout == "rows" else grid.feature)
    mine = ranges.worker(grid.rank) if layout == "rows" else ranges.partition(grid.p)
    columns = slices.size(grid.m if layout == "tile" else 0)
    out = empty_as(loaded.data, mine[1] - mine[0], columns, dtype=dtype)
    bounds = ranges.workers if layout == "rows" else ranges.partitions
    rounds = -(-max(channel.exchange.all_objects(len(loaded.ids))) // batch_rows)
    batches = [slice(n * batch_rows, (n + 1) * batch_rows) for n in range(rounds)]
    if grid.world == 1:
        for batch in batches:
            values = as_type(compute(loaded.data[batch]), dtype)
            put_rows(out, channel.staging.upload(loaded.ids[batch]), values)
        return Shard(layout, out, width)
    copies = channel.axis.size // (len(bounds) - 1)
    counts = _count_batches(loaded.ids, bounds, batch_rows, rounds).repeat_interleave(copies, 1)
    scatter = _Scatter(channel, slices, copies, counts, out)
    for number, batch in enumerate(batches):
        # Once more, since order and rows of all batches would take 16 bytes for each row.
        order, _, rows = split_by_owner(loaded.ids[batch], bounds)
        result = as_type(compute(loaded.data[batch]), dtype)
        scatter.post(number, result, *map(channel.staging.upload, (order, rows)))
    scatter.finish()
    return Shard(layout, out, width)


def _count_batches(
    ids: torch.Tensor, bounds: tuple[int, ...], rows: int, rounds: int
) -> torch.Tensor:
    """[rounds, owners] int64: how many rows of each batch each owner gets.

    Args:
        ids: [n] dense ids of the loaded rows, as loaded.
        bounds: [owners + 1] of the owners' ranges of nodes.
        rows: of a batch.
        rounds: of the worker that loaded most.
    """
    counts = np.zeros((rounds, len(bounds) - 1), np.int64)
    for batch, loaded in zip(counts, ids.split(rows), strict=False):
        for some in few([loaded]):
            batch += split_by_owner(some, bounds)[1]
    return torch.from_numpy(counts)


def put_rows(out: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    """out[rows] = values; a plain copy where the rows are consecutive, as in sorted files."""
    if _consecutive(rows):
        out[int(rows[0]) : int(rows[-1]) + 1] = values
    else:
        scatter_rows(out, rows, values)


def _consecutive(rows: torch.Tensor) -> bool:
    """Whether they are known to be: a GPU would be waited for to tell."""
    return (
        len(rows) > 0
        and rows.device.type == "cpu"
        and int(rows[-1] - rows[0]) == len(rows) - 1
        and bool((rows.diff() == 1).all())
    )


def _taken(source: torch.Tensor, index: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """source[index] in ``out``, or where it stands if it is contiguous there."""
    if source.is_contiguous() and _consecutive(index):
        return source[int(index[0]) : int(index[-1]) + 1]
    return gather_rows(source, index, out=out)


class _Scatter:
    """Sends each owner its rows and columns of batch after batch; the last one still travels.

    How many rows all batches have is sent before the first: sent with a batch, it would arrive
    after the one before, which the next would wait for.

    All methods are collective: every rank must call.

    Args:
        copies: workers that get a row: all M of a partition, or one.
        counts: [batches, workers] rows of ours that each worker gets.
        out: [rows of ours, columns of ours] where received values are put.
    """

    def __init__(
        self,
        channel: Channel,
        slices: ColumnSlices,
        copies: int,
        counts: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        self._channel, self._slices, self._copies, self._out = channel, slices, copies, out
        # One batch travels while the next is filled.
        self._sent, self._received = Buffers(2, out), Buffers(2, out)
        self._flying: tuple[Pending, dict[int, tuple[torch.Tensor, torch.Tensor]]] | None = None
        self._sent_counts = counts.t().contiguous()
        self._received_counts = torch.empty_like(self._sent_counts)
        others = channel.axis.others()
        self._sizes = channel.start(
            [(i, self._sent_counts[i]) for i in others],
            [(i, self._received_counts[i]) for i in others],
        )

    def post(
        self, number: int, result: torch.Tensor, order: torch.Tensor, rows: torch.Tensor
    ) -> None:
        """Send a batch, and put away the one before.

        Args:
            result: [b, width] of our rows, as loaded.
            order: [b] that orders them by owner.
            rows: [b] the row of each, so ordered, within its owner's range.
        """
        packed = self._pack(number, result, order, rows)
        self._sizes.wait()
        room = self._room(number)
        others = self._channel.axis.others()
        pending = self._channel.start(
            [(i, part) for i in others for part in packed[i]],
            [(i, part) for i in others for part in room[i]],
        )
        put_rows(self._out, *packed[self._channel.axis.index])
        self.finish()
        self._flying = pending, room

    def finish(self) -> None:
        """Receive the batch that is in flight, and put it away."""
        if self._flying is None:
            return
        pending, room = self._flying
        pending.wait()
        for rows, values in room.values():
            put_rows(self._out, rows, values)
        self._flying = None

    def _pack(
        self, number: int, result: torch.Tensor, order: torch.Tensor, rows: torch.Tensor
    ) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """Axis index -> (rows, values) that are its own; ourselves included."""
        buffer, at = self._sent.take(number, result.numel()), 0
        packed, counts = {}, self._sent_counts[:: self._copies, number].tolist()
        for owner, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True)):
            run = slice(end - count, end)
            for m in range(self._copies):
                part = result[:, slice(*self._slices.bounds(m))]
                values = buffer[at : at + count * part.shape[1]].view(count, part.shape[1])
                at += values.numel()
                packed[owner * self._copies + m] = rows[run], _taken(part, order[run], values)
        return packed

    def _room(self, number: int) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """Axis index -> (rows, values) to be received of it."""
        others, width = self._channel.axis.others(), self._out.shape[1]
        counts = [int(self._received_counts[i, number]) for i in others]
        numbers = self._out.new_empty(sum(counts), dtype=torch.int64).split(counts)
        values = self._received.take(number, sum(counts) * width).split([c * width for c in counts])
        return {
            i: (rows, part.view(len(rows), width))
            for i, rows, part in zip(others, numbers, values, strict=True)
        }


@dataclass(frozen=True)
class RowProduct:
    """epilogue(x @ weight.T) of single rows.

    Attributes:
        weight: [D', D].
        last: of the product; it has no factors of rows.
    """

    weight: torch.Tensor
    last: Epilogue

    def columns(self, part: slice) -> RowProduct:
        """Some columns of the result."""
        bias = None if self.last.bias is None else self.last.bias[part]
        return RowProduct(self.weight[part], replace(self.last, bias=bias))


def _land_ghosts_in_place(
    channel: Channel,
    loaded: Loaded,
    locations: torch.Tensor,
    product: RowProduct | None,  # noqa: ARG001
    *,
    layout: Layout,
    width: int,
    onto: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Shard:
    out = landed_ghosts(channel, loaded, layout, width, dtype, onto)
    rows = locations.shape[0] * channel.grid.feature
    ghosts_of(channel).ledger.need(_PLACE_BYTES * min(LANDED_ROWS, rows))
    return out


@on_ghosts(_land_ghosts_in_place)
def land_in_place(
    channel: Channel,
    loaded: Loaded,
    locations: torch.Tensor,
    product: RowProduct | None,
    *,
    layout: Layout,
    width: int,
    onto: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Shard:
    """A product of the loaded rows, or they themselves, with their owners.

    Collective: every rank must call.

    Args:
        channel: of the world axis, whose ranks read each other's tensors in place.
        locations: [N/(P*M), 2] rank that loaded the features of each node of our sub-range, and
            the row there.
        layout: of the result.
        width: columns of the result.
        onto: [rows of ours, width] what the product is added to, before its epilogue, and where
            the result is.
        dtype: of a product that is added to nothing.
    """
    slices = ColumnSlices(width, 1 if layout == "rows" else channel.grid.feature)
    own = slice(*slices.bounds(channel.grid.m if layout == "tile" else 0))
    with shared(channel, [loaded.data, locations]) as (rows, where):
        lengths = [rows.of(i, loaded.width).shape[0] for i in range(channel.axis.size)]
        places = _places(channel, where, layout)
        columns = own.stop - own.start if product is None else loaded.width
        _count(channel, places, len(where.own), columns * loaded.data.element_size())
        out = onto
        if out is None:
            count = sum(map(len, places))
            out = empty_as(loaded.data, count, own.stop - own.start, dtype=dtype)
        window = WindowRows(np.cumsum([0, *lengths]))
        with channel.computing():
            found = rows_at(window, places)
            if product is None:
                _gather(out, rows.window(window)[:, own], found)
            else:
                added = onto is not None
                _multiply(out, rows.window(window), found, product.columns(own), added=added)
    return Shard(layout, out, width)


def _places(channel: Channel, where: SharedTensor, layout: Layout) -> list[torch.Tensor]:
    """Parts of our rows, in order: [k, 2] loader and row of each."""
    if layout == "rows" or channel.grid.feature == 1:
        return [where.own]
    first = channel.grid.p * channel.grid.feature
    return [where.of(first + m, 2) for m in range(channel.grid.feature)]


def _count(channel: Channel, places: Sequence[torch.Tensor], own_rows: int, row_bytes: int) -> None:
    """Count the rows that others loaded, and the places of rows that others of the partition own.

    Args:
        own_rows: of our sub-range, whose places we hold.
        row_bytes: read of each row.
    """
    me = channel.axis.index
    remote = sum(count_outside(some[:, 0], me, me + 1) for some in few(places))
    others = sum(map(len, places)) - own_rows
    channel.read_in_place(remote * row_bytes + others * LOCATION_BYTES)


def few(parts: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The parts' rows, in order, ``LANDED_ROWS`` at a time."""
    for part in parts:
        yield from part.split(LANDED_ROWS)


def rows_at(
    window: WindowRows, places: Sequence[torch.Tensor]
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Some rows of ours at a time, and the window's row of each."""
    at = 0
    for some in few(places):
        yield slice(at, at + len(some)), window.of_places(some)
        at += len(some)


def _gather(
    out: torch.Tensor, source: torch.Tensor, rows: Iterator[tuple[slice, torch.Tensor]]
) -> None:
    for span, found in rows:
        gather_rows(source, found, out=out[span])


def _multiply(
    out: torch.Tensor,
    source: torch.Tensor,
    rows: Iterator[tuple[slice, torch.Tensor]],
    product: RowProduct,
    *,
    added: bool,
) -> None:
    """Set [n, D'] ``out`` to the products of some rows: sums of one row each, multiplied in the
    cache; or add them to it.
    """
    weight, ends = product.weight.contiguous(), torch.arange(LANDED_ROWS + 1, dtype=torch.int64)
    for span, found in rows:
        one_each = Block(None, ends[: len(found) + 1], found)
        each = source, weight, Factors(), product.last
        reduce_linear(out[span], one_each, *each, accumulate=added)
