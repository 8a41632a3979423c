"""Attention over a block's non-zeros on a GPU: scores, softmax and weighted sums in one pass.

A program has a row's columns of one head, and no array of scores exists. A long row's pieces leave
their sums and the logarithms of their sums of exp(score), over which the same softmax is taken once
more.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from embertide.kernels.block import Block
from embertide.kernels.gpu import tile
from embertide.kernels.gpu.pieces import PIECE_EDGES
from embertide.kernels.heads import HeadColumns, RowSums
from embertide.kernels.memory import empty_as

_UNLIMITED = 1 << 62


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
    out, heads, pieces, ends = sums.out, sums.heads, block.pieces, block.ends
    before = (sums.top, sums.total)
    if not sums.fresh:
        # Columns of one head are those of several programs: none writes what another reads.
        sums.top, sums.total = (None if kept is None else kept.clone() for kept in before)
    state = (sums.top, sums.total)
    kept = None if sums.fresh else before
    read = (x, block.indices, weights, source, target, slope)
    rows = len(ends) - 1, ends[:-1], ends[1:], block.rows
    _launch(out, state, *rows, *read, heads, kept)
    if pieces is None:
        return
    numbers = pieces.rows if block.rows is None else block.rows[pieces.rows]
    parts = empty_as(out, len(pieces), out.shape[1])
    logs = empty_as(out, len(pieces), heads.count)
    cut = len(pieces), pieces.starts, pieces.stops, None
    ends_of = target[numbers].repeat_interleave(pieces.ends.diff(), 0, output_size=len(pieces))
    of_pieces = (x, block.indices, weights, source, ends_of, slope)
    _launch(parts, (logs, None), *cut, *of_pieces, heads, None)
    long = len(numbers), pieces.ends[:-1], pieces.ends[1:], numbers
    _launch(out, state, *long, parts, None, None, logs, None, 1.0, heads, kept, limited=False)


def _launch(
    out: torch.Tensor,
    state: tuple[torch.Tensor | None, torch.Tensor | None],
    count: int,
    starts: torch.Tensor,
    stops: torch.Tensor,
    rows: torch.Tensor | None,
    x: torch.Tensor,
    indices: torch.Tensor | None,
    weights: torch.Tensor | None,
    source: torch.Tensor,
    target: torch.Tensor | None,
    slope: float,
    heads: HeadColumns,
    before: tuple[torch.Tensor | None, torch.Tensor | None] | None,
    *,
    limited: bool = True,
) -> None:
    """What a softmax goes on from is ``before``, what it comes to goes to ``state``.

    To its first tensor alone go the logarithms of the sums of exp(score).
    """
    if not count:
        return
    programs, columns, edges = tile(heads.per_head)
    _attend[(count * heads.count * programs,)](
        out,
        out.stride(0),
        *state,
        *(before or (None, None)),
        x,
        x.stride(0),
        indices,
        starts,
        stops,
        rows,
        weights,
        source,
        target,
        float(slope),
        heads.count,
        heads.per_head,
        heads.offset,
        out.shape[1],
        PROGRAMS=programs,
        LIMIT=PIECE_EDGES if limited else _UNLIMITED,
        EDGES=edges,
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
    best, mass = float("-inf"), 0.0
    found = tl.zeros([COLUMNS], tl.float32)
    if top_before is not None:
        best, mass = tl.load(top_before + state), tl.load(total_before + state)
        found = tl.load(to, mask=inside, other=0.0) * mass
    of_target = 0.0
    if target is not None:
        of_target = tl.load(target + state)
    for at in range(start, stop, EDGES):
        edge = at + tl.arange(0, EDGES)
        there = edge < stop
        if indices is not None:
            index = tl.load(indices + edge, mask=there, other=0).to(tl.int64)
        else:
            index = edge.to(tl.int64)
        both = there[:, None] & inside[None, :]
        values = tl.load(x + index[:, None] * x_stride + column[None, :], mask=both, other=0.0)
        score = tl.load(source + index * heads + head, mask=there, other=0.0)
        if target is not None:
            score += of_target
            score = tl.where(score > 0, score, score * slope)
        score = tl.where(there, score, float("-inf"))
        after = tl.maximum(best, tl.max(score, 0))
        shrink = tl.exp(best - after)
        share = tl.exp(score - after)
        mass = mass * shrink + tl.sum(share, 0)
        if weights is not None:
            share *= tl.load(weights + edge, mask=there, other=0.0)
        found = found * shrink + tl.sum(share[:, None] * values.to(tl.float32), 0)
        best = after
    tl.store(to, tl.where(mass > 0, found / tl.where(mass > 0, mass, 1.0), 0.0), mask=inside)
    if part % PROGRAMS == 0:
        if total is not None:
            tl.store(top + state, best)
            tl.store(total + state, mass)
        elif top is not None:
            tl.store(top + state, best + tl.log(tl.where(mass > 0, mass, 1.0)))
