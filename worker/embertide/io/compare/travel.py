"""How far rows have moved since a chain of deltas last gave them to its readers.

A delta has the rows that moved further than a tolerance. Readers may begin with any version in
full, so what counts is the length of a row's *path*: the sum of its distances from version to
version since it was last in a delta. No two versions in between are further apart than that (the
triangle inequality), so a reader of any of them has the row within the tolerance. A version keeps
the lengths of the paths that are not zero, four bytes for each, and not the rows themselves.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from embertide.io.compare.base_rows import Previous
from embertide.io.compare.rows import KeyedRows
from embertide.io.readers.pool import map_splits
from embertide.io.versions.keyed import may_have, rows_within
from embertide.io.versions.keys import KeyRange
from embertide.io.versions.parts import PartDigest
from embertide.kernels.ids import Ids
from embertide.kernels.row_pairs import Values

_ROUNDING = 1 + 1e-5
"""Distances are sums in float32; a path is never taken for shorter than it is."""
_LEAST = np.float32(1e-18)
"""The least distance of rows whose bits differ: squares of smaller distances are no float32."""


class Travel:
    """The paths of our rows, and the rows of the previous version that we do not have.

    Several threads may note what they see of different rows.

    Attributes:
        moved: float32 [n]; infinite for rows that the previous version does not have.
        gone: ids of the previous version that are not among ours.
    """

    def __init__(self, rows: int) -> None:
        self.moved: Values = np.full(rows, np.inf, np.float32)
        self.gone: list[Ids] = []

    def note(
        self,
        places: npt.NDArray[np.int64],
        squares: npt.NDArray[np.float64],
        same: npt.NDArray[np.bool_],
    ) -> None:
        """Rows that were compared with the previous version.

        Args:
            places: [k] which of our rows.
            squares: [k] squared distances, not negative.
            same: [k] whether all bits are the same.
        """
        lengths = np.maximum(np.sqrt(squares) * _ROUNDING, _LEAST).astype(np.float32)
        lengths[np.isnan(lengths)] = np.inf
        self.moved[places] = np.where(same, np.float32(0), lengths)

    def add_earlier(self, places: npt.NDArray[np.int64], paths: Values) -> None:
        """Add the paths [k] that the rows had in the previous version."""
        total = self.moved[places].astype(np.float64) + paths.astype(np.float64)
        self.moved[places] = np.nextafter(total.astype(np.float32), np.float32(np.inf))

    def upserts(self, tolerance: float) -> npt.NDArray[np.bool_]:
        """[n] which rows a delta has."""
        return self.moved > np.float64(tolerance)


def add_earlier_paths(
    travel: Travel, rows: KeyedRows, previous: Previous, keys: KeyRange, threads: int
) -> None:
    """Read the paths that the previous version keeps of a range of keys.

    Raises:
        OutputError: a part of them is missing or damaged; names it.
        StorageError: the store refused or failed.
    """
    parts = [part for part in previous.paths if may_have(part, keys)]
    read = partial(_add_part, travel, rows, previous, keys)
    for _ in map_splits(parts, read, threads):
        pass


def _add_part(
    travel: Travel, rows: KeyedRows, previous: Previous, keys: KeyRange, part: PartDigest
) -> None:
    for words, (_, paths) in rows_within(
        previous.storage, previous.uri, part, 1, previous.kind, keys
    ):
        places = np.empty(len(words), np.int64)
        rows.table.find_words(np.ascontiguousarray(words), 0, places)
        known = places >= 0
        travel.add_earlier(places[known], paths[known, 0])
