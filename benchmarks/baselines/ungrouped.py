"""SPMM without partitioned communication, without pipelining, or without both.

Deal, section 3.5, Figs. 11, 12 and 19. All fetch features like ours, and include the exchange
of ids as the paper does:

- :func:`neither` takes non-zeros in the order of rows, in batches whose buffer is bounded, and
  fetches a row for every non-zero; a batch is computed when it has arrived.
- :func:`unpipelined` fetches unique rows, in groups by column as ours, one after the other.
- :func:`one_exchange` fetches all unique rows at once, in a buffer of any size.
"""

from __future__ import annotations

import torch

from benchmarks.baselines.fetching import answer, ask
from benchmarks.engine import Engine
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr


def neither(
    engine: Engine, ranges: RowRanges, csr: Csr, tile: torch.Tensor, group_rows: int
) -> torch.Tensor:
    """[N/P, D/M]; the buffer holds ``group_rows`` rows. Collective on the graph axis."""
    out = tile.new_zeros(csr.rows, tile.shape[1])
    for at in range(0, engine.longest(csr.nnz), group_rows):
        span = slice(min(at, csr.nnz), min(at + group_rows, csr.nnz))
        asked, place = ask(engine, csr.cols[span], ranges.partitions)
        rows = answer(engine, asked, tile)
        indptr = csr.indptr.clamp(span.start, span.stop) - span.start
        first, last = _touched(indptr)
        engine.add_product(out[first:last], engine.block(indptr[first : last + 1], place), rows)
    return out


def _touched(indptr: torch.Tensor) -> tuple[int, int]:
    """The range of rows outside which a batch has no non-zeros."""
    present = indptr.diff().nonzero()
    return (int(present[0]), int(present[-1]) + 1) if len(present) else (0, 0)


def unpipelined(
    engine: Engine, ranges: RowRanges, csr: Csr, tile: torch.Tensor, group_rows: int
) -> torch.Tensor:
    """[N/P, D/M]; a group's buffer holds ``group_rows`` rows. Collective on the graph axis."""
    start, stop = ranges.partition(engine.grid.p)
    own = (csr.cols >= start) & (csr.cols < stop)
    out = tile.new_zeros(csr.rows, tile.shape[1])
    _add(engine, out, csr, own, csr.cols[own] - start, tile)
    remote = torch.unique(csr.cols[~own])
    # Ring order: the next partition's rows first, as ours, so that not all ask the same rank.
    remote = torch.cat([remote[remote >= stop], remote[remote < start]])
    slot = torch.zeros(ranges.nodes, dtype=torch.int32)
    slot[remote.long()] = torch.arange(len(remote), dtype=torch.int32)
    slots = torch.where(own, -1, slot[csr.cols.long()])
    for at in range(0, engine.longest(len(remote)), group_rows):
        asked, place = ask(engine, remote[at : at + group_rows], ranges.partitions)
        rows = answer(engine, asked, tile)
        chosen = (slots >= at) & (slots < at + group_rows)
        if chosen.any():
            _add(engine, out, csr, chosen, place[slots[chosen].long() - at], rows)
    return out


def one_exchange(
    engine: Engine, ranges: RowRanges, csr: Csr, tile: torch.Tensor, _group_rows: int
) -> torch.Tensor:
    """[N/P, D/M]. Collective: every rank of the graph axis must call."""
    return unpipelined(engine, ranges, csr, tile, ranges.nodes)


def _add(
    engine: Engine,
    out: torch.Tensor,
    csr: Csr,
    chosen: torch.Tensor,
    indices: torch.Tensor,
    source: torch.Tensor,
) -> None:
    """Add the product of some of the non-zeros."""
    before = torch.cat([torch.zeros(1, dtype=torch.int64), chosen.cumsum(0)])
    engine.add_product(out, engine.block(before[csr.indptr], indices), source)
