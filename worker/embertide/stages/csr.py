"""Row ranges and the distributed CSR: cut, shuffle, sort, gather.

Rows are cut so that work balances: half of a row's cost is its share of the nodes, half its
share of the edges, which keeps both within a factor of two of the ideal whatever the degree
distribution (MGG cuts by edges alone; nodes are what memory and dense steps pay for). The
cuts come from a fixed-size histogram, never from a vector of N counters.

Each rank sorts its own sub-range; the M ranks of a partition then all-gather theirs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from embertide.context import RunContext
from embertide.grid import Grid, RowRanges
from embertide.kernels.csr import Csr, build_csr, column_bits, id_type
from embertide.primitives.shuffle import Edges, shuffle_edges


def choose_ranges(ctx: RunContext, edges: Edges, nodes: int) -> RowRanges:
    """Cut the rows over the grid from the histogram of all ranks.

    Collective: every rank must call.
    """
    channel = ctx.exchange.channel("world", "histogram")
    histogram = channel.all_reduce(torch.from_numpy(edges.histogram)).numpy()
    return cut_ranges(histogram, 1 << edges.shift, nodes, ctx.grid)


def cut_ranges(histogram: npt.NDArray[np.int64], bucket: int, nodes: int, grid: Grid) -> RowRanges:
    """Balanced partition bounds; inside a bucket the cut is interpolated.

    Args:
        histogram: edges per ``bucket`` consecutive nodes, the last bucket possibly short.
    """
    starts = np.minimum(np.arange(len(histogram) + 1) * bucket, nodes)
    cost = np.diff(starts) / nodes + histogram / max(1, histogram.sum())
    cumulative = np.concatenate([[0.0], np.cumsum(cost)])
    targets = cumulative[-1] * np.arange(1, grid.graph) / grid.graph
    cuts = np.interp(targets, cumulative, starts).round().astype(int)
    bounds = [0]
    for number, cut in enumerate(cuts, 1):
        low = bounds[-1] + grid.feature
        high = nodes - (grid.graph - number) * grid.feature
        bounds.append(int(min(max(cut, low), high)))
    return RowRanges((*bounds, nodes), grid.feature)


def build_graph(ctx: RunContext, edges: Edges, ranges: RowRanges) -> Csr:
    """Shuffle the edges to their owners and build the CSR of our sub-range.

    ``edges`` is emptied. Collective: every rank must call.
    """
    keys, weights = shuffle_edges(ctx.exchange, ranges, edges.chunks, weighted=edges.weighted)
    ctx.progress("csr", 0.4)
    first, last = ranges.worker(ctx.grid.rank)
    if ctx.edges.self_loops == "add":
        keys, weights = _add_loops(keys, weights, first, last, ranges.nodes)
    return build_csr(
        keys,
        weights,
        last - first,
        ranges.nodes,
        first=first,
        remove_duplicates=ctx.edges.duplicates == "remove",
    )


def _add_loops(
    keys: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32] | None,
    first: int,
    last: int,
    nodes: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32] | None]:
    """Append a self-loop of weight 1 for every row of ours that has none."""
    bits = column_bits(nodes)
    rows = keys >> bits
    without = np.ones(last - first, bool)
    without[rows[(keys & ((1 << bits) - 1)) == rows + first]] = False
    missing = np.flatnonzero(without)
    keys = np.concatenate([keys, (missing << bits) | (missing + first)])
    if weights is not None:
        weights = np.concatenate([weights, np.ones(len(missing), np.float32)])
    return keys, weights


def gather_partition(ctx: RunContext, ranges: RowRanges, sub_range: Csr) -> Csr:
    """Our partition's CSR from its M ranks' sub-ranges.

    Sends each sub-range once to each of the M - 1 others: 4 bytes per edge (8 with weights)
    and 8 per row. Collective: every rank of the feature axis must call.
    """
    channel = ctx.exchange.channel("feature", "csr")
    if channel.axis.size == 1:
        return sub_range

    def gather(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat(channel.all_gather(tensor.to(channel.device))).cpu()

    counts = gather(sub_range.indptr.diff())
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    weights = None if sub_range.weights is None else gather(sub_range.weights)
    first = ranges.partition(ctx.grid.p)[0]
    return Csr(first, indptr, gather(sub_range.cols).to(id_type(ranges.nodes)), weights)
