"""Cutting a partition's non-zeros into a local block and one block per group of sources.

A stable counting sort by group in two passes over bounded chunks of rows, so that beside the
result only chunk-sized temporaries exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from embertide.kernels.block import Block
from embertide.kernels.csr import Csr

SPAN = 1 << 20
"""Non-zeros sorted at a time."""


def cut_by_group(
    csr: Csr, table: torch.Tensor, group_rows: int, unique: int, *, edges: bool
) -> list[Block]:
    """The local block, then the block of each group, on the CPU.

    Args:
        csr: the non-zeros.
        table: [N] for each source that occurs: its slot, or -1 - row where we hold it.
        group_rows: slots per group.
        unique: slots in all.
        edges: whether blocks carry each non-zero's position in ``csr``.

    The local block has every row; a group's block only the rows it touches.
    """
    groups = -(-unique // group_rows) + 1
    lut, cols = table.numpy(), csr.cols.numpy()
    counts = np.zeros(groups, np.int64)
    for span in _spans(csr.nnz):
        counts += np.bincount(_groups(lut[cols[span]], group_rows), minlength=groups)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    indices = np.empty(csr.nnz, lut.dtype)
    rows = np.empty(csr.nnz, np.int32)
    positions = np.empty(csr.nnz, np.int32 if csr.nnz < 2**31 else np.int64) if edges else None
    weights = None if csr.weights is None else np.empty(csr.nnz, np.float32)
    cursor = bounds[:-1].copy()
    for span in _spans(csr.nnz):
        slot = lut[cols[span]]
        group = _groups(slot, group_rows)
        order = np.argsort(group, kind="stable")
        position = _destinations(group[order], cursor)
        local = np.where(slot < 0, -1 - slot, slot - (group.astype(slot.dtype) - 1) * group_rows)
        indices[position] = local[order]
        rows[position] = _rows_of(csr, span)[order]
        if positions is not None:
            positions[position] = span.start + order
        if weights is not None and csr.weights is not None:
            weights[position] = csr.weights.numpy()[span][order]
    first, *rest = (slice(a, b) for a, b in pairwise(bounds))
    cut = _Sorted(rows=rows, indices=indices, weights=weights, positions=positions)
    return [cut.every_row(first, csr.rows), *map(cut.rows_present, rest)]


def _spans(nnz: int) -> Iterator[slice]:
    return (slice(at, min(at + SPAN, nnz)) for at in range(0, nnz, SPAN))


def _groups(slot: np.ndarray, group_rows: int) -> np.ndarray:
    """Group of each slot: 0 for local, else 1 + its group; 16-bit where they fit (radix sort)."""
    group = np.where(slot < 0, 0, slot // group_rows + 1)
    return group.astype(np.uint16) if group.max(initial=0) < 2**16 else group


def _destinations(group: np.ndarray, cursor: np.ndarray) -> np.ndarray:
    """Where each element of an ascending group list goes; advances the groups' cursors."""
    present, first, count = np.unique(group, return_index=True, return_counts=True)
    offset = np.repeat(cursor[present] - first, count)
    cursor[present] += count
    return offset + np.arange(len(group))


def _rows_of(csr: Csr, span: slice) -> np.ndarray:
    """[span] the row of each non-zero."""
    indptr = csr.indptr.numpy()
    first = int(np.searchsorted(indptr, span.start, side="right")) - 1
    last = int(np.searchsorted(indptr, span.stop, side="left"))
    lengths = np.diff(np.clip(indptr[first : last + 1], span.start, span.stop))
    return np.repeat(np.arange(first, last, dtype=np.int32), lengths)


@dataclass(frozen=True, kw_only=True)
class _Sorted:
    """The non-zeros ordered by group, each group a span; arrays are [nnz] each."""

    rows: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    positions: np.ndarray | None

    def every_row(self, span: slice, rows: int) -> Block:
        """A group as a block that has all ``rows`` rows."""
        return self._block(span, None, np.bincount(self.rows[span], minlength=rows))

    def rows_present(self, span: slice) -> Block:
        """A group as a block that has only the rows with non-zeros."""
        rows = self.rows[span]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        return self._block(span, rows[starts], np.diff(np.append(starts, len(rows))))

    def _block(self, span: slice, rows: np.ndarray | None, counts: np.ndarray) -> Block:
        # Groups are many and their rows nearly all of them: narrow numbers halve what they take.
        narrow = np.int32 if span.stop - span.start < 2**31 else np.int64
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(narrow)
        return Block(
            None if rows is None else torch.from_numpy(rows),
            torch.from_numpy(indptr),
            torch.from_numpy(self.indices[span]),
            None if self.weights is None else torch.from_numpy(self.weights[span]),
            None if self.positions is None else torch.from_numpy(self.positions[span]),
        )
