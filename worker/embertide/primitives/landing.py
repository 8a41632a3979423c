"""Input features, used on the ranks that loaded them.

Feature files come in any order. Instead of redistributing the features first, the first
primitive reads rows where they were loaded and its output goes to the owners of the rows (Deal,
section 3.5, Fig. 13): a linear step multiplies loaded rows and sends the products; an
aggregation requests the rows it needs from their loaders.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from embertide.grid import ColumnSlices, Grid, RowRanges
from embertide.kernels.owners import split_by_owner
from embertide.layouts import Layout, Loaded, Shard
from embertide.primitives.exchange import Channel
from embertide.primitives.spmm import Operand


def loaded_operand(grid: Grid, loaded: Loaded, scale: torch.Tensor | None) -> Operand:
    """Loaded rows as the source of an aggregation; a peer gets the columns of its own slice.

    Args:
        scale: [n] factor per loaded row, or None.
    """
    slices = ColumnSlices(loaded.width, grid.feature)

    def pick(peer: int, rows: torch.Tensor) -> torch.Tensor:
        return loaded.data[:, slice(*slices.bounds(peer % grid.feature))].index_select(0, rows)

    own = slice(*slices.bounds(grid.m))
    return Operand(loaded.data[:, own].contiguous(), pick, scale)


def land(
    channel: Channel,
    ranges: RowRanges,
    loaded: Loaded,
    compute: Callable[[torch.Tensor], torch.Tensor],
    *,
    layout: Layout,
    width: int,
    batch_rows: int,
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
    """
    grid = channel.grid
    bounds = ranges.workers if layout == "rows" else ranges.partitions
    slices = ColumnSlices(width, 1 if layout == "rows" else grid.feature)
    mine = ranges.worker(grid.rank) if layout == "rows" else ranges.partition(grid.p)
    out = torch.empty(mine[1] - mine[0], slices.size(grid.m if layout == "tile" else 0))
    out = out.to(channel.device)
    longest = max(channel.exchange.all_objects(len(loaded.ids)))
    for at in range(0, longest, batch_rows):
        batch = slice(at, min(at + batch_rows, len(loaded.ids)))
        order, counts, rows = split_by_owner(loaded.ids[batch], bounds)
        result = compute(loaded.data[batch])
        if grid.world > 1:
            result = result[order.to(channel.device)]
            _scatter(channel, result, rows, counts, slices, out)
        else:
            put_rows(out, loaded.ids[batch].to(channel.device), result)
    return Shard(layout, out, width)


def put_rows(out: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    """out[rows] = values; a plain copy where the rows are consecutive, as in sorted files."""
    if len(rows) and int(rows[-1] - rows[0]) == len(rows) - 1 and bool((rows.diff() == 1).all()):
        out[int(rows[0]) : int(rows[-1]) + 1] = values
    else:
        out.index_copy_(0, rows, values)


def _scatter(
    channel: Channel,
    result: torch.Tensor,
    rows: torch.Tensor,
    counts: list[int],
    slices: ColumnSlices,
    out: torch.Tensor,
) -> None:
    """Send each owner its rows and columns; write those received into ``out``.

    Args:
        result: [b, width] ordered by owner.
        rows: [b] the row of each within its owner's range.
        counts: how many rows each range owns; a partition's go to all its M ranks.

    Collective: every rank must call.
    """
    copies = channel.axis.size // len(counts)
    numbers, values = [], []
    owners = zip(rows.to(channel.device).split(counts), result.split(counts), strict=True)
    for owned_rows, owned in owners:
        for m in range(copies):
            numbers.append(owned_rows)
            values.append(owned[:, slice(*slices.bounds(m))].contiguous())
    numbers, values = channel.all_to_all(numbers), channel.all_to_all(values)
    for received_rows, received in zip(numbers, values, strict=True):
        put_rows(out, received_rows, received)
