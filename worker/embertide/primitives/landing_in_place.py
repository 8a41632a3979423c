"""Input features of workers of one host, read where they were loaded.

Nothing is packed or sent: the owner of a row reads it in the memory of whoever loaded it, and makes
of it what it needs, straight to its place. Bytes and messages are counted as those of
:func:`embertide.primitives.landing.land`, which does the same across hosts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from embertide.grid import ColumnSlices, RowRanges
from embertide.kernels.block import Block
from embertide.kernels.csr import id_type
from embertide.kernels.memory import empty_as
from embertide.kernels.rows import gather_rows
from embertide.kernels.spmm import Epilogue, Factors, reduce_linear
from embertide.layouts import Layout, Loaded, Shard
from embertide.primitives.exchange import Channel
from embertide.primitives.in_place import Shown, WindowRows, shown

_NUMBER_BYTES = 8
"""Of a row's number, and of how many rows a batch has for a worker."""


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


def land_in_place(
    channel: Channel,
    ranges: RowRanges,
    loaded: Loaded,
    locations: torch.Tensor,
    product: RowProduct | None,
    *,
    layout: Layout,
    width: int,
    batch_rows: int,
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
        batch_rows: loaded rows that count as one message.
        onto: [rows of ours, width] what the product is added to, before its epilogue, and where
            the result is.
        dtype: of a product that is added to nothing, which would travel so.
    """
    slices = ColumnSlices(width, 1 if layout == "rows" else channel.grid.feature)
    own = slice(*slices.bounds(channel.grid.m if layout == "tile" else 0))
    with shown(channel, [loaded.data, locations]) as (rows, where):
        lengths = [rows.of(i, loaded.width).shape[0] for i in range(channel.axis.size)]
        places = _places(channel, where, layout)
        rounds = -(-max(lengths) // batch_rows)
        batches = Batches(channel, slices, rounds, batch_rows, dtype.itemsize)
        batches.count(batches.sent(ranges, loaded.ids, layout), batches.received(places))
        window = WindowRows(np.cumsum([0, *lengths]))
        source, found = rows.window(window), _rows_at(window, places)
        with channel.computing():
            if product is None:
                out = empty_as(loaded.data, len(found), own.stop - own.start)
                gather_rows(source[:, own], found, out=out)
            else:
                out = _multiplied(source, found, product.columns(own), onto, dtype)
    return Shard(layout, out, width)


def _places(channel: Channel, where: Shown, layout: Layout) -> torch.Tensor:
    """[rows of ours, 2] loader and row of each."""
    if layout == "rows" or channel.grid.feature == 1:
        return where.own
    first = channel.grid.p * channel.grid.feature
    return torch.cat([where.of(first + m, 2) for m in range(channel.grid.feature)])


def _rows_at(window: WindowRows, places: torch.Tensor) -> torch.Tensor:
    """[n] the window's row of each place."""
    starts = torch.from_numpy(window.starts)
    return (starts[places[:, 0].long()] + places[:, 1]).to(id_type(window.end))


def _multiplied(
    source: torch.Tensor,
    rows: torch.Tensor,
    product: RowProduct,
    onto: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """[n, D'] the products of some rows: sums of one row each, multiplied in the cache."""
    out = onto
    if out is None:
        out = empty_as(source, len(rows), len(product.weight), dtype=dtype)
    one_each = Block(None, torch.arange(len(rows) + 1, dtype=torch.int64), rows)
    weight, last = product.weight.contiguous(), product.last
    reduce_linear(out, one_each, source, weight, Factors(), last, accumulate=onto is not None)
    return out


@dataclass(frozen=True)
class Batches:
    """Counts what travels across hosts: in each round a batch of every worker's loaded rows.

    Attributes:
        channel: of the world axis.
        slices: of the result's columns; one for whole rows.
        rounds: of the worker that loaded most.
        rows: of a batch.
        value_bytes: of each value of them.
    """

    channel: Channel
    slices: ColumnSlices
    rounds: int
    rows: int
    value_bytes: int

    def sent(self, ranges: RowRanges, ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        """[rounds, workers] rows of ours that each worker gets.

        Args:
            ids: [n] their nodes, as loaded.
            layout: in which their owners hold them.
        """
        bounds = ranges.workers if layout == "rows" else ranges.partitions
        owner = torch.bucketize(ids, torch.tensor(bounds[1:-1]), right=True)
        copies = self.channel.axis.size // (len(bounds) - 1)
        batch = torch.arange(len(ids)).div_(self.rows, rounding_mode="floor")
        return self._table(batch, owner, len(bounds) - 1).repeat_interleave(copies, 1)

    def received(self, places: torch.Tensor) -> torch.Tensor:
        """[rounds, workers] rows of each worker that go to these places, [k, 2] loader and row."""
        batch = places[:, 1].long().div_(self.rows, rounding_mode="floor")
        return self._table(batch, places[:, 0], self.channel.axis.size)

    def _table(self, batch: torch.Tensor, of: torch.Tensor, members: int) -> torch.Tensor:
        found = torch.bincount(batch * members + of, minlength=self.rounds * members)
        return found.view(self.rounds, members)

    def count(self, sent: torch.Tensor, received: torch.Tensor) -> None:
        """Count how many rows there are, their numbers, and their values."""
        channel, others = self.channel, self.channel.axis.others()
        own = _NUMBER_BYTES + self.value_bytes * self._columns(channel.axis.index)
        for out, into in zip(sent.tolist(), received.tolist(), strict=True):
            channel.count([_NUMBER_BYTES] * len(others), _NUMBER_BYTES * len(others))
            messages = [
                size
                for i in others
                for size in (_NUMBER_BYTES * out[i], self.value_bytes * out[i] * self._columns(i))
            ]
            channel.count(messages, own * sum(into[i] for i in others))

    def _columns(self, rank: int) -> int:
        return self.slices.size(rank % self.slices.count)
