"""The three layouts that a dense node tensor may have, and the letters used everywhere.

N nodes, E edges, D columns of a tensor, P x M workers, W = P * M, Z mean non-zeros per row.

========== ==================================================== =========================
layout     what worker (p, m) holds                             used by
========== ==================================================== =========================
``tile``   rows of partition p, column slice m: [N/P, D/M]      aggregation, in and out
``rows``   sub-range m of partition p's rows, all columns:      node-wise steps, writing
           [N/(P*M), D]
``loaded`` the rows this worker read, any order, all columns    input features
========== ==================================================== =========================

With M = 1 a tile and its rows are the same tensor and converting costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

ROW_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What a manifest may say of the rows that are read over edges and travel."""

Layout = Literal["tile", "rows"]


@dataclass(frozen=True)
class Shard:
    """What one rank holds of a dense node tensor of ``width`` columns."""

    layout: Layout
    data: torch.Tensor
    width: int


@dataclass(frozen=True)
class ReadRows:
    """Rows of features that a rank read of one part of the inputs.

    Attributes:
        part: a digest of the objects of the part, and of what was read of them.
        first, last: their places among the rows that it loaded, in the order that it read them.
        start: the dense id of the first, which those of the others follow; None: they do not.
    """

    part: str
    first: int
    last: int
    start: int | None


@dataclass
class Loaded:
    """Input features on the rank that read them.

    Attributes:
        ids: [n] int64 dense node ids in the order of the rows, over all chunks.
        data: [n, D] float32.
        placed: this rank has all rows, in the order of their dense ids; ``ids`` is empty then.
        to_place: on disk, where they are put in that order later: in memory they would be placed.
    """

    ids: torch.Tensor
    data: torch.Tensor
    placed: bool = False
    to_place: bool = False

    @property
    def width(self) -> int:
        """D, the columns of the features."""
        return self.data.shape[1]

    def without_rows(self) -> Loaded:
        """What says how they were loaded, without any."""
        return replace(self, ids=self.ids[:0], data=self.data[:0])

    def release(self) -> None:
        """Free the values, even where other references to this object exist."""
        self.data = self.data.new_empty(0, self.width)
