"""Sums and maxima of source rows on a GPU, and what follows them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from embertide.kernels.block import Block
from embertide.kernels.epilogue import ACTIVATIONS, NOTHING, Epilogue, Factors
from embertide.kernels.gpu.tiles import TILES, tile
from embertide.kernels.memory import empty_as
from embertide.kernels.pieces import Runs, short


def reduce_rows(
    out: torch.Tensor,
    block: Block,
    source: torch.Tensor,
    factors: Factors,
    last: Epilogue,
    *,
    largest: bool,
    accumulate: bool = False,
    empty: float = 0.0,
) -> None:
    """As :func:`embertide.kernels.spmm.reduce_rows`; columns of all tensors are side by side."""
    pieces, read = block.pieces, (source, block.indices, factors)
    target = factors.target
    _launch(out, short(block.ends, block.rows), *read, target, last, accumulate, largest, empty)
    if pieces is None:
        return
    parts = empty_as(out, len(pieces), out.shape[1], dtype=torch.float32)
    _launch(parts, pieces.each(), *read, None, NOTHING, False, largest, empty)
    _launch(
        out,
        pieces.joined(block.rows),
        parts,
        None,
        Factors(),
        target,
        last,
        accumulate,
        largest,
        empty,
    )


def try_on(device: torch.device) -> None:
    """Reduce a row, to see whether Triton can."""
    one = torch.ones(1, 1, device=device)
    block = Block(None, torch.tensor([0, 1]), torch.zeros(1, dtype=torch.int32, device=device))
    reduce_rows(torch.empty_like(one), block, one, Factors(), NOTHING, largest=False)
    torch.cuda.synchronize(device)


def _launch(
    out: torch.Tensor,
    runs: Runs,
    source: torch.Tensor,
    indices: torch.Tensor | None,
    factors: Factors,
    target: torch.Tensor | None,
    last: Epilogue,
    accumulate: bool,
    largest: bool,
    empty: float,
) -> None:
    """Without indices a non-zero's source row is its own number."""
    if not len(runs):
        return
    programs, columns, edges = tile(out.shape[1])
    added = last.added
    _reduce[len(runs), programs](
        out,
        out.stride(0),
        source,
        source.stride(0),
        indices,
        runs.starts,
        runs.stops,
        runs.rows,
        factors.weights,
        factors.source,
        target,
        last.bias,
        last.scale,
        added,
        0 if added is None else added.stride(0),
        float(last.share),
        float(last.slope),
        float(empty),
        out.shape[1],
        ACTIVATION=ACTIVATIONS.index(last.activation),
        LARGEST=largest,
        ACCUMULATE=accumulate,
        LIMIT=runs.limit,
        EDGES=edges,
        RUN=TILES * edges,
        COLUMNS=columns,
        num_warps=1,
    )


@triton.jit(do_not_specialize=["share", "slope", "empty"])
def _reduce(
    out,
    out_stride,
    source,
    source_stride,
    indices,
    starts,
    stops,
    rows,
    weights,
    factor,
    target,
    bias,
    scale,
    added,
    added_stride,
    share,
    slope,
    empty,
    width,
    ACTIVATION: tl.constexpr,
    LARGEST: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    LIMIT: tl.constexpr,
    EDGES: tl.constexpr,
    RUN: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    start, stop = tl.load(starts + row), tl.load(stops + row)
    if stop - start > LIMIT:
        return
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    total = tl.zeros([COLUMNS], tl.float64)
    best = tl.full([COLUMNS], float("-inf"), tl.float32)
    for first in range(start, stop, RUN):
        if LARGEST:
            found = tl.full([EDGES, COLUMNS], float("-inf"), tl.float32)
        else:
            found = tl.zeros([EDGES, COLUMNS], tl.float32)
        for at in range(first, tl.minimum(first + RUN, stop), EDGES):
            edge = at + tl.arange(0, EDGES)
            there = edge < stop
            if indices is not None:
                index = tl.load(indices + edge, mask=there, other=0).to(tl.int64)
            else:
                index = edge.to(tl.int64)
            place = source + index[:, None] * source_stride + column[None, :]
            both = there[:, None] & inside[None, :]
            x = tl.load(place, mask=both, other=0.0).to(tl.float32)
            if weights is not None:
                x *= tl.load(weights + edge, mask=there, other=0.0)[:, None]
            if factor is not None:
                x *= tl.load(factor + index, mask=there, other=0.0)[:, None]
            if LARGEST:
                found = tl.maximum(found, tl.where(both, x, float("-inf")))
            else:
                found += x
        if LARGEST:
            best = tl.maximum(best, tl.max(found, 0))
        else:
            total += tl.sum(found, 0).to(tl.float64)
    value = total.to(tl.float32)
    if LARGEST:
        value = tl.where(stop > start, best, empty)
    output = row
    if rows is not None:
        output = tl.load(rows + row).to(tl.int64)
    if target is not None:
        value *= tl.load(target + output)
    to = out + output * out_stride + column
    if ACCUMULATE:
        before = tl.load(to, mask=inside, other=0.0).to(tl.float32)
        if LARGEST:
            value = tl.maximum(before, value)
        else:
            value += before
    if added is not None:
        more = tl.load(added + output * added_stride + column, mask=inside, other=0.0)
        value += share * more.to(tl.float32)
    if bias is not None:
        value += tl.load(bias + column, mask=inside, other=0.0)
    if ACTIVATION == 1:
        value = tl.maximum(value, 0.0)
    elif ACTIVATION == 2:
        value = tl.where(value > 0, value, value * slope)
    elif ACTIVATION == 3:
        value = tl.where(value > 0, value, slope * (tl.exp(tl.minimum(value, 0.0)) - 1.0))
    if scale is not None:
        value *= tl.load(scale + output)
    tl.store(to, value.to(out.dtype.element_ty), mask=inside)
