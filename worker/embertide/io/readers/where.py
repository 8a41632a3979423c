"""Where a row is, in words that help a user find it.

Batches carry a `Where` instead of line numbers: line numbers are computed only when an error
is raised, so that good input costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Where:
    """Position of a batch: the object and its first row (rows count from 0).

    ``rows`` are the batch's rows counted from ``first_row``, where some between them were left out.
    ``line_of`` turns a row into the line number of a text file (lines count from 1); it reads
    the file again, so it is called for errors only.
    """

    uri: str
    first_row: int
    line_of: Callable[[int], int] | None = None
    rows: npt.NDArray[np.int64] | None = None

    def row(self, i: int) -> str:
        """Name row ``i`` of the batch: ``s3://b/x.parquet row 17 (from 0)`` or ``... line 18``."""
        row = self.first_row + (i if self.rows is None else int(self.rows[i]))
        if self.line_of is None:
            return f"{self.uri} row {row} (from 0)"
        return f"{self.uri} line {self.line_of(row)}"

    def skip(self, rows: int) -> Where:
        """The position ``rows`` further on."""
        return replace(self, first_row=self.first_row + rows)

    def select(self, rows: npt.NDArray[np.int64]) -> Where:
        """The position of some of the rows, by their numbers in the batch."""
        return replace(self, rows=rows if self.rows is None else self.rows[rows])
