"""Input features of workers of one host, read where they were loaded.

Nothing is packed or sent: the owner of a row reads it in the memory of the worker that loaded it,
and writes what it makes of it straight to its place. :func:`embertide.graph.landing.land` does
the same across hosts.

Both go over some rows at a time: where each row is takes more memory than a narrow row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from embertide.footprint import LOCATION_BYTES
from embertide.graph.exchange import Channel
from embertide.graph.ghosts import ghosts_of, landed_ghosts
from embertide.graph.in_place import SharedTensor, WindowRows, shared
from embertide.grid import ColumnSlices
from embertide.kernels.block import Block
from embertide.kernels.counting import count_outside
from embertide.kernels.epilogue import Epilogue, Factors
from embertide.kernels.ghosts import on_ghosts
from embertide.kernels.memory import empty_as
from embertide.kernels.rows import gather_rows
from embertide.kernels.spmm import reduce_linear
from embertide.layouts import Layout, Loaded, Shard

LANDED_ROWS = 1 << 18
"""Rows that are located, read and counted at a time."""
_PLACE_BYTES = 32
"""A row that is read in place: where it was loaded, and in int64 the row to be read."""


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
