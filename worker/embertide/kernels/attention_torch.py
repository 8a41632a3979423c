"""Attention in torch, in chunks of whole rows: on CUDA, and where native code is not built.

The results are those of the native kernels to rounding. ``embedding_bag`` is the fastest
gather-and-reduce that torch has; it takes one weight per non-zero, so heads are summed one by
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import leaky_relu, leaky_relu_

from embertide.kernels.block import Block, chunk_edges
from embertide.kernels.heads import NO_SCORES, PairScore, RowSums
from embertide.kernels.nodewise import head_dot, pair_dot
from embertide.kernels.sums import sum_rows

PAIR_VALUES = 1 << 23
"""Float values gathered at a time for pair scores."""

NONE = float("-inf")
"""The largest score of a row that has none."""


@dataclass(frozen=True)
class _Rows:
    """A run of a block's rows.

    Attributes:
        rows: output rows, a slice where they are consecutive.
        offsets: [rows + 1] first non-zero of each row, with the indices' type and device.
        lengths: [rows] non-zeros of each row.
        edges: positions in the CSR that the block was cut from.
    """

    rows: torch.Tensor | slice
    offsets: torch.Tensor
    lengths: torch.Tensor
    indices: torch.Tensor
    weights: torch.Tensor | None
    edges: torch.Tensor | slice

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """[e, k] a row's values for each of its non-zeros."""
        return values.repeat_interleave(self.lengths, dim=0, output_size=len(self.indices))


_Scores = Callable[[_Rows], torch.Tensor]


def _runs(block: Block, limit: int | None = None) -> Iterator[_Rows]:
    """Consecutive runs of whole rows with at most ``limit`` non-zeros, or what suits the device."""
    limit = limit or chunk_edges(block.indices.device)
    rows, first = len(block.indptr) - 1, 0
    while first < rows:
        start = int(block.indptr[first])
        last = int(torch.searchsorted(block.indptr, start + limit, right=True)) - 1
        last = min(max(last, first + 1), rows)
        yield _run(block, slice(first, last), slice(start, int(block.indptr[last])))
        first = last


def _run(block: Block, rows: slice, span: slice) -> _Rows:
    local = block.ends[rows.start : rows.stop + 1] - span.start
    indices = block.indices[span]
    return _Rows(
        rows=rows if block.rows is None else block.rows[rows],
        offsets=local.to(indices.dtype),
        lengths=local.diff(),
        indices=indices,
        weights=None if block.weights is None else block.weights[span],
        edges=span if block.edges is None else block.edges[span],
    )


def additive_scores(source: torch.Tensor, target: torch.Tensor, slope: float) -> _Scores:
    """leaky_relu(source_j + target_i) of a run's non-zeros, [e, H]."""

    def scores(run: _Rows) -> torch.Tensor:
        both = source.index_select(0, run.indices).add_(run.spread(target[run.rows]))
        return leaky_relu(both, slope, inplace=True)

    return scores


def pair_scores(key: torch.Tensor, query: torch.Tensor, score: PairScore) -> _Scores:
    """Scores of keys and queries of a run's non-zeros, [e, H]."""

    def scores(run: _Rows) -> torch.Tensor:
        keys, queries = key.index_select(0, run.indices), run.spread(query[run.rows])
        if score.vector is None:
            return pair_dot(keys, queries, score.heads).mul_(score.scale)
        return head_dot(leaky_relu_(keys.add_(queries), score.slope), score.vector)

    return scores


def add_softmax(
    sums: RowSums,
    block: Block,
    x: torch.Tensor,
    scores: _Scores,
    *,
    weighted: bool,
    limit: int | None = None,
) -> None:
    """Continue a softmax over rows, and the sums that it weighs."""
    per_head = _columns_of_heads(sums, x)
    if sums.top is None or sums.total is None:
        sums.top, sums.total = (x.new_empty(len(sums.out), sums.heads.count) for _ in range(2))
    if sums.fresh:
        sums.out.zero_(), sums.top.fill_(NONE), sums.total.zero_()
    for run in _runs(block, limit):
        values = scores(run)
        old = sums.top[run.rows]
        top = torch.maximum(old, _segments(values, "max", run.lengths))
        values = values.sub_(run.spread(top)).exp_()
        before = sums.total[run.rows] * (old - top).exp_().masked_fill_(old == NONE, 0.0)
        total = before + _segments(values, "sum", run.lengths)
        sums.top[run.rows], sums.total[run.rows] = top, total
        inverse = total.reciprocal().masked_fill_(total == 0, 0.0)
        before *= inverse
        values = _weighted(values, run, weighted)
        for head, columns in sums.heads.each():
            more = _sum(run, per_head[head], values[:, head]).mul_(inverse[:, head : head + 1])
            given = sums.out[run.rows, columns] * before[:, head : head + 1]
            sums.out[run.rows, columns] = given.add_(more)


def add_shares(
    sums: RowSums, block: Block, x: torch.Tensor, shares: torch.Tensor, *, weighted: bool
) -> None:
    """Add the sums that given shares weigh."""
    per_head = _columns_of_heads(sums, x)
    if sums.fresh:
        sums.out.zero_()
    for run in _runs(block):
        values = _weighted(shares[run.edges], run, weighted)
        for head, columns in sums.heads.each():
            sums.out[run.rows, columns] += _sum(run, per_head[head], values[:, head])


def set_pair_scores(
    out: torch.Tensor, block: Block, key: torch.Tensor, query: torch.Tensor, score: PairScore
) -> None:
    """Scores of the block's non-zeros at their positions."""
    scores = pair_scores(key, query, score)
    for run in _runs(block, max(1, PAIR_VALUES // key.shape[1])):
        out[run.edges] = scores(run)


def row_softmax_(
    scores: torch.Tensor, indptr: torch.Tensor, logs: torch.Tensor | None = None
) -> torch.Tensor:
    """Softmax over each row's run of scores, in place; ``logs`` of the sums of exp(score)."""
    if not len(scores):
        if logs is not None:
            logs.fill_(NO_SCORES)
        return scores
    lengths, nnz = indptr.diff().to(scores.device), len(scores)
    top = _segments(scores, "max", lengths)
    scores.sub_(top.repeat_interleave(lengths, dim=0, output_size=nnz)).exp_()
    total = _segments(scores, "sum", lengths)
    if logs is not None:
        logs.copy_((top + total.log()).masked_fill_(total == 0, NO_SCORES))
    return scores.div_(total.repeat_interleave(lengths, dim=0, output_size=nnz))


def _columns_of_heads(sums: RowSums, x: torch.Tensor) -> list[torch.Tensor]:
    """Each head's columns of ``x``, contiguous."""
    return [x[:, columns].contiguous() for _, columns in sums.heads.each()]


def _weighted(values: torch.Tensor, run: _Rows, weighted: bool) -> torch.Tensor:
    return values if not weighted or run.weights is None else values * run.weights.unsqueeze(1)


def _sum(run: _Rows, source: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """[rows, width] sum of weight * source[j] over each row."""
    return sum_rows(source, run.indices, run.offsets, weights.contiguous())


def _segments(values: torch.Tensor, reduce: str, lengths: torch.Tensor) -> torch.Tensor:
    """[rows, H] maximum or sum of each run of rows of ``values``; of none -inf or zero."""
    if reduce == "max":
        return torch.segment_reduce(values, "max", lengths=lengths, axis=0, initial=NONE)
    # A long row's shares are too many to be summed one after the other in float32.
    total = torch.segment_reduce(values.double(), "sum", lengths=lengths, axis=0, initial=0.0)
    return total.float()
