"""GEMM between layouts: the ring that turns tiles into rows while multiplying, and back.

``tile`` -> ``rows`` receives, in M - 1 steps, the columns of our rows that the other slices
hold and multiplies each block with its rows of the weight while the next travels; ``rows`` ->
``tile`` sends each slice its columns. Both move N*D/(P*M*M) * (M - 1) values per worker
(Deal, section 3.4, Fig. 7b, Table 1); no [N/P, D'] partial product ever exists. With M = 1
both directions are free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import torch

from embertide.grid import ColumnSlices, Grid, RowRanges
from embertide.primitives.exchange import Exchange, Pending
from embertide.telemetry.recorder import Label, computing

BLOCK_ROWS = 1 << 14
"""Rows sent at a time: what is in flight stays small however many rows a worker has."""


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x @ weight.T + bias for a tensor with all its columns, in any row order."""
    return torch.nn.functional.linear(x, weight, bias)


def ring_gemm(
    exchange: Exchange,
    label: Label,
    ranges: RowRanges,
    tile: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """Multiply a tile with a weight into the ``rows`` layout.

    Every worker of the feature axis must call.

    Args:
        tile: [N/P, D/M].
        weight: [D', D], on every worker.
        bias: [D'] or None.

    Returns:
        [N/(P*M), D'].
    """
    slices = ColumnSlices(weight.shape[1], exchange.grid.feature)
    start, stop = ranges.within(exchange.grid.rank)
    out = tile.new_empty(stop - start, len(weight))
    for m, span, block in ring_blocks(exchange, label, ranges, tile, slices):
        part = weight[:, slice(*slices.bounds(m))]
        if m == exchange.grid.m:
            torch.mm(block, part.T, out=out)
        else:
            out[span].addmm_(block, part.T)
    if bias is not None:
        out += bias
    return out


def tile_to_rows(
    exchange: Exchange, label: Label, ranges: RowRanges, tile: torch.Tensor, width: int
) -> torch.Tensor:
    """[N/P, D/M] -> [N/(P*M), D] on the feature axis; the tile itself when M is 1."""
    if exchange.grid.feature == 1:
        return tile
    slices = ColumnSlices(width, exchange.grid.feature)
    start, stop = ranges.within(exchange.grid.rank)
    out = tile.new_empty(stop - start, width)
    for m, span, block in ring_blocks(exchange, label, ranges, tile, slices):
        out[span, slice(*slices.bounds(m))] = block
    return out


def ring_blocks(
    exchange: Exchange,
    label: Label,
    ranges: RowRanges,
    tile: torch.Tensor,
    slices: ColumnSlices,
) -> Iterator[tuple[int, slice, torch.Tensor]]:
    """(slice m, rows of our sub-range, their columns of that slice), ours first and whole.

    What other workers hold comes in blocks of ``BLOCK_ROWS`` rows, one on its way while the
    one before is used.
    """
    grid, axis = exchange.grid, exchange.grid.feature_axis
    first, last = ranges.within(grid.rank)
    ahead: deque[tuple[int, slice, torch.Tensor, Pending]] = deque()
    posts = iter(_ring_rounds(grid, ranges))

    def post(step: int, give: slice, take: slice) -> tuple[int, slice, torch.Tensor, Pending]:
        target, origin = (axis.index + step) % axis.size, (axis.index - step) % axis.size
        base = ranges.within(axis.ranks[target])[0]
        block = tile.new_empty(take.stop - take.start, slices.size(origin))
        pending = exchange.start(
            replace(label, group=step),
            [(axis.ranks[target], tile[base + give.start : base + give.stop])],
            [(axis.ranks[origin], block)],
        )
        return origin, take, block, pending

    ahead.extend(post(*work) for work in islice(posts, 1))
    with computing(exchange.recorder, label):
        yield axis.index, slice(0, last - first), tile[first:last]
    while ahead:
        origin, span, block, pending = ahead.popleft()
        ahead.extend(post(*work) for work in islice(posts, 1))
        pending.wait()
        with computing(exchange.recorder, label):
            yield origin, span, block


def _ring_rounds(grid: Grid, ranges: RowRanges) -> Iterator[tuple[int, slice, slice]]:
    """(ring step, rows to give counted from the target's first, rows of ours to take)."""
    axis = grid.feature_axis
    sizes = [stop - start for start, stop in map(ranges.within, axis.ranks)]
    for step in range(1, axis.size):
        theirs, ours = sizes[(axis.index + step) % axis.size], sizes[axis.index]
        for at in range(0, max(theirs, ours), BLOCK_ROWS):
            give, take = (
                slice(min(at, size), min(at + BLOCK_ROWS, size)) for size in (theirs, ours)
            )
            yield step, give, take


def rows_to_tile(
    exchange: Exchange, label: Label, ranges: RowRanges, rows: torch.Tensor
) -> torch.Tensor:
    """[N/(P*M), D] -> [N/P, D/M] on the feature axis; the rows themselves when M is 1."""
    grid, axis = exchange.grid, exchange.grid.feature_axis
    if grid.feature == 1:
        return rows
    slices = ColumnSlices(rows.shape[1], grid.feature)
    start, stop = ranges.partition(grid.p)
    out = rows.new_empty(stop - start, slices.size(grid.m))
    out[slice(*ranges.within(grid.rank))] = rows[:, slice(*slices.bounds(grid.m))]
    before: Pending | None = None
    # The ring's rounds with both ends exchanged: we give rows of ours, and take theirs.
    for step, take, give in _ring_rounds(grid, ranges):
        target, origin = (axis.index - step) % axis.size, (axis.index + step) % axis.size
        base = ranges.within(axis.ranks[origin])[0]
        pending = exchange.start(
            replace(label, group=step),
            [(axis.ranks[target], rows[give, slice(*slices.bounds(target))].contiguous())],
            [(axis.ranks[origin], out[base + take.start : base + take.stop])],
        )
        if before is not None:
            before.wait()
        before = pending
    if before is not None:
        before.wait()
    return out


def gather_rows(exchange: Exchange, label: Label, rows: torch.Tensor) -> torch.Tensor:
    """[N/(P*M), k] of narrow per-node numbers -> [N/P, k] for the whole partition.

    Moves N*k/P * (M - 1)/M values in.
    """
    if exchange.grid.feature == 1:
        return rows
    return torch.cat(exchange.all_gather(label, exchange.grid.feature_axis, rows.contiguous()))
