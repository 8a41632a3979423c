"""Column statistics over all nodes: each worker's own, put together in the order of the ranks.

What travels is two numbers per column and worker, whatever the graph's size is, and every worker
adds them up in the same order: all get the same bits, in every run on the same grid.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch

from embertide.graph.exchange import Exchange
from embertide.graph.ghosts import GhostExchange
from embertide.graph.moves import Statistics
from embertide.grid import AxisName, RowRanges
from embertide.kernels.ghosts import on_ghosts
from embertide.kernels.moments import Moments, join, of_rows
from embertide.layouts import Layout, Shard

PRIMITIVE = "statistics"


def axis_of(layout: Layout, slices: int) -> AxisName:
    """The axis whose members have all rows of the same columns."""
    return "graph" if layout == "tile" or slices == 1 else "world"


def _ghost_moments(exchange: Exchange, ranges: RowRanges, x: Shard, layer: int) -> Moments:
    assert isinstance(exchange, GhostExchange)
    columns, axis = x.data.shape[1], axis_of(x.layout, exchange.grid.feature)
    exchange.moves.append(Statistics(layer, axis, 2 * columns))
    found = exchange.counted(columns)
    return Moments(ranges.nodes, found, torch.empty_like(found))


@on_ghosts(_ghost_moments)
def column_moments(exchange: Exchange, ranges: RowRanges, x: Shard, layer: int) -> Moments:
    """The moments of the columns that we hold, over all nodes. Collective: every rank must call."""
    axis = axis_of(x.layout, exchange.grid.feature)
    own = of_rows(x.data)
    channel = exchange.channel(axis, PRIMITIVE, layer)
    found = channel.all_gather(torch.stack([own.mean, own.squares]))
    counts = _rows_of(ranges, axis)
    parts = [Moments(count, *both) for count, both in zip(counts, found, strict=True)]
    return join(x.data.shape[1], x.data.device, parts)


def column_extremes(
    exchange: Exchange, own: torch.Tensor, of: Literal["max", "min"], layer: int
) -> torch.Tensor:
    """[D] the largest or smallest value of each column of all ranks' rows.

    Collective: every rank must call.

    Args:
        own: [D] float32 that of our rows, which have all columns.
    """
    channel = exchange.channel(axis_of("rows", exchange.grid.feature), PRIMITIVE, layer)
    # In the type in which statistics travel, which holds every float32.
    parts = torch.stack(channel.all_gather(own.double()))
    return parts.amax(0) if of == "max" else parts.amin(0)


def sum_over_all(exchange: Exchange, own: torch.Tensor, layer: int) -> torch.Tensor:
    """The sum of a float64 tensor of each rank's rows, which have all columns, in rank order.

    Collective: every rank must call.
    """
    channel = exchange.channel(axis_of("rows", exchange.grid.feature), PRIMITIVE, layer)
    return torch.stack(channel.all_gather(own.flatten())).sum(0).view_as(own)


def _all_ghosts(exchange: Exchange, own: Moments, layout: Layout, layer: int) -> Moments:
    assert isinstance(exchange, GhostExchange)
    columns, slices = own.mean.shape[0], exchange.grid.feature
    if layout == "rows" or slices == 1:
        return own
    exchange.moves.append(Statistics(layer, "feature", 2 * columns))
    found = exchange.counted(columns * slices)
    return Moments(own.count, found, torch.empty_like(found))


@on_ghosts(_all_ghosts)
def all_columns(exchange: Exchange, own: Moments, layout: Layout, layer: int) -> Moments:
    """The moments of every column, by those of each slice. Collective: every rank must call."""
    if layout == "rows" or exchange.grid.feature == 1:
        return own
    channel = exchange.channel("feature", PRIMITIVE, layer)
    found = torch.cat(channel.all_gather(torch.stack([own.mean, own.squares], 1)))
    return Moments(own.count, found[:, 0], found[:, 1])


def _rows_of(ranges: RowRanges, axis: AxisName) -> list[int]:
    """How many rows each member of the axis has."""
    bounds = ranges.partitions if axis == "graph" else ranges.workers
    return [stop - start for start, stop in pairwise(bounds)]
