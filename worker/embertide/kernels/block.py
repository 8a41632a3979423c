"""Non-zeros of some rows over some source rows.

A :class:`Block` is a compressed sparse matrix whose columns index a dense source tensor that
is in memory: our own tile, or the receive buffer of one group. Where a reduction over it runs on
torch, it runs in chunks of rows, so that temporaries stay small and 32-bit offsets always suffice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from embertide.kernels import native
from embertide.kernels.pieces import Pieces, cut
from embertide.kernels.staging import Staging
from embertide.kernels.sums import sum_rows

CHUNK_EDGES = 1 << 17
"""Non-zeros reduced at a time: the sums of a chunk's rows stay in the cache. A longer row is one
chunk of its own."""
GPU_CHUNK_EDGES = 1 << 20
"""The same on a GPU: enough to keep all of it busy, few enough that their gathered rows fit."""

B = TypeVar("B")

HUB_EDGES = 1 << 10
"""Non-zeros of a row in one of many groups from which on its groups are added up in float64."""

GPU_PART_EDGES = 1 << 22
"""Non-zeros whose sums exist at a time there, where they are multiplied next."""
GPU_PART_ROWS = 1 << 18
"""Rows whose sums do, however few non-zeros they have."""


def chunk_edges(device: torch.device) -> int:
    """Non-zeros reduced at a time on a device."""
    return CHUNK_EDGES if device.type == "cpu" else GPU_CHUNK_EDGES


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

    @property
    def outputs(self) -> int:
        """Rows here."""
        return len(self.indptr) - 1

    def each(self) -> Iterator[tuple[slice, Block]]:
        """All rows at once: a block in memory is one part, see :class:`SpilledBlock`."""
        yield slice(None), self

    @cached_property
    def pattern(self) -> Any:
        """What native kernels take: the arrays, checked and cut into tasks once; None on torch."""
        if native.lib is None or self.indices.device.type != "cpu":
            return None
        rows = None if self.rows is None else self.rows.to(torch.int32)
        return native.lib.Pattern(self.indptr, self.indices, rows)

    @cached_property
    def ends(self) -> torch.Tensor:
        """[R + 1] ``indptr`` where the indices are, copied there once."""
        return self.indptr.to(self.indices.device)

    @cached_property
    def pieces(self) -> Pieces | None:
        """The pieces of rows that are too long for one program of a GPU, cut once."""
        return cut(self.indptr, self.indices.device)

    @cached_property
    def hubs(self) -> torch.Tensor:
        """[k] int64 output rows with more than HUB_EDGES non-zeros here."""
        rows = (self.indptr.diff() > HUB_EDGES).nonzero()[:, 0].to(self.indices.device)
        return rows if self.rows is None else self.rows[rows].long()

    @cached_property
    def parts(self) -> tuple[tuple[Chunk, Block], ...]:
        """Large chunks, each with a block of its own that shares memory for the non-zeros."""
        parts = self.chunks(GPU_PART_EDGES, GPU_PART_ROWS)
        return tuple((chunk, chunk.alone()) for chunk in parts)

    def upload(self, staging: Staging) -> Block:
        """The same block with everything but ``indptr`` on the device."""
        given = (self.rows, self.weights, self.edges)
        rows, weights, edges = (None if t is None else staging.upload(t) for t in given)
        return Block(rows, self.indptr, staging.upload(self.indices), weights, edges)

    def chunks(self, limit: int | None = None, most: int | None = None) -> Iterator[Chunk]:
        """Consecutive runs of at most ``most`` whole rows with at most ``limit`` non-zeros each.

        Without a limit, as many non-zeros as suit the device.
        """
        limit = limit or chunk_edges(self.indices.device)
        rows = len(self.indptr) - 1
        most = most or rows
        first = 0
        while first < rows:
            start = int(self.indptr[first])
            last = int(torch.searchsorted(self.indptr, start + limit, right=True)) - 1
            last = min(max(last, first + 1), first + most, rows)
            yield Chunk(self, first, last, start, int(self.indptr[last]))
            first = last


@dataclass(frozen=True)
class PackedBlock:
    """A block on the CPU whose rows have hardly more than one non-zero each.

    A row's number and run would take 8 bytes, the low half of each non-zero's row takes 2: a panel
    has the rows that agree in the high half.

    Attributes:
        low: [nnz] uint16 of its row, ascending within a panel.
        panels: [panels + 1] first non-zero of each panel.
        indices, weights, edges: as of a :class:`Block`.
    """

    low: npt.NDArray[np.uint16]
    panels: npt.NDArray[np.int64]
    indices: torch.Tensor
    weights: torch.Tensor | None = None
    edges: torch.Tensor | None = None

    @property
    def nnz(self) -> int:
        """Non-zeros of all rows."""
        return len(self.indices)

    @cached_property
    def hubs(self) -> torch.Tensor:
        """As of a :class:`Block`."""
        return self.unpack().hubs

    def upload(self, staging: Staging) -> Block | PackedBlock:
        """The block itself on the CPU; unpacked on another device."""
        return self if staging.device.type == "cpu" else self.unpack().upload(staging)

    def unpack(self) -> Block:
        """The block, which shares memory for its non-zeros."""
        rows, starts = np.empty(self.nnz, np.int32), np.empty(self.nnz + 1, np.int32)
        count = native.lib.unpack_rows(self.low, self.panels, rows, starts)
        return Block(
            torch.from_numpy(rows[:count]),
            torch.from_numpy(starts[: count + 1]),
            self.indices,
            self.weights,
            self.edges,
        )


def unpacked(block: PackedBlock | B) -> Block | B:
    """The block as kernels take it."""
    return block.unpack() if isinstance(block, PackedBlock) else block


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

    def alone(self) -> Block:
        """The chunk as a block, whose rows are counted from its first."""
        indptr = self.block.indptr[self.first : self.last + 1] - self.start
        return Block(None, indptr, self.indices, self.weights)

    @property
    def indices(self) -> torch.Tensor:
        """[nnz] source rows."""
        return self.block.indices[self.span]

    @property
    def weights(self) -> torch.Tensor | None:
        """[nnz] stored weights, if any."""
        return None if self.block.weights is None else self.block.weights[self.span]

    @property
    def rows(self) -> torch.Tensor | slice:
        """[rows] output rows, a slice where they are consecutive."""
        every = slice(self.first, self.last)
        return every if self.block.rows is None else self.block.rows[every]

    @property
    def offsets(self) -> torch.Tensor:
        """[rows + 1] first non-zero of each row, with the indices' dtype and device."""
        local = self.block.ends[self.first : self.last + 1] - self.start
        return local.to(self.block.indices.dtype)

    @property
    def lengths(self) -> torch.Tensor:
        """[rows] non-zeros of each row."""
        return self.block.ends[self.first : self.last + 1].diff()


def sum_chunk(chunk: Chunk, source: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """[rows, width] sum of w * source[j] over each row of the chunk; source is contiguous."""
    return sum_rows(source, chunk.indices, chunk.offsets, weights)


def segment_max(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """[rows, width] maximum of each run of rows of ``values``; -inf for an empty run."""
    return torch.segment_reduce(values, "max", lengths=lengths, axis=0, initial=float("-inf"))
