"""Input features, used where they were loaded and placed as they are used.

Feature files come in any order. Instead of redistributing the features first, the first
primitive reads rows where they lie and its output lands in the partition's place (Deal,
section 3.5, Fig. 13): a linear step multiplies loaded rows and sends the products; an
aggregation asks the loaders for the rows it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from embertide.grid import Axis, ColumnSlices, RowRanges
from embertide.layouts import Layout, Loaded, Shard
from embertide.primitives.directory import split_by_owner
from embertide.primitives.exchange import Exchange
from embertide.primitives.spmm import Operand
from embertide.telemetry.recorder import Label


@dataclass(frozen=True)
class LoadedHolders:
    """Where each node's features were loaded: one entry per needed node, looked up before.

    Attributes:
        nodes: [k] ascending node ids this worker needs.
        rank: [k] the loader.
        row: [k] the row there.
    """

    axis: Axis
    nodes: torch.Tensor
    rank: torch.Tensor
    row: torch.Tensor

    def locate(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Holder and row of nodes that are among ours."""
        at = torch.searchsorted(self.nodes, nodes)
        return self.rank[at], self.row[at]


def loaded_operand(exchange: Exchange, loaded: Loaded, scale: torch.Tensor | None) -> Operand:
    """Loaded rows as the source of an aggregation; a peer gets the columns of its own slice.

    Args:
        scale: [n] factor per loaded row, or None.
    """
    feature = exchange.grid.feature
    slices = ColumnSlices(loaded.width, feature)

    def pick(peer: int, rows: torch.Tensor) -> torch.Tensor:
        return loaded.data[:, slice(*slices.bounds(peer % feature))].index_select(0, rows)

    own = slice(*slices.bounds(exchange.grid.m))
    return Operand(loaded.data[:, own].contiguous(), pick, scale)


def land(
    exchange: Exchange,
    label: Label,
    ranges: RowRanges,
    loaded: Loaded,
    layout: Layout,
    width: int,
    compute: Callable[[torch.Tensor], torch.Tensor],
    *,
    batch_rows: int,
) -> Shard:
    """Compute a row-wise function of the loaded rows and place its result.

    Every worker must call. Each value moves once; 8 bytes per row and worker say where it goes.

    Args:
        compute: [b, D] -> [b, width], of our loaded rows.
        batch_rows: loaded rows handled at a time.
    """
    grid, axis = exchange.grid, exchange.grid.world_axis
    bounds = ranges.workers if layout == "rows" else ranges.partitions
    slices = ColumnSlices(width, 1 if layout == "rows" else grid.feature)
    mine = ranges.worker(grid.rank) if layout == "rows" else ranges.partition(grid.p)
    out = torch.empty(mine[1] - mine[0], slices.size(grid.m if layout == "tile" else 0))
    out = out.to(exchange.device)
    longest = max(exchange.all_objects(len(loaded.ids)))
    for at in range(0, longest, batch_rows):
        batch = slice(at, min(at + batch_rows, len(loaded.ids)))
        order, counts, rows = split_by_owner(loaded.ids[batch], bounds)
        result = compute(loaded.data[batch])
        if exchange.grid.world > 1:
            result = result[order.to(exchange.device)]
            _scatter(exchange, label, axis, result, rows, counts, slices, out)
        else:
            put_rows(out, loaded.ids[batch].to(exchange.device), result)
    return Shard(layout, out, width)


def put_rows(out: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    """out[rows] = values; a plain copy where the rows are consecutive, as in sorted files."""
    if len(rows) and int(rows[-1] - rows[0]) == len(rows) - 1 and bool((rows.diff() == 1).all()):
        out[int(rows[0]) : int(rows[-1]) + 1] = values
    else:
        out.index_copy_(0, rows, values)


def _scatter(
    exchange: Exchange,
    label: Label,
    axis: Axis,
    result: torch.Tensor,
    rows: torch.Tensor,
    counts: list[int],
    slices: ColumnSlices,
    out: torch.Tensor,
) -> None:
    """Send each owner its rows and columns, and place what arrives."""
    copies = axis.size // len(counts)
    places, parts = [], []
    owners = zip(rows.to(exchange.device).split(counts), result.split(counts), strict=True)
    for place, part in owners:
        for m in range(copies):
            places.append(place)
            parts.append(part[:, slice(*slices.bounds(m))].contiguous())
    arrived_places = exchange.all_to_all(label, axis, places)
    arrived = exchange.all_to_all(label, axis, parts)
    for place, part in zip(arrived_places, arrived, strict=True):
        put_rows(out, place, part)
