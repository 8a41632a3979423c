"""Cutting a partition's non-zeros into a local block and one block per group of sources.

A stable counting sort by group in two passes over bounded chunks of rows, so that beside the
result only chunk-sized temporaries exist.
"""

from __future__ import annotations

from collections.abc import Iterator
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
        place = _destinations(group[order], cursor)
        local = np.where(slot < 0, -1 - slot, slot - (group.astype(slot.dtype) - 1) * group_rows)
        indices[place] = local[order]
        rows[place] = _rows_of(csr, span)[order]
        if positions is not None:
            positions[place] = span.start + order
        if weights is not None and csr.weights is not None:
            weights[place] = csr.weights.numpy()[span][order]
    parts = [slice(a, b) for a, b in pairwise(bounds)]
    return [
        _block(csr.rows, part, indices, rows, weights, positions, every_row=number == 0)
        for number, part in enumerate(parts)
    ]


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


def _block(
    total_rows: int,
    part: slice,
    indices: np.ndarray,
    rows: np.ndarray,
    weights: np.ndarray | None,
    positions: np.ndarray | None,
    *,
    every_row: bool,
) -> Block:
    """One group's stretch of the sorted non-zeros as a block."""
    mine = rows[part]
    if every_row:
        present, counts = None, np.bincount(mine, minlength=total_rows)
    else:
        starts = np.flatnonzero(np.diff(mine, prepend=-1))
        present, counts = mine[starts], np.diff(np.append(starts, len(mine)))
    # Groups are many and their rows nearly all of them: narrow numbers halve what they take.
    narrow = np.int32 if len(mine) < 2**31 else np.int64
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(narrow)
    return Block(
        None if present is None else torch.from_numpy(present),
        torch.from_numpy(indptr),
        torch.from_numpy(indices[part]),
        None if weights is None else torch.from_numpy(weights[part]),
        None if positions is None else torch.from_numpy(positions[part]),
    )
