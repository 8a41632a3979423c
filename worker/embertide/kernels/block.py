"""Non-zeros of some rows over some source rows, and the sums and maxima over them.

A :class:`Block` is a compressed sparse matrix whose columns index a dense source tensor that
is in memory: our own tile, or the receive buffer of one group. The reductions run in chunks of
rows, so their temporaries stay small and 32-bit offsets always suffice.
``torch.nn.functional.embedding_bag`` is the fastest gather-and-reduce that torch has (three
times ``torch.sparse`` on CPU) and runs on CPU and CUDA alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import embedding_bag

CHUNK_EDGES = 1 << 17
"""Non-zeros reduced at a time: the sums of a chunk's rows stay in the cache. A longer row is one
chunk of its own."""


@dataclass(frozen=True)
class Block:
    """Some rows' non-zeros.

    Attributes:
        rows: [R] int32 output row of each row here, ascending; None when they are 0..R-1.
        indptr: [R + 1] int32 or int64, on the CPU, ascending from 0.
        indices: [nnz] row of the source tensor, int32 or int64.
        weights: [nnz] float32 or None.
        edges: [nnz] each non-zero's position in the CSR it was cut from; None when identical.
    """

    rows: torch.Tensor | None
    indptr: torch.Tensor
    indices: torch.Tensor
    weights: torch.Tensor | None = None
    edges: torch.Tensor | None = None

    @property
    def nnz(self) -> int:
        """Non-zeros of all rows."""
        return len(self.indices)

    def to(self, device: torch.device) -> Block:
        """The same block with everything but ``indptr`` on a device."""
        move = (None if t is None else t.to(device) for t in (self.rows, self.weights, self.edges))
        rows, weights, edges = move
        return Block(rows, self.indptr, self.indices.to(device), weights, edges)

    def chunks(self, limit: int = CHUNK_EDGES) -> Iterator[Chunk]:
        """Consecutive runs of whole rows with at most ``limit`` non-zeros each."""
        rows = len(self.indptr) - 1
        first = 0
        while first < rows:
            start = int(self.indptr[first])
            last = int(torch.searchsorted(self.indptr, start + limit, right=True)) - 1
            last = min(max(last, first + 1), rows)
            yield Chunk(self, first, last, start, int(self.indptr[last]))
            first = last


@dataclass(frozen=True)
class Chunk:
    """Rows ``first..last`` of a block, non-zeros ``start..stop``."""

    block: Block
    first: int
    last: int
    start: int
    stop: int

    @property
    def span(self) -> slice:
        """The chunk's non-zeros."""
        return slice(self.start, self.stop)

    @property
    def indices(self) -> torch.Tensor:
        """[nnz] source rows."""
        return self.block.indices[self.span]

    @property
    def weights(self) -> torch.Tensor | None:
        """[nnz] stored weights, if any."""
        return None if self.block.weights is None else self.block.weights[self.span]

    @property
    def edges(self) -> torch.Tensor | slice:
        """Positions in the CSR that the block was cut from."""
        return self.span if self.block.edges is None else self.block.edges[self.span]

    @property
    def rows(self) -> torch.Tensor | slice:
        """[rows] output rows, a slice where they are consecutive."""
        every = slice(self.first, self.last)
        return every if self.block.rows is None else self.block.rows[every]

    @property
    def offsets(self) -> torch.Tensor:
        """[rows + 1] first non-zero of each row, with the indices' dtype and device."""
        local = self.block.indptr[self.first : self.last + 1] - self.start
        return local.to(dtype=self.block.indices.dtype, device=self.block.indices.device)

    @property
    def lengths(self) -> torch.Tensor:
        """[rows] non-zeros of each row."""
        return (
            self.block.indptr[self.first : self.last + 1]
            .diff()
            .to(device=self.block.indices.device)
        )


EdgeWeights = Callable[[Chunk], torch.Tensor | None]
"""A chunk's weights: [nnz] float32, or None for ones."""


def stored_weights(chunk: Chunk) -> torch.Tensor | None:
    """The weights that the graph came with."""
    return chunk.weights


def no_weights(_chunk: Chunk) -> torch.Tensor | None:
    """Every edge counts as one."""
    return None


def sum_chunk(chunk: Chunk, source: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """[rows, width] sum of w * source[j] over each row of the chunk; source is contiguous."""
    return embedding_bag(
        chunk.indices,
        source,
        chunk.offsets,
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=True,
    )


def add_chunk(out: torch.Tensor, chunk: Chunk, values: torch.Tensor) -> None:
    """out[row] += values for the chunk's rows; ``out`` may be a column slice."""
    if isinstance(chunk.rows, slice):
        out[chunk.rows] += values
    else:
        out.index_add_(0, chunk.rows, values)


def add_rows(out: torch.Tensor, block: Block, source: torch.Tensor, weights: EdgeWeights) -> None:
    """out[i] += sum of w * source[j] over the block's row i."""
    for chunk in block.chunks():
        add_chunk(out, chunk, sum_chunk(chunk, source, weights(chunk)))


def set_rows(out: torch.Tensor, block: Block, source: torch.Tensor, weights: EdgeWeights) -> None:
    """As :func:`add_rows` into zeros, without reading ``out``; every row must be in the block."""
    for chunk in block.chunks():
        out[chunk.rows] = sum_chunk(chunk, source, weights(chunk))


def max_rows(out: torch.Tensor, block: Block, source: torch.Tensor, weights: EdgeWeights) -> None:
    """out[i] = max(out[i], max of w * source[j] over the block's row i); empty rows keep out."""
    best_of = _max_sparse if source.device.type == "cpu" else max_gathered
    for chunk in block.chunks():
        best = best_of(chunk, source, weights(chunk))
        out[chunk.rows] = torch.maximum(out[chunk.rows], best)


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
    best[chunk.lengths == 0] = float("-inf")
    return best


def max_gathered(chunk: Chunk, source: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """[rows, width]: gather, then a segment reduction; works on every device."""
    values = source.index_select(0, chunk.indices)
    if weights is not None:
        values *= weights.unsqueeze(1)
    return segment_max(values, chunk.lengths)


def segment_max(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """[rows, width] maximum of each run of rows of ``values``; -inf for an empty run."""
    return torch.segment_reduce(values, "max", lengths=lengths, axis=0, initial=float("-inf"))


def segment_sum(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """[rows, width] sum of each run of rows of ``values``; zero for an empty run."""
    return torch.segment_reduce(values, "sum", lengths=lengths, axis=0, initial=0)
