"""Long rows of a block, in pieces that programs of a GPU reduce side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PIECE_EDGES = 512
"""Non-zeros of a row that one program reduces. A longer row is cut."""


@dataclass(frozen=True)
class Runs:
    """Runs of non-zeros, each of which one program reduces, and the rows that get the results.

    Attributes:
        starts, stops: [k] first non-zero of each run, and one past the last.
        rows: [k] output rows; None when they are 0..k-1.
        limit: programs leave out longer runs.
    """

    starts: Tensor
    stops: Tensor
    rows: Tensor | None
    limit: int = 1 << 62

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class Pieces:
    """The pieces of all long rows, row by row, where the non-zeros are.

    Attributes:
        rows: [k] int64 the long rows, counted as in the block.
        ends: [k + 1] int64 first piece of each.
        starts: [pieces] int64 first non-zero of each.
        stops: [pieces] int64 one past the last.
    """

    rows: Tensor
    ends: Tensor
    starts: Tensor
    stops: Tensor

    def __len__(self) -> int:
        return len(self.starts)

    def each(self) -> Runs:
        """The pieces themselves."""
        return Runs(self.starts, self.stops, None)

    def joined(self, rows: Tensor | None) -> Runs:
        """Each row's pieces as a run, given the block's output rows."""
        numbers = self.rows if rows is None else rows[self.rows]
        return Runs(self.ends[:-1], self.ends[1:], numbers)


def short(ends: Tensor, rows: Tensor | None) -> Runs:
    """All rows that are not cut, of a block whose row ends are where its non-zeros are."""
    return Runs(ends[:-1], ends[1:], rows, PIECE_EDGES)


def cut(indptr: Tensor, device: torch.device, limit: int = PIECE_EDGES) -> Pieces | None:
    """The rows with more than ``limit`` non-zeros; None where there are none.

    Args:
        indptr: [R + 1] on the CPU.
    """
    lengths = indptr.diff()
    rows = (lengths > limit).nonzero()[:, 0]
    if not len(rows):
        return None
    first, length = indptr[rows].long(), lengths[rows].long()
    counts = (length + (limit - 1)) // limit
    ends = torch.zeros(len(rows) + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=ends[1:])
    within = torch.arange(int(ends[-1])) - ends[:-1].repeat_interleave(counts)
    starts = first.repeat_interleave(counts) + within * limit
    stops = torch.minimum(starts + limit, (first + length).repeat_interleave(counts))
    return Pieces(*(each.to(device) for each in (rows, ends, starts, stops)))
