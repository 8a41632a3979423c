"""Attention over in-edges: additive scores by scalar exchange, pair scores by SDDMM.

Additive attention (GAT) needs one number per node and head from each end, so N * heads
scalars travel instead of features, which beats the general SDDMM. Scores that need both ends'
features (GATv2, dot product) follow Deal's approach (ii), section 3.4, Table 3: a partition's
rows are split among its M workers, each scores its rows' non-zeros with full-width features,
and the scores are all-gathered on the feature axis. A row's softmax is local, since every
worker of a partition holds whole rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import leaky_relu

from embertide.grid import ColumnSlices
from embertide.kernels.block import (
    Chunk,
    add_chunk,
    segment_max,
    segment_sum,
    sum_chunk,
)
from embertide.primitives.exchange import Channel
from embertide.primitives.sources import Sources
from embertide.primitives.spmm import arriving, tile_operand

PairScore = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(keys [e, H*F], queries [e, H*F]) -> scores [e, H]."""

ChunkScores = Callable[[Chunk], torch.Tensor]
"""A chunk of e non-zeros -> its scores [e, H]."""

PAIR_VALUES = 1 << 23
"""Float values gathered at a time for pair scores."""


def fetch_scalars(
    channel: Channel, sources: Sources, scores: torch.Tensor, depth: int
) -> list[torch.Tensor]:
    """Each group's source scalars: ours first, then [slots, H] per remote group.

    Collective: every rank of the graph axis must call.

    Args:
        channel: of the graph axis.
        scores: [N/P, H] of our partition.
    """
    operand = tile_operand(scores)
    groups = arriving(channel, sources, scores, operand.pick, width=scores.shape[1], depth=depth)
    return [arrived.source for arrived in groups]


class AdditiveScores:
    """exp(leaky_relu(source_j + target_i) - row maximum) of any chunk, and its row sums.

    Args:
        scalars: per group, what its indices point into, [s, H].
        target: [N/P, H].
    """

    def __init__(
        self, sources: Sources, scalars: list[torch.Tensor], target: torch.Tensor, slope: float
    ) -> None:
        self.blocks = [sources.local, *sources.remote]
        self.scalars = dict(zip(map(id, self.blocks), scalars, strict=True))
        self.target = target
        self.slope = slope
        self.top = self._row_maxima()
        self.total = torch.zeros_like(target)

    def raw(self, chunk: Chunk) -> torch.Tensor:
        """[e, H] scores before the softmax."""
        scores = self.scalars[id(chunk.block)].index_select(0, chunk.indices)
        scores += self.spread(self.target, chunk)
        return leaky_relu(scores, self.slope, inplace=True)

    @staticmethod
    def spread(values: torch.Tensor, chunk: Chunk) -> torch.Tensor:
        """[e, H] a row's value for each of its non-zeros."""
        return values[chunk.rows].repeat_interleave(
            chunk.lengths, dim=0, output_size=chunk.stop - chunk.start
        )

    def _row_maxima(self) -> torch.Tensor:
        top = torch.full_like(self.target, float("-inf"))
        for block in self.blocks:
            for chunk in block.chunks():
                best = segment_max(self.raw(chunk), chunk.lengths)
                top[chunk.rows] = torch.maximum(top[chunk.rows], best)
        return top

    def __call__(self, chunk: Chunk) -> torch.Tensor:
        """[e, H] unnormalised weights; adds them to ``total``."""
        weights = self.raw(chunk)
        weights -= self.spread(self.top, chunk)
        weights.exp_()
        self.total[chunk.rows] += segment_sum(weights, chunk.lengths)
        return weights


def attend(
    channel: Channel,
    sources: Sources,
    tile: torch.Tensor,
    scores: ChunkScores,
    *,
    heads: int,
    width: int,
    depth: int,
    weighted: bool,
) -> torch.Tensor:
    """out[i, h] = sum over in-edges of scores_ijh (* w_ij) * x[j, h], in the ``tile`` layout.

    Collective: every rank of the graph axis must call.

    Args:
        channel: of the graph axis.
        tile: [N/P, H*F/M]; a slice may cut through a head.
        scores: [e, H] of a chunk; called once for every chunk.
        width: H*F.
    """
    spans = head_spans(
        heads, width, *ColumnSlices(width, channel.grid.feature).bounds(channel.grid.m)
    )
    out = tile.new_zeros(sources.outputs, tile.shape[1])
    operand = tile_operand(tile)
    groups = arriving(
        channel, sources, tile, operand.pick, width=tile.shape[1], depth=depth, reuse=True
    )
    for arrived in groups:
        per_head = [arrived.source[:, columns].contiguous() for _, columns in spans]
        for chunk in arrived.block.chunks():
            values = scores(chunk)
            if weighted and chunk.weights is not None:
                values = values * chunk.weights.unsqueeze(1)
            for (head, columns), source in zip(spans, per_head, strict=True):
                summed = sum_chunk(chunk, source, values[:, head].contiguous())
                add_chunk(out[:, columns], chunk, summed)
    return out


def head_spans(heads: int, width: int, start: int, stop: int) -> list[tuple[int, slice]]:
    """(head, its columns counted from ``start``) of the column slice ``start..stop``."""
    per_head = width // heads
    spans = []
    for head in range(heads):
        low, high = max(start, head * per_head), min(stop, (head + 1) * per_head)
        if low < high:
            spans.append((head, slice(low - start, high - start)))
    return spans


def divide_heads(out: torch.Tensor, total: torch.Tensor, spans: list[tuple[int, slice]]) -> None:
    """Divide each head's columns by its [n, H] total, in place; rows without edges stay zero."""
    inverse = total.reciprocal().masked_fill_(total == 0, 0.0)
    for head, columns in spans:
        out[:, columns] *= inverse[:, head : head + 1]


def sddmm(
    channel: Channel,
    sources: Sources,
    keys: torch.Tensor,
    queries: torch.Tensor,
    score: PairScore,
    *,
    heads: int,
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
    out = keys.new_empty(nnz, heads)
    limit = max(1, PAIR_VALUES // keys.shape[1])
    operand = tile_operand(keys)
    groups = arriving(
        channel, sources, keys, operand.pick, width=keys.shape[1], depth=depth, reuse=True
    )
    for arrived in groups:
        for chunk in arrived.block.chunks(limit):
            key = arrived.source.index_select(0, chunk.indices)
            out[chunk.edges] = score(key, AdditiveScores.spread(queries, chunk))
    return out


def row_softmax(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """[nnz, H] softmax over each row's run of scores."""
    nnz = len(scores)
    top = segment_max(scores, lengths)
    weights = (scores - top.repeat_interleave(lengths, dim=0, output_size=nnz)).exp_()
    total = segment_sum(weights, lengths)
    return weights.div_(total.repeat_interleave(lengths, dim=0, output_size=nnz))
