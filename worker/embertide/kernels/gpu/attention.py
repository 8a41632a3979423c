"""Attention over a block's non-zeros on a GPU: scores, softmax and weighted sums in one pass.

A program has a row's columns of one head, and no array of scores exists. A long row's pieces leave
their sums and the logarithms of their sums of exp(score), over which the same softmax is taken once
more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from embertide.kernels.block import Block
from embertide.kernels.gpu.tiles import TILES, tile
from embertide.kernels.heads import HeadColumns, RowSums
from embertide.kernels.memory import empty_as
from embertide.kernels.pieces import Runs, short

State = tuple[torch.Tensor | None, torch.Tensor | None]


@dataclass(frozen=True)
class Ends:
    """What a non-zero's score is made of, leaky_relu(source_j + target_i).

    Attributes:
        source: [s, H].
        target: [outputs, H]; None: the source's number is the score.
    """

    source: torch.Tensor
    target: torch.Tensor | None
    slope: float


def add_additive(
    sums: RowSums,
    block: Block,
    x: torch.Tensor,
    source: torch.Tensor,
    target: torch.Tensor,
    *,
    slope: float,
    weights: torch.Tensor | None,
) -> None:
    """As :func:`embertide.kernels.attention.add_additive`."""
    out, heads, pieces = sums.out, sums.heads, block.pieces
    before = None if sums.fresh else (sums.top, sums.total)
    if before is not None:
        # Columns of one head are those of several programs: none writes what another reads.
        sums.top, sums.total = (None if kept is None else kept.clone() for kept in before)
    state = sums.top, sums.total
    ends = Ends(source, target, slope)
    _launch(
        out, state, before, heads, short(block.ends, block.rows), x, block.indices, ends, weights
    )
    if pieces is None:
        return
    joined = pieces.joined(block.rows)
    parts, logs = empty_as(out, len(pieces), out.shape[1]), empty_as(out, len(pieces), heads.count)
    spread = target[joined.rows].repeat_interleave(pieces.ends.diff(), 0, output_size=len(pieces))
    ends = Ends(source, spread, slope)
    _launch(parts, (logs, None), None, heads, pieces.each(), x, block.indices, ends, weights)
    _launch(out, state, before, heads, joined, parts, None, Ends(logs, None, 1.0), None)


def _launch(
    out: torch.Tensor,
    state: State,
    before: State | None,
    heads: HeadColumns,
    runs: Runs,
    x: torch.Tensor,
    indices: torch.Tensor | None,
    ends: Ends,
    weights: torch.Tensor | None,
) -> None:
    """What a softmax goes on from is ``before``, what it comes to goes to ``state``.

    To its first tensor alone go the logarithms of the sums of exp(score). Without indices a
    non-zero's source row is its own number.
    """
    if not len(runs):
        return
    programs, columns, edges = tile(heads.per_head)
    _attend[(len(runs) * heads.count * programs,)](
        out,
        out.stride(0),
        *state,
        *(before or (None, None)),
        x,
        x.stride(0),
        indices,
        runs.starts,
        runs.stops,
        runs.rows,
        weights,
        ends.source,
        ends.target,
        float(ends.slope),
        heads.count,
        heads.per_head,
        heads.offset,
        out.shape[1],
        PROGRAMS=programs,
        LIMIT=runs.limit,
        EDGES=edges,
        RUN=TILES * edges,
        COLUMNS=columns,
        num_warps=1,
    )


@triton.jit(do_not_specialize=["slope", "offset"])
def _attend(
    out,
    out_stride,
    top,
    total,
    top_before,
    total_before,
    x,
    x_stride,
    indices,
    starts,
    stops,
    rows,
    weights,
    source,
    target,
    slope,
    heads,
    per_head,
    offset,
    width,
    PROGRAMS: tl.constexpr,
    LIMIT: tl.constexpr,
    EDGES: tl.constexpr,
    RUN: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    row, part = program // (heads * PROGRAMS), (program % (heads * PROGRAMS)).to(tl.int32)
    start, stop = tl.load(starts + row), tl.load(stops + row)
    if stop - start > LIMIT:
        return
    head = part // PROGRAMS
    within = (part % PROGRAMS) * COLUMNS + tl.arange(0, COLUMNS)
    column = head * per_head - offset + within
    inside = (within < per_head) & (column >= 0) & (column < width)
    output = row
    if rows is not None:
        output = tl.load(rows + row).to(tl.int64)
    to = out + output * out_stride + column
    state = output * heads + head
    best = tl.full([], float("-inf"), tl.float32)
    mass = tl.full([], 0.0, tl.float64)
    found = tl.zeros([COLUMNS], tl.float64)
    if top_before is not None:
        best = tl.load(top_before + state)
        mass = tl.load(total_before + state).to(tl.float64)
        found = tl.load(to, mask=inside, other=0.0).to(tl.float64) * mass
    of_target = 0.0
    if target is not None:
        of_target = tl.load(target + state)
    for first in range(start, stop, RUN):
        before = best
        share_of_run = tl.full([], 0.0, tl.float32)
        sum_of_run = tl.zeros([COLUMNS], tl.float32)
        for at in range(first, tl.minimum(first + RUN, stop), EDGES):
            edge = at + tl.arange(0, EDGES)
            there = edge < stop
            if indices is not None:
                index = tl.load(indices + edge, mask=there, other=0).to(tl.int64)
            else:
                index = edge.to(tl.int64)
            both = there[:, None] & inside[None, :]
            place = x + index[:, None] * x_stride + column[None, :]
            values = tl.load(place, mask=both, other=0.0)
            score = tl.load(source + index * heads + head, mask=there, other=0.0)
            if target is not None:
                score += of_target
                score = tl.where(score > 0, score, score * slope)
            score = tl.where(there, score, float("-inf"))
            after = tl.maximum(best, tl.max(score, 0))
            shrink = tl.exp(best - after)
            share = tl.exp(score - after)
            share_of_run = share_of_run * shrink + tl.sum(share, 0)
            if weights is not None:
                share *= tl.load(weights + edge, mask=there, other=0.0)
            more = tl.sum(share[:, None] * values.to(tl.float32), 0)
            sum_of_run = sum_of_run * shrink + more
            best = after
        kept = tl.exp(before - best).to(tl.float64)
        mass = mass * kept + share_of_run.to(tl.float64)
        found = found * kept + sum_of_run.to(tl.float64)
    mean = tl.where(mass > 0, found / tl.where(mass > 0, mass, 1.0), 0.0)
    tl.store(to, mean.to(tl.float32), mask=inside)
    if part % PROGRAMS == 0:
        if total is not None:
            tl.store(top + state, best)
            tl.store(total + state, mass.to(tl.float32))
        elif top is not None:
            tl.store(top + state, best + tl.log(tl.where(mass > 0, mass, 1.0).to(tl.float32)))
