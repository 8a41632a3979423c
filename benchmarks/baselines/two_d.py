"""SPMM on a matrix cut both ways (Deal, section 3.4, Fig. 9, Table 2, "2D-based").

Rank (p, m) has the non-zeros of partition p's rows in block m of the columns. It fetches those
columns' rows, unique and with all their D columns, computes partial sums [N/P, D], and the M
ranks of a partition add up each other's slices.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.engine import Engine
from embertide.grid import RowRanges, even_bounds
from embertide.kernels.block import Block
from embertide.kernels.csr import Csr


@dataclass(frozen=True)
class Pattern:
    """The non-zeros of our block over the rows that will come, and what others ask of us."""

    block: Block
    asked: list[torch.Tensor]


def prepare(engine: Engine, ranges: RowRanges, csr: Csr) -> Pattern:
    """Cut our block out and ask for its rows. Collective: every rank must call."""
    low, high = even_bounds(ranges.nodes, engine.grid.feature)[engine.grid.m :][:2]
    chosen = (csr.cols >= low) & (csr.cols < high)
    before = torch.cat([torch.zeros(1, dtype=torch.int64), chosen.cumsum(0)])
    needed, indices = torch.unique(csr.cols[chosen], return_inverse=True)
    # Each of a row's M holders has one slice of it: ask every one, on the world axis.
    wanted = []
    for p in range(engine.grid.graph):
        start, stop = ranges.partition(p)
        inside = needed[(needed >= start) & (needed < stop)].long() - start
        wanted += [inside] * engine.grid.feature
    asked = engine.channel("world").all_to_all(wanted)
    return Pattern(engine.block(before[csr.indptr], indices), asked)


def multiply(engine: Engine, pattern: Pattern, tile: torch.Tensor, width: int) -> torch.Tensor:
    """[N/P, D/M]. Collective: every rank must call."""
    m_count = engine.grid.feature
    sent = [engine.take(tile, rows) for rows in pattern.asked]
    # What a rank keeps for itself fixes the width of what it receives: send flat.
    came = engine.channel("world").all_to_all([rows.reshape(-1) for rows in sent])
    rows = torch.cat(
        [
            torch.cat(
                [
                    came[p * m_count + m].reshape(-1, _width(engine, width, m))
                    for m in range(m_count)
                ],
                dim=1,
            )
            for p in range(engine.grid.graph)
        ]
    )
    partial = tile.new_zeros(len(pattern.block.indptr) - 1, width)
    engine.add_product(partial, pattern.block, rows)
    slices = [partial[:, engine.columns(width, m)].contiguous() for m in range(m_count)]
    mine = engine.channel("feature").all_to_all(slices)
    return torch.stack(mine).sum(0) if m_count > 1 else mine[0]


def _width(engine: Engine, width: int, m: int) -> int:
    return len(range(width)[engine.columns(width, m)])
