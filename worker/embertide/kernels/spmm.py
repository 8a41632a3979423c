"""Sums and maxima of source rows over a block's non-zeros, and the products that follow them.

On CPU these are native kernels: one pass over the non-zeros, with scales, bias and activation
applied to a row while it is in registers. Elsewhere they run in chunks on torch, whose
``embedding_bag`` is the fastest gather-and-reduce it has.

Source rows and results may be float32 or bfloat16; what is computed of them is float32, and a
result is rounded once, when it is finished.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Literal

import torch

from embertide.kernels import gpu, native
from embertide.kernels.block import Block, Chunk, segment_max, sum_chunk
from embertide.kernels.epilogue import ACTIVATIONS, NOTHING, Epilogue, Factors
from embertide.kernels.ghosts import changes_first
from embertide.kernels.memory import as_type, empty_as
from embertide.kernels.rows import gather_rows, scatter_rows
from embertide.kernels.some_rows import edges_of

Reduce = Literal["sum", "max"]

_TYPES = (torch.float32, torch.bfloat16)
_DENSE_ROWS = 1 << 14
"""Rows that torch multiplies at a time, so that the epilogue finds them in the cache."""
_GPU_DENSE_ROWS = 1 << 16
"""The same on a GPU: enough to keep all of it busy."""


@changes_first
def reduce_rows(
    out: torch.Tensor,
    block: Block,
    source: torch.Tensor,
    factors: Factors,
    last: Epilogue,
    *,
    reduce: Reduce = "sum",
    accumulate: bool = False,
    empty: float = 0.0,
) -> None:
    """out[i] = epilogue_i(target_i * reduce over the block's row i of w * source_j * x[j]).

    Args:
        out: [outputs, width]; rows may be apart, as in a column slice. float32 where the block
            has only some of its rows, or ``accumulate`` is set.
        source: [s, width] x; rows may be apart.
        accumulate: add to what is in ``out``, or keep the larger; only the block's rows are
            touched. Otherwise every row must be in the block.
        empty: maximum of a row without non-zeros.
    """
    if _is_native(out, block, source):
        native.lib.spmm(
            block.pattern,
            out,
            source,
            factors.weights,
            factors.source,
            factors.target,
            _finish(last),
            accumulate,
            reduce == "max",
            empty,
        )
        return
    if gpu.usable(out.device):
        _on_gpu(out, block, source, factors, last, reduce, accumulate, empty)
        return
    source = source.float().contiguous()
    for chunk in block.chunks():
        values = _reduce_chunk(chunk, source, factors, reduce, empty)
        if accumulate:
            there = out[chunk.rows]
            values = there.add_(values) if reduce == "sum" else torch.maximum(there, values)
        out[chunk.rows] = last.part(chunk.rows).apply_(values)


@changes_first
def reduce_linear(
    out: torch.Tensor,
    block: Block,
    source: torch.Tensor,
    weight: torch.Tensor,
    factors: Factors,
    last: Epilogue,
    *,
    reduce: Reduce = "sum",
    accumulate: bool = False,
) -> None:
    """out = epilogue(y @ weight.T), where y are the rows that :func:`reduce_rows` makes.

    No [outputs, width] y exists: some rows of it at a time are multiplied in the cache.

    Args:
        out: [outputs, D'], not ``source``; float32 where ``accumulate`` is set.
        block: with every row.
        source: [s, D] x.
        weight: [D', D], contiguous.
        accumulate: the epilogue is that of the products added to what is in ``out``.
    """
    if last.wanted is not None:
        rows = last.wanted
        some, edges = _of_rows(block, rows)
        own = _wanted_of(out, rows, accumulate=accumulate)
        factors = factors.of_rows(rows, edges)
        reduce_linear(
            own, some, source, weight, factors, last.part(rows), reduce=reduce,
            accumulate=accumulate,
        )  # fmt: skip
        scatter_rows(out, rows, own)
        return
    if _is_native(out, block, source):
        native.lib.spmm_linear(
            block.pattern,
            out,
            source,
            weight,
            factors.weights,
            factors.source,
            factors.target,
            _finish(last),
            accumulate,
            reduce == "max",
        )
        return
    reduced = _reduced_on_gpu if gpu.usable(out.device) else _reduced
    for chunk, sums in reduced(block, source, factors, reduce):
        product = sums @ weight.T
        if accumulate:
            product += out[chunk.rows]
        out[chunk.rows] = last.part(chunk.rows).apply_(product)


@changes_first
def multiply(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    last: Epilogue,
    *,
    accumulate: bool = False,
) -> None:
    """out = epilogue(x @ weight.T), or of that added to what is in ``out``.

    Args:
        out: [n, D'], not ``x``; rows may be apart. float32 where ``accumulate`` is set.
        x: [n, D]; rows may be apart. A copy in float32 is made of bfloat16.
        weight: [D', D], contiguous.
    """
    if last.wanted is not None:
        own = _wanted_of(out, last.wanted, accumulate=accumulate)
        some = gather_rows(x, last.wanted)
        multiply(own, some, weight, last.part(last.wanted), accumulate=accumulate)
        scatter_rows(out, last.wanted, own)
        return
    x = as_type(x, weight.dtype)
    if native.lib is not None and out.device.type == "cpu" and x.dtype == torch.float32:
        native.lib.dense(out, x, weight, _finish(last), accumulate)
        return
    rows = _DENSE_ROWS if out.device.type == "cpu" else _GPU_DENSE_ROWS
    for at in range(0, len(x), rows):
        span = slice(at, at + rows)
        product = x[span] @ weight.T
        if accumulate:
            product += out[span]
        out[span] = last.part(span).apply_(product)


def _of_rows(block: Block, rows: torch.Tensor) -> tuple[Block, torch.Tensor | None]:
    """Some rows of a block with every row, and which non-zeros these have; None: all, shared."""
    indptr = block.indptr.new_zeros(len(rows) + 1)
    torch.cumsum(block.indptr[rows + 1] - block.indptr[rows], 0, out=indptr[1:])
    if int(indptr[-1]) == block.nnz:
        return Block(None, indptr, block.indices, block.weights), None
    some = edges_of(block.indptr, rows)
    weights = None if block.weights is None else block.weights[some]
    return Block(None, indptr, block.indices[some], weights), some


def _wanted_of(out: torch.Tensor, rows: torch.Tensor, *, accumulate: bool) -> torch.Tensor:
    """Some rows of a result, with what they are added to, if anything."""
    return gather_rows(out, rows) if accumulate else out.new_empty(len(rows), out.shape[1])


def _reduced(
    block: Block, source: torch.Tensor, factors: Factors, reduce: Reduce
) -> Iterator[tuple[Chunk, torch.Tensor]]:
    """[rows, width] of each chunk."""
    source = source.float().contiguous()
    for chunk in block.chunks():
        yield chunk, _reduce_chunk(chunk, source, factors, reduce, 0.0)


def _reduced_on_gpu(
    block: Block, source: torch.Tensor, factors: Factors, reduce: Reduce
) -> Iterator[tuple[Chunk, torch.Tensor]]:
    for chunk, part in block.parts:
        out = empty_as(source, len(chunk.lengths), source.shape[1], dtype=torch.float32)
        _on_gpu(out, part, source, factors.alone(chunk), NOTHING, reduce, False, 0.0)
        yield chunk, out


def _on_gpu(
    out: torch.Tensor,
    block: Block,
    source: torch.Tensor,
    factors: Factors,
    last: Epilogue,
    reduce: Reduce,
    accumulate: bool,
    empty: float,
) -> None:
    # Triton is imported where there is a GPU, and installed where torch is built for one.
    from embertide.kernels.gpu import spmm

    spmm.reduce_rows(
        out,
        block,
        source,
        factors,
        last,
        largest=reduce == "max",
        accumulate=accumulate,
        empty=empty,
    )


def _is_native(out: torch.Tensor, block: Block, source: torch.Tensor) -> bool:
    return (
        block.pattern is not None
        and source.device.type == "cpu"
        and out.dtype in _TYPES
        and source.dtype in _TYPES
    )


def _finish(last: Epilogue) -> tuple[torch.Tensor | float | None, ...]:
    activation = ACTIVATIONS.index(last.activation)
    return last.bias, activation, last.slope, last.scale, last.added, last.share


def _reduce_chunk(
    chunk: Chunk, source: torch.Tensor, factors: Factors, reduce: Reduce, empty: float
) -> torch.Tensor:
    """[rows, width] reduced and scaled by the target's factors."""
    if reduce == "sum":
        values = sum_chunk(chunk, source, factors.of(chunk))
    else:
        best = _max_sparse if source.device.type == "cpu" else max_gathered
        values = best(chunk, source, factors.of(chunk))
        values[chunk.lengths == 0] = empty
    if factors.target is not None:
        values *= factors.target[chunk.rows].unsqueeze(1)
    return values


def _max_sparse(chunk: Chunk, source: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """[rows, width]: torch's vectorised sparse reduction, which exists on CPU only."""
    values = torch.ones(len(chunk.indices)) if weights is None else weights
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        matrix = torch.sparse_csr_tensor(
            chunk.offsets,
            chunk.indices,
            values,
            (len(chunk.lengths), len(source)),
            check_invariants=False,
        )
    best: torch.Tensor = torch.sparse.mm(matrix, source, "amax")
    return best


def max_gathered(chunk: Chunk, source: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """[rows, width]: gather, then a segment reduction; works on every device."""
    values = source.index_select(0, chunk.indices)
    if weights is not None:
        values *= weights.unsqueeze(1)
    return segment_max(values, chunk.lengths)
