"""GEMM between layouts: the ring that turns tiles into rows while multiplying, and back.

``tile`` -> ``rows`` receives, in M - 1 steps, the columns of our rows that the other slices
hold and multiplies each block with its rows of the weight while the next travels; ``rows`` ->
``tile`` sends each slice its columns. Both move N*D/(P*M*M) * (M - 1) values per worker
(Deal, section 3.4, Fig. 7b, Table 1); no [N/P, D'] partial product ever exists. With M = 1
both directions are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from embertide.grid import ColumnSlices, RowRanges
from embertide.metrics import Label, computing
from embertide.primitives.exchange import Exchange

BLOCK_ROWS = 1 << 14
"""Rows multiplied at a time."""


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
    out: torch.Tensor | None = None
    for m, block in ring_blocks(exchange, label, ranges, tile, slices):
        start, stop = slices.bounds(m)
        part = weight[:, start:stop]
        if out is None:
            out = torch.nn.functional.linear(block, part, bias)
        else:
            out.addmm_(block, part.T)
    assert out is not None
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
    for m, block in ring_blocks(exchange, label, ranges, tile, slices):
        out[:, slice(*slices.bounds(m))] = block
    return out


def ring_blocks(
    exchange: Exchange,
    label: Label,
    ranges: RowRanges,
    tile: torch.Tensor,
    slices: ColumnSlices,
) -> Iterator[tuple[int, torch.Tensor]]:
    """(slice m, [N/(P*M), D/M] block of our sub-range), ours first, one step ahead."""
    grid, axis = exchange.grid, exchange.grid.feature_axis
    mine = slice(*ranges.within(grid.rank))
    rows = mine.stop - mine.start

    def step(number: int) -> tuple[int, torch.Tensor, Callable[[], None]]:
        target, origin = (axis.index + number) % axis.size, (axis.index - number) % axis.size
        theirs = tile[slice(*ranges.within(axis.ranks[target]))]
        block = tile.new_empty(rows, slices.size(origin))
        pending = exchange.start(
            replace(label, group=number),
            [(axis.ranks[target], theirs)],
            [(axis.ranks[origin], block)],
        )
        return origin, block, pending.wait

    current: tuple[int, torch.Tensor, Callable[[], None]] = (axis.index, tile[mine], lambda: None)
    for number in range(1, axis.size + 1):
        following = step(number) if number < axis.size else None
        origin, block, wait = current
        wait()
        with computing(exchange.recorder, replace(label, group=number - 1)):
            yield origin, block
        if following is None:
            return
        current = following


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
    for number in range(1, axis.size):
        target, origin = (axis.index + number) % axis.size, (axis.index - number) % axis.size
        exchange.start(
            replace(label, group=number),
            [(axis.ranks[target], rows[:, slice(*slices.bounds(target))].contiguous())],
            [(axis.ranks[origin], out[slice(*ranges.within(axis.ranks[origin]))])],
        ).wait()
    return out


def gather_rows(exchange: Exchange, label: Label, rows: torch.Tensor) -> torch.Tensor:
    """[N/(P*M), k] of narrow per-node numbers -> [N/P, k] for the whole partition.

    Moves N*k/P * (M - 1)/M values in.
    """
    if exchange.grid.feature == 1:
        return rows
    return torch.cat(exchange.all_gather(label, exchange.grid.feature_axis, rows.contiguous()))
