"""SPMM that sends the graph and gets partial results back (Deal, section 3.4, "Exchange G0").

Each rank sends the holder of some columns the non-zeros in those columns; the holder multiplies
them with its tile and returns the partial sums, of rows that have any, which are added up. Edge
values, which every layer computes anew, travel with every use.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.engine import Engine
from embertide.grid import RowRanges
from embertide.kernels.block import Block
from embertide.kernels.csr import Csr

COPIES = 8
"""Of a factor that travel at a time, where every column has one."""


@dataclass(frozen=True)
class Pattern:
    """What peers gave us to multiply, where we add what each returns, which non-zeros it has."""

    theirs: list[Block]
    rows: list[Block]
    chosen: list[torch.Tensor]


def send_graph(engine: Engine, ranges: RowRanges, csr: Csr) -> Pattern:
    """Send each holder its columns' non-zeros: 8 bytes a row that has any, 4 a non-zero.

    Collective: every rank of the graph axis must call.
    """
    channel = engine.channel("graph")
    counts, columns, rows, taken = [], [], [], []
    for q in range(engine.grid.graph):
        start, stop = ranges.partition(q)
        chosen = (csr.cols >= start) & (csr.cols < stop)
        before = torch.cat([torch.zeros(1, dtype=torch.int64), chosen.cumsum(0)])
        lengths = before[csr.indptr].diff()
        present = lengths.nonzero().squeeze(1)
        each = torch.arange(len(present) + 1, dtype=torch.int32)
        rows.append(engine.block(each, each[:-1], present.int()))
        taken.append(chosen.nonzero().squeeze(1))
        counts.append(lengths[present])
        columns.append((csr.cols[chosen] - start).to(torch.int32))
    lengths_of, columns_of = channel.all_to_all(counts), channel.all_to_all(columns)
    theirs = []
    for lengths, indices in zip(lengths_of, columns_of, strict=True):
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        theirs.append(engine.block(indptr.to(torch.int32), indices))
    return Pattern(theirs, rows, taken)


def multiply_weighted(
    engine: Engine,
    pattern: Pattern,
    tile: torch.Tensor,
    rows: int,
    values: torch.Tensor,
    width: int,
    *,
    per_column: bool,
) -> torch.Tensor:
    """As :func:`multiply`, with a factor per non-zero and head, ``values`` [nnz, H].

    Args:
        per_column: send a factor for each of our D/M columns, as the paper's edge features are
            and its Table 2 counts them; else one for each of our heads.
    """
    own, heads = engine.own_heads(values, width), engine.heads(values.shape[1], width)
    copies = tile.shape[1] // heads.count if per_column else 1
    factors = _send_factors(engine, pattern, own, copies)
    partial = [
        engine.product_by_heads(block, tile, theirs, heads)
        for block, theirs in zip(pattern.theirs, factors, strict=True)
    ]
    return _add_up(engine, pattern, partial, tile.new_zeros(rows, tile.shape[1]))


def _send_factors(
    engine: Engine, pattern: Pattern, own: torch.Tensor, copies: int
) -> list[torch.Tensor]:
    """[nnz, H] factors of each peer's non-zeros, which send every one ``copies`` times.

    They travel ``COPIES`` at a time, so that they need no more memory than partial sums.
    """
    came: list[torch.Tensor] = []
    for at in range(0, copies, COPIES):
        times = min(COPIES, copies - at)
        sent = [own[chosen].repeat_interleave(times, dim=1) for chosen in pattern.chosen]
        found = engine.channel("graph").all_to_all(sent)
        came = came or [one[:, ::times].contiguous() for one in found]
    return came


def multiply(engine: Engine, pattern: Pattern, tile: torch.Tensor, rows: int) -> torch.Tensor:
    """[N/P, D/M] from partial sums. Collective: every rank of the graph axis must call."""
    partial = []
    for block in pattern.theirs:
        sums = tile.new_zeros(len(block.indptr) - 1, tile.shape[1])
        engine.add_product(sums, block, tile)
        partial.append(sums)
    return _add_up(engine, pattern, partial, tile.new_zeros(rows, tile.shape[1]))


def _add_up(
    engine: Engine, pattern: Pattern, partial: list[torch.Tensor], out: torch.Tensor
) -> torch.Tensor:
    """Return the partial sums to whom they belong, and add up ours."""
    returned = engine.channel("graph").all_to_all(partial)
    for present, sums in zip(pattern.rows, returned, strict=True):
        engine.add_product(out, present, sums)
    return out
