"""Attention over in-edges: additive scores by scalar exchange, pair scores by SDDMM.

Additive attention (GAT) needs one number per node and head from each end, so N * heads
scalars travel instead of features, which beats the general SDDMM. Scores that need both ends'
features (GATv2, dot product) follow Deal's approach (ii), section 3.4, Table 3: a partition's
rows are split among its M workers, each scores its rows' non-zeros with full-width features,
and the shares are exchanged on the feature axis. A worker gets the numbers of those heads only
that its columns belong to. A row's softmax is local, since every worker of a partition holds
whole rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch

from embertide.footprint import FLOAT_BYTES, mean_heads
from embertide.graph.arriving import (
    arriving,
    arriving_rows,
    every_row,
    reduced,
    tile_operand,
)
from embertide.graph.edge_values import (
    AnyEdgeValues,
    EdgeValues,
    GhostEdgeValues,
    SpilledEdgeValues,
    room_for,
)
from embertide.graph.exchange import Channel
from embertide.graph.ghosts import GhostChannel, GhostSources, ghosts_of
from embertide.graph.moves import HeadScores
from embertide.graph.sources import Sources
from embertide.grid import ColumnSlices, Grid, RowRanges
from embertide.kernels import attention as kernels
from embertide.kernels.ghosts import on_ghosts
from embertide.kernels.heads import HeadColumns, PairScore, RowSums


@dataclass(frozen=True)
class _MeanColumns(HeadColumns):
    """Columns of a mean worker, and the heads that they belong to on average."""

    mean: float

    @property
    def count(self) -> int:
        return cast(int, self.mean)


def _mean_columns(channel: Channel, heads: int, width: int) -> HeadColumns:
    mean = mean_heads(heads, channel.grid.feature)
    return _MeanColumns(heads, width, 0, cast(int, width / channel.grid.feature), mean)


@on_ghosts(_mean_columns)
def own_heads(channel: Channel, heads: int, width: int) -> HeadColumns:
    """Our columns of a tensor whose ``width`` columns are those of ``heads`` heads."""
    return head_columns(channel.grid, heads, width, channel.grid.m)


def head_columns(grid: Grid, heads: int, width: int, m: int) -> HeadColumns:
    """The columns of slice m of a tensor whose ``width`` columns are those of ``heads`` heads."""
    return HeadColumns(heads, width, *ColumnSlices(width, grid.feature).bounds(m))


def _scatter_ghosts(
    channel: Channel,
    rows: torch.Tensor,
    width: int,  # noqa: ARG001
) -> torch.Tensor:
    assert isinstance(channel, GhostChannel)
    exchange, primitive, others = channel.exchange, channel.label.primitive, channel.grid.feature
    (relation,), heads = channel.relations, round(rows.shape[1])
    size = exchange.size.of_relation(relation)
    of: Literal["edge", "source", "target"] = "edge"
    if primitive == "scalars":
        of = "target" if rows.shape[0] == size.nodes / size.workers else "source"
    exchange.moves.append(HeadScores(channel.label.layer, relation, heads, primitive, of))
    if others == 1:
        return rows
    all_rows, columns = rows.shape[0] * others, mean_heads(heads, others)
    sent = exchange.tensor(rows.shape[0], columns * others)
    received = exchange.tensor(all_rows, columns)
    del sent
    return torch.cat([received])


@on_ghosts(_scatter_ghosts)
def scatter_heads(channel: Channel, rows: torch.Tensor, width: int) -> torch.Tensor:
    """[k, H] of our sub-range -> [K, H'] of the partition, for the heads of our columns.

    Receives the other sub-ranges' K - k rows of H' values. Collective: every rank of the feature
    axis must call.

    Args:
        channel: of the feature axis.
        rows: one number per head of each node or edge of our sub-range.
        width: columns of the tensor that the heads make up.
    """
    received = _scattered(channel, rows, width)
    return received[0] if len(received) == 1 else torch.cat(received)


def _scattered(channel: Channel, rows: torch.Tensor, width: int) -> list[torch.Tensor]:
    """The numbers that each worker of the partition sends of its rows, for the heads of ours."""
    if channel.grid.feature == 1:
        return [rows]
    heads = rows.shape[1]
    slices = (head_columns(channel.grid, heads, width, m).span for m in range(channel.axis.size))
    return channel.all_to_all([rows[:, span].contiguous() for span in slices])


Softmax = Callable[[slice, torch.Tensor], None]
"""Makes shares of the scores of some rows' edges [e, H], in place."""


def _ghost_shares(
    channel: Channel,
    scores: AnyEdgeValues,
    tiles: Sources,
    targets: RowRanges,
    width: int,
    softmax: Softmax,
) -> AnyEdgeValues:
    if isinstance(scores, EdgeValues):
        return _shares_in_memory(channel, scores, tiles, width, softmax)
    assert isinstance(scores, GhostEdgeValues)
    assert isinstance(tiles, GhostSources)
    heads = own_heads(channel, round(scores.columns), width).count
    made, rows = GhostEdgeValues(tiles, heads), slice(0, targets.within(0)[1])
    for first, last in scores.spans():
        values = scores.part(first, last)
        softmax(rows, values)
        made.set_part(first, _scatter_ghosts(channel, values, width))
    return made


@on_ghosts(_ghost_shares)
def shares_of(
    channel: Channel,
    scores: AnyEdgeValues,
    tiles: Sources,
    targets: RowRanges,
    width: int,
    softmax: Softmax,
) -> AnyEdgeValues:
    """[nnz of the partition, H'] of scores [nnz of our sub-range, H], which are used up.

    On disk a part of each sub-range is in memory at a time, and as many are sent one after another.
    Collective: every rank of the feature axis must call.

    Args:
        channel: of the feature axis.
        tiles: sources of the partition's non-zeros.
        targets: which worker owns which rows.
        width: columns of the tensor that the heads make up.

    Raises:
        StorageError: the disk has no room, or cannot be read or written.
    """
    if isinstance(scores, EdgeValues):
        return _shares_in_memory(channel, scores, tiles, width, softmax)
    assert isinstance(scores, SpilledEdgeValues)
    heads = own_heads(channel, scores.values.width, width).count
    made, cuts = SpilledEdgeValues.room(tiles, heads), scores.sources.on_disk.cuts
    parts = [tiles.on_disk.parts_of(*targets.within(rank)) for rank in channel.axis.ranks]
    for number in range(max(map(len, parts))):
        values = torch.empty(0, scores.values.width)
        if number + 1 < len(cuts):
            values = scores.part(number)
            softmax(slice(*cuts[number : number + 2]), values)
        received = _scattered(channel, values, width)
        del values
        for of_rank in parts:
            own = received.pop(0)
            if number < len(of_rank):
                made.set_part(of_rank[number], own)
    return made


def _shares_in_memory(
    channel: Channel, scores: EdgeValues, tiles: Sources, width: int, softmax: Softmax
) -> EdgeValues:
    softmax(slice(0, scores.sources.outputs), scores.values)
    return EdgeValues(tiles, scatter_heads(channel, scores.values, width))


def _fetch_ghosts(
    channel: Channel,
    sources: Sources,
    scores: Sequence[torch.Tensor],
    depth: int,  # noqa: ARG001
) -> list[list[torch.Tensor]]:
    """Scores of remote rows; for several steps also those of our rows, joined and cut again."""
    assert isinstance(sources, GhostSources)
    exchange, union = ghosts_of(channel), sources.union
    heads = sum(score.shape[1] for score in scores)
    exchange.moves.append(sources.move(heads, channel.label.primitive, scaled=False))
    own = 2 * union.columns / union.graph if len(scores) > 1 else 0.0
    fetched = own + (union.unique() if union.graph > 1 else 0.0)
    part = exchange.buffer(FLOAT_BYTES * heads * fetched)
    return [[part, part] for _ in scores]


@on_ghosts(_fetch_ghosts)
def fetch_scalars(
    channel: Channel, sources: Sources, scores: Sequence[torch.Tensor], depth: int
) -> list[list[torch.Tensor]]:
    """The parts of each of several scores by group: ours first, then [slots, H'] per remote group.

    All scores of a row travel together. Collective: every rank of the graph axis must call.

    Args:
        channel: of the graph axis.
        scores: [N/P, H'] of our partition each, for the heads of our columns.
    """
    beside = scores[0] if len(scores) == 1 else torch.cat(list(scores), 1)
    pick = tile_operand(beside).pick
    groups = arriving(channel, sources, beside, pick, width=beside.shape[1], depth=depth)
    widths = [score.shape[1] for score in scores]
    window = sources.window
    held = (one.source if window is None else window.copy(one.source) for one in groups)
    if window is not None:
        own = window.slice(sources.axis.index)
        remote = int(window.bounds[-1] - window.bounds[0]) - (own.stop - own.start)
        channel.read_in_place(remote * beside.element_size() * beside.shape[1])
    cut = ([part.contiguous() for part in one.split(widths, 1)] for one in held)
    return [list(of_one) for of_one in zip(*cut, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Additive:
    """Additive attention over one matrix.

    Attributes:
        scalars: of the sources, of :func:`fetch_scalars`.
        target: [N/P, H'] for the heads of our columns.
        slope: of the leaky ReLU.
        weighted: multiply by the stored weights after the softmax.
    """

    sources: Sources
    scalars: list[torch.Tensor]
    target: torch.Tensor
    heads: HeadColumns
    slope: float
    weighted: bool


def attend(
    channel: Channel, tile: torch.Tensor, parts: Sequence[Additive], *, depth: int
) -> list[torch.Tensor]:
    """out[i, h] = sum over j of softmax_j(leaky_relu(source_jh + target_ih)) (* w_ij) * x[j, h].

    Of several matrices over the same rows, each of which travels once. Rows without in-edges are
    zero. Collective: every rank of the graph axis must call.

    Args:
        channel: of the graph axis.
        tile: [N/P, H*F/M].
        parts: their sources were found together, see :func:`find_sources`.

    Returns:
        [outputs, H*F/M] of each in the ``tile`` layout.
    """
    blocks = 1 + len(parts[0].sources.remote)
    every = [
        RowSums.begin(tile, part.sources.outputs, part.heads, softmax_blocks=blocks)
        for part in parts
    ]
    for arrived in arriving_rows(channel, parts[0].sources, tile, depth):
        at = 0 if arrived.number is None else 1 + arrived.number
        for part, sums in zip(parts, every, strict=True):
            for rows, block in part.sources.parts(arrived.number):
                kernels.add_additive(
                    sums.part(rows),
                    block,
                    arrived.source,
                    part.scalars[at],
                    part.target[rows],
                    slope=part.slope,
                    weighted=part.weighted,
                )
            sums.fresh = False
            reduced(channel, part.sources, arrived.number, arrived.source)
    return [sums.out for sums in every]


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Attention with scores of keys and queries over one matrix.

    Attributes:
        query: [outputs, H*F] of the targets' ends.
        sums: of all columns, to be added to.
        weighted: multiply by the stored weights after the softmax.
    """

    sources: Sources
    query: torch.Tensor
    score: PairScore
    sums: RowSums
    weighted: bool


def attend_pairs(
    channel: Channel, x: torch.Tensor, key: torch.Tensor, parts: Sequence[Pairs]
) -> None:
    """:func:`attend` with scores of keys and queries, where a rank reads every row there is.

    No score exists longer than it takes to add its row. Collective: every rank of the graph axis
    must call.

    Args:
        channel: of the graph axis, which has one slice.
        x: [N/P, H*F'].
        key: [N/P, H*F] of the sources' ends.
        parts: their sources were found together.
    """
    with every_row(channel, parts[0].sources, [x, key]) as (values, keys), channel.computing():
        for part in parts:
            for rows, block in part.sources.parts(None):
                kernels.add_pairs(
                    part.sums.part(rows),
                    block,
                    values,
                    keys,
                    part.query[rows],
                    part.score,
                    weighted=part.weighted,
                )
            part.sums.fresh = False
            reduced(channel, part.sources, None, values, keys)


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """Sums over one matrix, whose weights are there already.

    Attributes:
        shares: [nnz of the partition, H'], for the heads of our columns.
        weighted: multiply by the stored weights, too.
    """

    shares: AnyEdgeValues
    heads: HeadColumns
    weighted: bool

    @property
    def sources(self) -> Sources:
        """The sources of the non-zeros that have the shares."""
        return self.shares.sources


def weigh(
    channel: Channel, tile: torch.Tensor, parts: Sequence[Weighing], *, depth: int
) -> list[torch.Tensor]:
    """out[i, h] = sum over in-edges of shares_ijh (* w_ij) * x[j, h], in the ``tile`` layout.

    Of several matrices, as :func:`attend`. Collective: every rank of the graph axis must call.

    Args:
        channel: of the graph axis.
        tile: [N/P, H*F/M].
    """
    every = [RowSums.begin(tile, part.sources.outputs, part.heads) for part in parts]
    for arrived in arriving_rows(channel, parts[0].sources, tile, depth):
        for part, sums in zip(parts, every, strict=True):
            for rows, block, shares in part.shares.of(arrived.number):
                kernels.add_shares(
                    sums.part(rows), block, arrived.source, shares, weighted=part.weighted
                )
            sums.fresh = False
            reduced(channel, part.sources, arrived.number, arrived.source)
    return [sums.out for sums in every]


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Scores of one matrix's non-zeros.

    Attributes:
        sources: of our sub-range's CSR over the ``rows`` layout, with ``edges``.
        queries: [rows, D] of the targets' ends, ``rows`` layout.
    """

    sources: Sources
    queries: torch.Tensor
    score: PairScore


def sddmm(
    channel: Channel, keys: torch.Tensor, parts: Sequence[Scoring], *, depth: int
) -> list[AnyEdgeValues]:
    """Scores of our sub-range's non-zeros from full-width features of both ends.

    Of several matrices, as :func:`attend`. Receives ``unique * D`` values. Collective: every rank
    must call.

    Args:
        channel: of the world axis.
        keys: [N/(P*M), D] of the sources' ends, ``rows`` layout.

    Returns:
        [nnz of the sub-range, H] of each.
    """
    every = [room_for(part.queries, part.sources, part.score.heads) for part in parts]
    for arrived in arriving_rows(channel, parts[0].sources, keys, depth):
        for part, out in zip(parts, every, strict=True):
            for rows, block, scores in out.to_set(arrived.number):
                kernels.set_pair_scores(
                    scores, block, arrived.source, part.queries[rows], part.score
                )
            reduced(channel, part.sources, arrived.number, arrived.source)
    return every
