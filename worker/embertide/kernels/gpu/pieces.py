"""Long rows of a block, in pieces that programs of a GPU reduce side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PIECE_EDGES = 512
"""Non-zeros of a row that one program reduces. A longer row is cut."""


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
