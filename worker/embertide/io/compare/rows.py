"""What there is to know of some rows without any others: zeros, norms, fingerprints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from embertide.io.readers.pool import map_splits
from embertide.io.versions.keys import Key, key_at, key_words
from embertide.kernels.hashing import Words
from embertide.kernels.ids import Ids, IdTable
from embertide.kernels.row_pairs import Values, look_at_rows

_WINDOW_VALUES = 1 << 19
"""Values that a thread looks at a time: 2 MiB, so that several threads share the rows evenly."""


@dataclass(frozen=True)
class KeyedRows:
    """Rows in the order of their keys.

    Attributes:
        keys: [n, w], ascending.
        width: D.
        read: (first, last) -> float32 [last - first, D], as they are published; several threads
            may call it.
    """

    keys: Words
    width: int
    read: Callable[[int, int], Values]

    @classmethod
    def of(cls, ids: Ids, kind: str, width: int, read: Callable[[int, int], Values]) -> KeyedRows:
        """From ids of a kind: ``dense``, ``int64`` or ``string``."""
        return cls(key_words(ids, kind), width, read)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def start(self) -> Key | None:
        """The first key; None without rows."""
        return key_at(self.keys, 0) if len(self) else None

    @cached_property
    def table(self) -> IdTable:
        """Finds the rows of keys."""
        return IdTable(self.keys)

    def windows(self) -> list[tuple[int, int]]:
        """Rows (first, last) that are looked at together."""
        step = max(1, _WINDOW_VALUES // self.width)
        return [(at, min(at + step, len(self))) for at in range(0, len(self), step)]


@dataclass(frozen=True)
class RowFacts:
    """One pass over some rows.

    Attributes:
        norms: float32 [n]; not finite where the row is not.
        prints: [n] hashes of the rows' bits.
    """

    norms: Values
    prints: Words

    @property
    def zeros(self) -> int:
        """Rows whose values are all zero."""
        return int((self.norms == 0).sum())

    @property
    def not_finite(self) -> int:
        """Rows with NaN or an infinity."""
        return int((~np.isfinite(self.norms)).sum())


def look_at(rows: KeyedRows, threads: int) -> RowFacts:
    """Go over the rows once, with several threads."""
    facts = RowFacts(np.empty(len(rows), np.float32), np.empty(len(rows), np.uint64))

    def look(window: tuple[int, int]) -> None:
        first, last = window
        look_at_rows(rows.read(first, last), facts.norms[first:last], facts.prints[first:last])

    map_splits(rows.windows(), look, threads)
    return facts


def as_published(values: Values, dtype: str) -> Values:
    """Values rounded to a type of published values, as float32."""
    if dtype == "float32":
        return np.ascontiguousarray(values)
    with np.errstate(over="ignore"):
        return values.astype(dtype).astype(np.float32)


@dataclass(frozen=True)
class Duplicates:
    """How many rows share their vector with another one.

    Attributes:
        rows: of those that were looked at together.
        prints, counts: [k] fingerprints below a bound that follows from the number of all rows,
            and how many rows have each; with those of other workers they tell of rows that are
            apart.
    """

    rows: int
    prints: Words
    counts: npt.NDArray[np.int64]


KEPT_PRINTS = 1 << 17
"""About how many fingerprints of all rows workers exchange."""


def find_duplicates(facts: RowFacts, total: int) -> Duplicates:
    """The duplicates among some rows, zero vectors and those that are not finite aside.

    The fingerprints are sorted where they are, so that they are of no use afterwards.

    Args:
        total: rows of all workers.
    """
    prints, last = facts.prints, np.uint64(2**64 - 1)
    prints[(facts.norms == 0) | ~np.isfinite(facts.norms)] = last
    prints.sort()
    counted = prints[: np.searchsorted(prints, last)]
    same = counted[1:] == counted[:-1]
    first_pairs = np.count_nonzero(same[1:] & ~same[:-1]) + np.count_nonzero(same[:1])
    bound = np.uint64(min(2**64 - 1, 2**64 * KEPT_PRINTS // max(1, total)))
    kept = counted[: np.searchsorted(counted, bound, "right")]
    return Duplicates(
        int(np.count_nonzero(same) + first_pairs), *np.unique(kept, return_counts=True)
    )


def count_duplicates(parts: list[Duplicates], total: int) -> int:
    """Duplicates among all rows: exact of up to 131,072, else estimated.

    The estimate is that of the fingerprints that workers exchange, or what each worker has counted
    among its own rows where that is more: a vector of very many rows may have a fingerprint that is
    not exchanged.
    """
    prints = np.concatenate([part.prints for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    if not len(prints):
        return sum(part.rows for part in parts)
    _, places = np.unique(prints, return_inverse=True)
    together = np.bincount(places, weights=counts)
    share = min(1.0, KEPT_PRINTS / max(1, total))
    estimate = round(float(together[together > 1].sum()) / share)
    return min(total, max(estimate, sum(part.rows for part in parts)))
