"""Reductions of messages by row, to which runs of edges are added one after the other.

A row's messages may arrive in any number of parts, and what is kept between them is a few rows'
worth: the result so far, and what merging another part into it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from embertide.kernels.block import Block
from embertide.kernels.heads import NO_SCORES
from embertide.kernels.memory import empty_as

Reduce = Literal["sum", "mean", "max", "min", "var", "std", "softmax"]


@dataclass(frozen=True)
class EdgeRun:
    """Consecutive non-zeros of a block.

    Attributes:
        rows: [r] int64 output rows, each once.
        lengths: [r] int64 non-zeros of each, at least 1.
        span: the non-zeros, in the block's order.
    """

    rows: Tensor
    lengths: Tensor
    span: slice

    def spread(self, values: Tensor) -> Tensor:
        """[e, k] a row's values for each of its non-zeros."""
        size = self.span.stop - self.span.start
        return values.repeat_interleave(self.lengths, dim=0, output_size=size)

    def total(self, values: Tensor) -> Tensor:
        """[r, k] sums of values [e, k] by row."""
        ends = self.lengths.cumsum(0)
        every = torch.arange(len(values), device=values.device)
        return embedding_bag(every, values.contiguous(), ends - self.lengths, mode="sum")

    def largest(self, values: Tensor) -> Tensor:
        """[r, k] maxima of values [e, k] by row."""
        return torch.segment_reduce(values.contiguous(), "max", lengths=self.lengths, axis=0)


def edge_runs(block: Block, limit: int) -> Iterator[EdgeRun]:
    """All non-zeros, at most ``limit`` at a time: a long row is cut into several runs."""
    indptr, device = block.indptr.long(), block.indices.device
    for start in range(0, block.nnz, max(1, limit)):
        stop = min(start + max(1, limit), block.nnz)
        first = int(torch.searchsorted(indptr, start, right=True)) - 1
        last = int(torch.searchsorted(indptr, stop))
        lengths = indptr[first : last + 1].clamp(start, stop).diff()
        touched = lengths > 0
        rows = (first + touched.nonzero()[:, 0]).to(device)
        if block.rows is not None:
            rows = block.rows[rows].long()
        yield EdgeRun(rows, lengths[touched].to(device), slice(start, stop))


class Segments:
    """A reduction over the messages of every row; rows without messages are zero.

    - ``var``: the mean square distance from the row's mean, merged part by part (Chan et al.);
      ``std`` its root;
    - ``softmax``: the sum of messages weighed by the softmax of their scores, one score a head.
    """

    def __init__(self, reduce: Reduce, like: Tensor, rows: int, width: int, heads: int = 1) -> None:
        self._reduce = reduce
        self._out = empty_as(like, rows, width)
        self._out.fill_({"max": -torch.inf, "min": torch.inf}.get(reduce, 0.0))
        self._count = like.new_zeros(rows, 1)
        if reduce in ("var", "std"):
            self._mean = torch.zeros_like(self._out)
        if reduce == "softmax":
            self._top = like.new_full((rows, heads), -torch.inf)
            self._total = like.new_zeros(rows, heads)

    def add(self, run: EdgeRun, values: Tensor, scores: Tensor | None = None) -> None:
        """Merge some messages [e, width], for softmax with their scores [e, heads]."""
        rows, lengths = run.rows, run.lengths.to(values.dtype).unsqueeze(1)
        before = self._count[rows]
        self._count.index_add_(0, rows, lengths)
        match self._reduce:
            case "sum" | "mean":
                self._out.index_add_(0, rows, run.total(values))
            case "max":
                self._out[rows] = torch.maximum(self._out[rows], run.largest(values))
            case "min":
                self._out[rows] = torch.minimum(self._out[rows], -run.largest(-values))
            case "var" | "std":
                self._spread(run, values, before, lengths)
            case "softmax":
                assert scores is not None
                self._weigh(run, values, scores)

    def _spread(self, run: EdgeRun, values: Tensor, before: Tensor, lengths: Tensor) -> None:
        """Merge means and squared distances from them."""
        mean = run.total(values) / lengths
        squares = run.total((values - run.spread(mean)).square())
        step, after = mean - self._mean[run.rows], before + lengths
        self._mean.index_add_(0, run.rows, step * (lengths / after))
        self._out.index_add_(0, run.rows, squares + step.square() * (before * lengths / after))

    def _weigh(self, run: EdgeRun, values: Tensor, scores: Tensor) -> None:
        """Continue the softmax with a new largest score."""
        rows, heads = run.rows, scores.shape[1]
        top = torch.maximum(self._top[rows], run.largest(scores))
        share = (scores - run.spread(top)).exp()
        shrink = (self._top[rows] - top).exp()
        self._top[rows] = top
        self._total[rows] = self._total[rows] * shrink + run.total(share)
        weighed = values.view(len(values), heads, -1) * share.unsqueeze(2)
        so_far = self._out[rows].view(len(rows), heads, -1) * shrink.unsqueeze(2)
        self._out[rows] = so_far.flatten(1) + run.total(weighed.flatten(1))

    def finish(self) -> Tensor:
        """[rows, width], after the last run."""
        out, count = self._out, self._count.clamp(min=1)
        match self._reduce:
            case "mean" | "var":
                return out.div_(count)
            case "std":
                return out.div_(count).sqrt_()
            case "max" | "min":
                return out.masked_fill_(self._count == 0, 0.0)
            case "softmax":
                heads = self._total.shape[1]
                total = self._total.masked_fill(self._count == 0, 1.0)
                # torch does not infer -1 where there are no rows.
                out.view(len(out), heads, out.shape[1] // heads).div_(total.unsqueeze(2))
        return out

    def log_sums(self) -> Tensor:
        """[rows, heads] log of the sum of exp(score), which several softmaxes are merged by."""
        found = self._top + self._total.log()
        return found.masked_fill_(self._count == 0, NO_SCORES)
