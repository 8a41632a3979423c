"""Row ranges and the distributed CSR: cut, shuffle, sort, gather.

Rows are cut so that work balances: half of a row's cost is its share of the nodes, half its
share of the edges, which keeps both within a factor of two of the ideal whatever the degree
distribution (MGG cuts by edges alone; nodes are what memory and dense steps pay for). Where a
worker's memory would go far beyond its plan, work balances a little less, and memory more. The
cuts come from a fixed-size histogram, never from a vector of N counters.

Each rank sorts its own sub-range; the M ranks of a partition then all-gather theirs, straight
into the arrays that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from embertide.context import RunContext
from embertide.engine.planning.growth import EVEN, Growth
from embertide.graph.exchange import Channel, Exchange
from embertide.graph.shuffle import Edges, histogram_size, shuffle_edges
from embertide.grid import Grid, RowRanges
from embertide.kernels.csr import Csr, add_loops
from embertide.kernels.edge_features import added_loop_features
from embertide.kernels.hashing import Words
from embertide.kernels.memory import empty
from embertide.kernels.sample import sample_rows
from embertide.kernels.spilled_csr import AnyCsr, SpilledCsr, SpilledRows
from embertide.spec.edges import EdgeInput

Grown = Callable[[], Sequence[Growth]]
"""What workers' rows of a node type and the edges into them may take, stage by stage."""
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_ROW_SHARES = sorted((step / 32 for step in range(33)), key=lambda share: abs(share - 0.5))
"""The share of rows in a row's cost; from the one that balances work to rows or edges alone."""
_BISECTIONS = 30


def choose_ranges(
    ctx: RunContext, incoming: Sequence[Edges], nodes: int, grown: Grown = lambda: ()
) -> RowRanges:
    """Cut the rows of a node type over the grid from the histogram of all ranks.

    Collective: every rank must call.

    Args:
        incoming: of every relation that leads to the type.
        grown: what workers' rows and edges may take, the same on every rank.
    """
    shift, buckets = histogram_size(nodes)
    histogram = sum((edges.histogram for edges in incoming), np.zeros(buckets, np.int64))
    channel = ctx.exchange.channel("world", "histogram")
    total = channel.all_reduce(torch.from_numpy(histogram)).numpy()
    return cut_ranges(total, 1 << shift, nodes, ctx.grid, grown)


def cut_ranges(
    histogram: npt.NDArray[np.int64],
    bucket: int,
    nodes: int,
    grid: Grid,
    grown: Grown = lambda: (),
) -> RowRanges:
    """Bounds of partitions and of the sub-ranges in them; inside a bucket a cut is interpolated.

    A row costs as much as the mean row's edges do, so that no worker has more than twice the mean
    of rows, nor of edges but for those of one bucket. Where that takes more memory than workers
    may take, rows weigh more or less, as little as is enough; where no weight is, the fullest
    worker is as empty as it can be. Every worker has a row where there are enough nodes.

    Args:
        histogram: edges per ``bucket`` consecutive nodes, the last bucket possibly short.
        grown: what workers' rows and edges may take; asked where they are uneven.
    """
    starts = np.minimum(np.arange(len(histogram) + 1) * bucket, nodes)
    before = np.concatenate([[0], np.cumsum(histogram)])

    def sizes(bounds: list[int]) -> tuple[_Floats, _Floats]:
        return np.diff(bounds).astype(float), np.diff(np.interp(bounds, starts, before))

    def fullest(bounds: list[int]) -> float:
        return max(1.0, *(limit.share(*sizes(bounds)) for limit in limits))

    bounds = _cut(starts, before, grid, 0.5)
    uneven = max(each.max() / max(1.0, each.mean()) for each in sizes(bounds))
    limits = grown() if uneven > EVEN else ()
    if limits:
        cuts = [_cut(starts, before, grid, rows) for rows in _ROW_SHARES]
        bounds = min((*cuts, _level(starts, before, grid, limits)), key=fullest)
    return RowRanges.of_workers(bounds, grid.feature)


def _cut(starts: _Ints, before: _Ints, grid: Grid, row_share: float) -> list[int]:
    """The W + 1 bounds of workers that cost the same.

    Args:
        starts: of the buckets, and where the last one ends.
        before: edges into the nodes before each of them.
        row_share: of a node's cost; the rest is its share of the edges.
    """
    nodes, edges = int(starts[-1]), max(1, int(before[-1]))
    cumulative = row_share * starts / nodes + (1 - row_share) * before / edges
    targets = cumulative[-1] * np.arange(1, grid.world) / grid.world
    return _with_rows(np.interp(targets, cumulative, starts), nodes, grid)


def _level(starts: _Ints, before: _Ints, grid: Grid, limits: Sequence[Growth]) -> list[int]:
    """The W + 1 bounds of which the fullest worker takes the least that it can.

    One after the other takes as many rows as come to a share of the most, and the share is the
    smallest with which all rows are taken, by bisection.
    """
    taken = [limit.row_bytes * starts + limit.edge_bytes * before for limit in limits]

    def filled(share: float) -> list[float]:
        cuts = [0.0]
        for _ in range(grid.world):
            ends = [
                np.interp(np.interp(cuts[-1], starts, of) + share * limit.most_bytes, of, starts)
                for limit, of in zip(limits, taken, strict=True)
            ]
            cuts.append(float(min(ends)))
        return cuts[1:]

    sums = starts[-1:].astype(float), before[-1:].astype(float)
    low, high = 0.0, max(limit.share(*sums) for limit in limits)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if filled(middle)[-1] >= starts[-1] else (middle, high)
    return _with_rows(filled(high)[:-1], int(starts[-1]), grid)


def _with_rows(cuts: Sequence[float] | _Floats, nodes: int, grid: Grid) -> list[int]:
    """The W + 1 bounds of cuts at whole nodes, with a row for each worker if there are enough."""
    bounds, least = [0], min(1, nodes // grid.world)
    for number, cut in enumerate(np.round(cuts).astype(int), 1):
        low = bounds[-1] + least
        high = nodes - (grid.world - number) * least
        bounds.append(int(min(max(cut, low), high)))
    return [*bounds, nodes]


def build_graph(
    ctx: RunContext,
    edge: EdgeInput,
    edges: Edges,
    ranges: RowRanges,
    sources: int,
    relation: str = "",
    see: Callable[[Csr], None] = lambda _csr: None,
) -> AnyCsr:
    """Shuffle a relation's edges to their owners and build the CSR of our sub-range.

    ``edges`` is emptied. Collective: every rank must call.

    Args:
        edge: what the manifest says of these edges.
        ranges: of the destination type.
        sources: nodes of the source type.
        relation: whose edges they are, where there are several.
        see: gets our rows, some at a time, before self-loops are added.

    Raises:
        StorageError: the disk of a graph that is there has no room, or cannot be read or written.
    """
    scratch = ctx.disk
    sorter = shuffle_edges(ctx.exchange, ranges, edges, sources, relation, scratch)
    ctx.progress("csr", 0.4)
    sorted_parts = sorter.parts(remove_duplicates=edge.duplicates == "remove")

    def looped(csr: Csr) -> Csr:
        see(csr)
        return _with_loops(edge, csr)

    parts = map(looped, sorted_parts)
    if scratch is None:
        return next(parts)
    first, last = ranges.worker(ctx.grid.rank)
    return SpilledCsr.write(scratch, first, last - first, parts)


def _with_loops(edge: EdgeInput, csr: Csr) -> Csr:
    """The rows with the self-loops that the manifest adds."""
    if not edge.adds_loops:
        return csr
    more = edge.self_loops == "addToAll"
    looped = add_loops(csr, 1.0, more=more)
    if csr.features is None:
        return looped
    features = added_loop_features(csr, looped, csr.features, more=more)
    return replace(looped, features=features)


def gather_partition(
    exchange: Exchange, ranges: RowRanges, sub_range: AnyCsr, relation: str = ""
) -> AnyCsr:
    """Our partition's CSR from its M ranks' sub-ranges, received in their places.

    Sends each sub-range once to each of the M - 1 others: 4 bytes per edge (8 with weights)
    and 8 per row. On disk a part of each is in memory at a time. Features of edges stay where
    they are. Collective: every rank must call.

    Raises:
        StorageError: the disk has no room, or cannot be read or written.
    """
    channel = exchange.channel("feature", "csr", relations=[relation])
    if channel.axis.size == 1:
        return sub_range.without_features()
    counts = torch.full((channel.axis.size, 1), sub_range.nnz)
    edges = channel.sizes(counts)[:, 0].tolist()
    spans = [ranges.within(rank) for rank in channel.axis.ranks]
    rows = [stop - start for start, stop in spans]
    first, last = ranges.partition(exchange.grid.p)
    indptr = torch.zeros(last - first + 1, dtype=torch.int64)
    _gather(channel, sub_range.indptr[1:], rows, indptr[1:])
    before = 0
    for (start, stop), count in zip(spans, edges, strict=True):
        indptr[start + 1 : stop + 1] += before
        before += count
    if isinstance(sub_range, SpilledCsr):
        starts = [start for start, _ in spans]
        return _gather_parts(channel, starts, sub_range, first, indptr)
    cols = empty((sum(edges),), sub_range.cols.dtype)
    weights = None if sub_range.weights is None else empty((sum(edges),))
    _gather(channel, sub_range.cols, edges, cols)
    if sub_range.weights is not None and weights is not None:
        _gather(channel, sub_range.weights, edges, weights)
    return Csr(first, indptr, cols, weights)


def _gather_parts(
    channel: Channel, starts: list[int], own: SpilledCsr, first: int, indptr: torch.Tensor
) -> SpilledCsr:
    """The partition from parts of each rank, which go to the others one after another.

    Args:
        starts: the first row of each rank.
        first, indptr: of the partition.
    """
    axis, kind = channel.axis, own.spilled[0].kind
    every = channel.exchange.all_objects(own.cuts)
    cuts = [
        [start + cut for cut in every[rank]] for rank, start in zip(axis.ranks, starts, strict=True)
    ]
    spilled: list[list[SpilledRows]] = [[] for _ in axis.ranks]
    spilled[axis.index].extend(own.spilled)
    parts = own.parts()
    for number in range(max(map(len, cuts)) - 1):
        _, part = next(parts, (None, None))
        sent = [] if part is None else [t for t in (part.cols, part.weights) if t is not None]
        received: dict[int, list[torch.Tensor]] = {}
        for i in axis.others():
            if number + 1 < len(cuts[i]):
                edges = int(indptr[cuts[i][number + 1]] - indptr[cuts[i][number]])
                received[i] = [empty((edges,), kind)]
                received[i] += [empty((edges,))] if own.weighted else []
        channel.start(
            [(i, values) for i in axis.others() for values in sent],
            [(i, values) for i, both in received.items() for values in both],
        ).wait()
        for i, (columns, *weights) in received.items():
            spilled[i].append(SpilledRows(own.scratch, columns, *weights))
    return SpilledCsr(
        first,
        indptr,
        (0, *(cut for of_rank in cuts for cut in of_rank[1:])),
        tuple(rows for of_rank in spilled for rows in of_rank),
        own.weighted,
        own.scratch,
    )


def _gather(channel: Channel, own: torch.Tensor, sizes: list[int], out: torch.Tensor) -> None:
    """All-gather into ``out`` on the CPU. Collective: every rank of the axis must call."""
    parts = out.split(sizes)
    parts[channel.axis.index].copy_(own)
    others = channel.axis.others()
    channel.start([(i, own) for i in others], [(i, parts[i]) for i in others]).wait()


def sample_layer(sub_range: AnyCsr, keys: Words, fanout: int, seed: int, layer: int) -> AnyCsr:
    """Keep ``fanout`` in-edges of every row of our sub-range that has more, without replacement.

    Deal samples column-wise (section 3.2): one-hop graphs of all nodes, one per layer, from one
    graph structure. The choice is made by a counter-based generator keyed by (seed, layer, node
    id), and the candidates of a row are in an order that no grid changes, so the sample is the same
    on every grid and on every run. Of a graph on disk it is drawn part by part, and written there.

    Args:
        keys: [rows] a stable 64-bit key of each row's node.

    Raises:
        StorageError: the disk of a graph that is there has no room, or cannot be read or written.
    """

    def sample(part: Csr) -> Csr:
        first = part.first - sub_range.first
        return sample_rows(part, keys[first : first + part.rows], fanout, seed, layer)

    return sub_range.rewritten(sample)
