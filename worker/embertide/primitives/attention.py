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

import torch

from embertide.grid import ColumnSlices, Grid
from embertide.kernels import attention as kernels
from embertide.kernels.heads import HeadColumns, PairScore, RowSums
from embertide.primitives.exchange import Channel
from embertide.primitives.sources import Sources
from embertide.primitives.spmm import arriving, tile_operand


def head_columns(grid: Grid, heads: int, width: int, m: int) -> HeadColumns:
    """The columns of slice m of a tensor whose ``width`` columns are those of ``heads`` heads."""
    return HeadColumns(heads, width, *ColumnSlices(width, grid.feature).bounds(m))


def scatter_heads(channel: Channel, rows: torch.Tensor, width: int) -> torch.Tensor:
    """[k, H] of our sub-range -> [K, H'] of the partition, for the heads of our columns.

    Receives the other sub-ranges' K - k rows of H' values. Collective: every rank of the feature
    axis must call.

    Args:
        channel: of the feature axis.
        rows: one number per head of each node or edge of our sub-range.
        width: columns of the tensor that the heads make up.
    """
    if channel.grid.feature == 1:
        return rows
    heads = rows.shape[1]
    slices = (head_columns(channel.grid, heads, width, m).span for m in range(channel.axis.size))
    return torch.cat(channel.all_to_all([rows[:, span].contiguous() for span in slices]))


def fetch_scalars(
    channel: Channel, sources: Sources, scores: torch.Tensor, depth: int
) -> list[torch.Tensor]:
    """Each group's source scalars: ours first, then [slots, H'] per remote group.

    Collective: every rank of the graph axis must call.

    Args:
        channel: of the graph axis.
        scores: [N/P, H'] of our partition, for the heads of our columns.
    """
    operand = tile_operand(scores)
    groups = arriving(channel, sources, scores, operand.pick, width=scores.shape[1], depth=depth)
    return [arrived.source for arrived in groups]


def attend(
    channel: Channel,
    sources: Sources,
    tile: torch.Tensor,
    scalars: list[torch.Tensor],
    target: torch.Tensor,
    *,
    heads: HeadColumns,
    slope: float,
    depth: int,
    weighted: bool,
) -> torch.Tensor:
    """out[i, h] = sum over j of softmax_j(leaky_relu(source_jh + target_ih)) (* w_ij) * x[j, h].

    Rows without in-edges are zero. Collective: every rank of the graph axis must call.

    Args:
        channel: of the graph axis.
        tile: [N/P, H*F/M].
        scalars: of :func:`fetch_scalars`.
        target: [N/P, H'] for the heads of our columns.

    Returns:
        [N/P, H*F/M] in the ``tile`` layout.
    """
    blocks = 1 + len(sources.remote)
    sums = RowSums.begin(tile, sources.outputs, heads, softmax_blocks=blocks)
    operand = tile_operand(tile)
    groups = arriving(channel, sources, tile, operand.pick, width=tile.shape[1], depth=depth)
    for arrived, source in zip(groups, scalars, strict=True):
        kernels.add_additive(
            sums, arrived.block, arrived.source, source, target, slope=slope, weighted=weighted
        )
        channel.reduced(arrived.block)
    return sums.out


def attend_pairs(
    sources: Sources,
    x: torch.Tensor,
    key: torch.Tensor,
    query: torch.Tensor,
    score: PairScore,
    sums: RowSums,
    *,
    weighted: bool,
) -> None:
    """:func:`attend` with scores of keys and queries, where one worker holds everything.

    Args:
        x: [N, H*F'].
        key: [N, H*F] of the sources' ends.
        query: [N, H*F] of the targets' ends.
        sums: of all columns, to be added to.
    """
    kernels.add_pairs(sums, sources.local, x, key, query, score, weighted=weighted)


def weigh(
    channel: Channel,
    sources: Sources,
    tile: torch.Tensor,
    shares: torch.Tensor,
    *,
    heads: HeadColumns,
    depth: int,
    weighted: bool,
) -> torch.Tensor:
    """out[i, h] = sum over in-edges of shares_ijh (* w_ij) * x[j, h], in the ``tile`` layout.

    Collective: every rank of the graph axis must call.

    Args:
        channel: of the graph axis.
        tile: [N/P, H*F/M].
        shares: [nnz of the partition, H'] in CSR order, for the heads of our columns.
    """
    sums = RowSums.begin(tile, sources.outputs, heads)
    operand = tile_operand(tile)
    groups = arriving(
        channel, sources, tile, operand.pick, width=tile.shape[1], depth=depth, reuse=True
    )
    for arrived in groups:
        kernels.add_shares(sums, arrived.block, arrived.source, shares, weighted=weighted)
        channel.reduced(arrived.block)
    return sums.out


def sddmm(
    channel: Channel,
    sources: Sources,
    keys: torch.Tensor,
    queries: torch.Tensor,
    score: PairScore,
    *,
    depth: int,
) -> torch.Tensor:
    """Scores of our sub-range's non-zeros from full-width features of both ends.

    Receives ``unique * D`` values. Collective: every rank must call.

    Args:
        channel: of the world axis.
        sources: of our sub-range's CSR over the ``rows`` layout, with ``edges``.
        keys: [N/(P*M), D] of the sources' ends, ``rows`` layout.
        queries: [N/(P*M), D] of the targets' ends, ``rows`` layout.

    Returns:
        [nnz of the sub-range, H] in CSR order.
    """
    nnz = sources.local.nnz + sum(block.nnz for block in sources.remote)
    out = keys.new_empty(nnz, score.heads)
    operand = tile_operand(keys)
    groups = arriving(
        channel, sources, keys, operand.pick, width=keys.shape[1], depth=depth, reuse=True
    )
    for arrived in groups:
        kernels.set_pair_scores(out, arrived.block, arrived.source, queries, score)
        channel.reduced(arrived.block)
    return out
