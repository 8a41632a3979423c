"""Reductions of messages by row, to which runs of edges are added one after the other.

A row's messages may arrive in any number of parts, and what is kept between them is a few rows'
worth: the result so far, and what merging another part into it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from embertide.kernels.block import Block
from embertide.kernels.ghosts import Ghost, on_ghosts
from embertide.kernels.heads import NO_SCORES
from embertide.kernels.memory import empty_as
from embertide.kernels.spilled_csr import (
    AnyBlock,
    AnyFeatures,
    SpilledBlock,
    SpilledGroup,
    SpilledValues,
)
from embertide.kernels.sums import sum_rows

Reduce = Literal["sum", "mean", "max", "min", "var", "std", "softmax"]


@dataclass(frozen=True)
class EdgeRun:
    """Consecutive non-zeros of a block.

    Attributes:
        rows: [r] int64 output rows, each once.
        lengths: [r] int64 non-zeros of each, at least 1.
        span: the non-zeros, in the block's order.
        begun: the first row has non-zeros in the run before.
        open: the last row has non-zeros in the run behind.
        ends: non-zeros of the first and of the last row.
    """

    rows: Tensor
    lengths: Tensor
    span: slice
    begun: bool = False
    open: bool = False
    ends: tuple[int, int] = (0, 0)

    def spread(self, values: Tensor) -> Tensor:
        """[e, k] a row's values for each of its non-zeros."""
        size = self.span.stop - self.span.start
        return values.repeat_interleave(self.lengths, dim=0, output_size=size)

    def total(self, values: Tensor) -> Tensor:
        """[r, k] sums of values [e, k] by row."""
        offsets = torch.cat([self.lengths.new_zeros(1), self.lengths.cumsum(0)])
        return sum_rows(values.contiguous(), torch.arange(len(values)).to(offsets), offsets)

    def largest(self, values: Tensor) -> Tensor:
        """[r, k] maxima of values [e, k] by row."""
        return torch.segment_reduce(values.contiguous(), "max", lengths=self.lengths, axis=0)

    def parts(self) -> Iterator[EdgeRun]:
        """Rows that other runs have a part of, each by itself, and between them all others."""
        count = len(self.rows)
        first = 1 if self.begun or (count == 1 and self.open) else 0
        last = count - 1 if self.open and count > first else count
        start, cuts = self.span.start, sorted({0, first, last, count})
        for low, high in pairwise(cuts):
            lengths = self.lengths[low:high]
            stop = self.span.stop if high == count else self.span.stop - self.ends[1]
            if low < first:
                stop = start + self.ends[0]
            yield EdgeRun(
                self.rows[low:high],
                lengths,
                slice(start, stop),
                begun=self.begun and low == 0,
                open=self.open and high == count,
            )
            start = stop


class Carried(NamedTuple):
    """What the non-zeros of a run have: indices [e], weights [e] and features [e, K], or None."""

    indices: Tensor
    weights: Tensor | None
    features: Tensor | None

    def slice(self, start: int, stop: int) -> Carried:
        """What some of them have, sharing memory."""
        weights = None if self.weights is None else self.weights[start:stop]
        features = None if self.features is None else self.features[start:stop]
        return Carried(self.indices[start:stop], weights, features)

    @staticmethod
    def joined(parts: Sequence[Carried]) -> Carried:
        """What parts that follow each other have, as a copy."""
        weights = [part.weights for part in parts if part.weights is not None]
        features = [part.features for part in parts if part.features is not None]
        return Carried(
            torch.cat([part.indices for part in parts]),
            torch.cat(weights) if weights else None,
            torch.cat(features) if features else None,
        )


def _ghost_runs(block: Block, limit: int) -> Iterator[EdgeRun]:
    """The first, which is as long as any; all non-zeros are gone over."""
    for _, _ in block.each():
        pass
    edges = min(limit, block.indices.shape[0])
    some = block.indices[slice(0, edges)]
    yield EdgeRun(some, some, slice(0, edges))


def carried_by_runs(
    block: AnyBlock, limit: int, features: AnyFeatures | None = None, at: Tensor | None = None
) -> Iterator[tuple[EdgeRun, Carried]]:
    """As :func:`edge_runs`, with what non-zeros have; those on disk are read part by part.

    Runs are the same whatever the parts are.

    Args:
        features: [positions, K], on disk where the block is, and in the order of its blocks.
        at: [nnz] the position of each non-zero there; None: they are in that order.

    Raises:
        StorageError: the disk cannot be read.
    """
    if not isinstance(block, Block):
        parts = _parts_of(block, features)
        runs = _runs_of_rows(block.ends(), block.nnz, max(1, limit))
        yield from zip(runs, _by_length(parts, max(1, limit)), strict=True)
        return
    assert not isinstance(features, SpilledValues)
    for run in edge_runs(block, limit):
        weights = None if block.weights is None else block.weights[run.span]
        own = None if features is None else features[run.span if at is None else at[run.span]]
        yield run, Carried(block.indices[run.span], weights, own)


def _parts_of(
    block: SpilledBlock | SpilledGroup, features: AnyFeatures | None
) -> Iterator[Carried]:
    if features is None:
        yield from (Carried(own.indices, own.weights, None) for _, own in block.each())
        return
    assert isinstance(features, SpilledValues)
    for (_, own), values in zip(block.each(), features.each(block.places()), strict=True):
        yield Carried(own.indices, own.weights, values)


def _by_length(parts: Iterable[Carried], length: int) -> Iterator[Carried]:
    """Parts that follow each other, cut and joined to ones of a length; the last may be shorter."""
    waiting: list[Carried] = []
    room = length
    for part in parts:
        at, count = 0, len(part.indices)
        while at < count:
            waiting.append(part.slice(at, at + room))
            at, room = at + room, max(0, at + room - count)
            if not room:
                yield Carried.joined(waiting)
                waiting, room = [], length
        # A copy, since what waits would hold the part.
        waiting = [Carried.joined(waiting)] if waiting else []
    if waiting:
        yield waiting[0]


@on_ghosts(_ghost_runs)
def edge_runs(block: Block, limit: int) -> Iterator[EdgeRun]:
    """All non-zeros, at most ``limit`` at a time: a long row is cut into several runs."""
    return _runs_of_rows(block, block.nnz, max(1, limit))


def _runs_of_rows(block: Block, nnz: int, limit: int) -> Iterator[EdgeRun]:
    indptr, device = block.indptr.long(), block.indices.device
    for start in range(0, nnz, limit):
        stop = min(start + limit, nnz)
        first = int(torch.searchsorted(indptr, start, right=True)) - 1
        last = int(torch.searchsorted(indptr, stop))
        lengths = indptr[first : last + 1].clamp(start, stop).diff()
        touched = lengths > 0
        rows = (first + touched.nonzero()[:, 0]).to(device)
        if block.rows is not None:
            rows = block.rows[rows].long()
        span = slice(start, stop)
        begun, open_ = start > int(indptr[first]), stop < int(indptr[last])
        own = lengths[touched]
        ends = int(own[0]), int(own[-1])
        yield EdgeRun(rows, own.to(device), span, begun, open_, ends)


@dataclass(frozen=True)
class _Part:
    """What some messages of each of r rows come to.

    Attributes:
        count: [r, 1] messages.
        out: [r, width] their sum or extreme, their squared distances from the mean, or what the
            softmax of their scores makes of them, not divided by its total.
        mean: [r, width]; for ``var`` and ``std``.
        top, total: [r, heads] largest score and sum of exp(score - top); for ``softmax``.
    """

    count: Tensor
    out: Tensor
    mean: Tensor | None = None
    top: Tensor | None = None
    total: Tensor | None = None

    def double(self) -> _Part:
        return replace(self, **{name: value.double() for name, value in self._each()})

    def of(self, rows: Tensor) -> _Part:
        return replace(self, **{name: value[rows] for name, value in self._each()})

    def put(self, rows: Tensor, values: _Part) -> None:
        for name, value in self._each():
            value[rows] = getattr(values, name).to(value.dtype)

    def _each(self) -> list[tuple[str, Tensor]]:
        named = vars(self).items()
        return [(name, value) for name, value in named if value is not None]


class Segments:
    """A reduction over the messages of every row; rows without messages are zero.

    - ``var``: the mean square distance from the row's mean, merged part by part (Chan et al.);
      ``std`` its root;
    - ``softmax``: the sum of messages weighed by the softmax of their scores, one score a head.

    The parts of a row that several runs of a block have are merged in float64.
    """

    def __init__(self, reduce: Reduce, like: Tensor, rows: int, width: int, heads: int = 1) -> None:
        self._reduce = reduce
        out = empty_as(like, rows, width)
        out.fill_({"max": -torch.inf, "min": torch.inf}.get(reduce, 0.0))
        self._all = _Part(like.new_zeros(rows, 1), out)
        if reduce in ("var", "std"):
            self._all = replace(self._all, mean=torch.zeros_like(out))
        if reduce == "softmax":
            top = like.new_full((rows, heads), -torch.inf)
            self._all = replace(self._all, top=top, total=like.new_zeros(rows, heads))
        self._open: _Part | None = None

    def add(self, run: EdgeRun, values: Tensor, scores: Tensor | None = None) -> None:
        """Merge some messages [e, width], for softmax with their scores [e, heads]."""
        if isinstance(values, Ghost):
            return
        for part in run.parts():
            span = slice(part.span.start - run.span.start, part.span.stop - run.span.start)
            found = self._measure(part, values[span], None if scores is None else scores[span])
            if part.begun:
                assert self._open is not None
                found = self._join(self._open, found.double())
            if part.open:
                self._open = found.double()
                continue
            if self._reduce in ("sum", "mean"):
                self._all.count.index_add_(0, part.rows, found.count.to(values.dtype))
                self._all.out.index_add_(0, part.rows, found.out.to(values.dtype))
                continue
            before = self._all.of(part.rows)
            joined = self._join(before.double() if part.begun else before, found)
            self._all.put(part.rows, joined)

    def _measure(self, run: EdgeRun, values: Tensor, scores: Tensor | None) -> _Part:
        """What the messages of a run come to."""
        count = run.lengths.to(values.dtype).unsqueeze(1)
        match self._reduce:
            case "max":
                return _Part(count, run.largest(values))
            case "min":
                return _Part(count, -run.largest(-values))
            case "var" | "std":
                mean = run.total(values) / count
                squares = run.total((values - run.spread(mean)).square())
                return _Part(count, squares, mean)
            case "softmax":
                assert scores is not None
                top, heads = run.largest(scores), scores.shape[1]
                share = (scores - run.spread(top)).exp()
                weighed = values.view(len(values), heads, -1) * share.unsqueeze(2)
                return _Part(count, run.total(weighed.flatten(1)), top=top, total=run.total(share))
        return _Part(count, run.total(values))

    def _join(self, a: _Part, b: _Part) -> _Part:
        """Messages of the same rows, put together."""
        count = a.count + b.count
        match self._reduce:
            case "max":
                return _Part(count, torch.maximum(a.out, b.out))
            case "min":
                return _Part(count, torch.minimum(a.out, b.out))
            case "var" | "std":
                assert a.mean is not None
                assert b.mean is not None
                step = b.mean - a.mean
                between = step.square() * (a.count * b.count / count)
                return _Part(count, a.out + b.out + between, a.mean + step * (b.count / count))
            case "softmax":
                return _joined_softmax(a, b, count)
        return _Part(count, a.out + b.out)

    def finish(self) -> Tensor:
        """[rows, width], after the last run."""
        out, count = self._all.out, self._all.count.clamp(min=1)
        match self._reduce:
            case "mean" | "var":
                return out.div_(count)
            case "std":
                return out.div_(count).sqrt_()
            case "max" | "min":
                return out.masked_fill_(self._all.count == 0, 0.0)
            case "softmax":
                assert self._all.total is not None
                heads = self._all.total.shape[1]
                total = self._all.total.masked_fill(self._all.count == 0, 1.0)
                # torch does not infer -1 where there are no rows.
                out.view(len(out), heads, out.shape[1] // heads).div_(total.unsqueeze(2))
        return out

    def log_sums(self) -> Tensor:
        """[rows, heads] log of the sum of exp(score), which several softmaxes are merged by."""
        assert self._all.top is not None
        assert self._all.total is not None
        found = self._all.top + self._all.total.log()
        return found.masked_fill_(self._all.count == 0, NO_SCORES)


def _joined_softmax(a: _Part, b: _Part, count: Tensor) -> _Part:
    assert a.top is not None
    assert a.total is not None
    assert b.top is not None
    assert b.total is not None
    top = torch.maximum(a.top, b.top)
    shrink, other = (a.top - top).exp(), (b.top - top).exp()
    heads = top.shape[1]
    out = [
        (one.out.view(len(one.out), heads, -1) * factor.unsqueeze(2)).flatten(1)
        for one, factor in ((a, shrink), (b, other))
    ]
    total = a.total * shrink + b.total * other
    return _Part(count, out[0].add_(out[1]), top=top, total=total)
