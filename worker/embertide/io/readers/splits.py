"""Who reads what: inputs are divided into splits once, and ranks take contiguous runs of them.

Whole objects would balance badly (one big file, four workers), so a split is a run of row
groups of a parquet object, a row range of an npy array, or a byte range of a text file.
Listing and splitting happen in one process; splits are small and are sent to the ranks as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from embertide.io.storage.protocol import ObjectInfo
from embertide.plain import Plain

S = TypeVar("S")
T = TypeVar("T")

TARGET_BYTES = 16 << 20
"""Default size of a split: small enough to balance, large enough to hide a store's latency."""

_LISTING_THREADS = 16


@dataclass(frozen=True, kw_only=True)
class Split(Plain):
    """A contiguous range of one object, read by one rank.

    Attributes:
        uri: the object; ``object_size`` (bytes) and ``etag`` say which state of it was split.
        start: first row; for text the first byte: the split owns the lines that begin in
            ``[start, stop)``.
        stop: one past the last row (text: byte).
        size: bytes to read.
        row_groups: those of a parquet object that hold the rows, else None.
        base: number of rows in the objects before this one (text: bytes, which is unused).
        ids_uri: the object with the ids of npy rows, with its ``ids_size`` and ``ids_etag``.
        array: where rows of an array lie, by :meth:`npy.Header.to_json`.
        names: columns that are stored under another name -> that name.
        constants: columns with one value in all rows -> that value as text, None for null.
        deleted: the rows that no longer count, see :func:`layout.pack_rows`; "" for none.
        deleted_rows: how many these are.
    """

    uri: str
    object_size: int
    etag: str
    start: int
    stop: int
    size: int
    row_groups: tuple[int, ...] | None = None
    base: int = 0
    ids_uri: str | None = None
    ids_size: int = 0
    ids_etag: str = ""
    array: Mapping[str, Any] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str | None] = field(default_factory=dict)
    deleted: str = ""
    deleted_rows: int = 0

    @classmethod
    def of(
        cls,
        info: ObjectInfo,
        start: int,
        stop: int,
        size: int,
        row_groups: tuple[int, ...] | None = None,
    ) -> Split:
        """Rows (text: bytes) ``[start, stop)`` of an object, ``size`` bytes."""
        return cls(
            uri=info.uri,
            object_size=info.size,
            etag=info.etag,
            start=start,
            stop=stop,
            size=size,
            row_groups=row_groups,
        )

    @property
    def rows(self) -> int:
        """How many rows are read (text: bytes)."""
        return self.stop - self.start - self.deleted_rows

    @property
    def info(self) -> ObjectInfo:
        """The object, in the state that was split."""
        return ObjectInfo(self.uri, self.object_size, self.etag)

    @property
    def ids_info(self) -> ObjectInfo | None:
        """The object with the ids of npy rows, in the state that was split."""
        if self.ids_uri is None:
            return None
        return ObjectInfo(self.ids_uri, self.ids_size, self.ids_etag)


def assign_splits(splits: Sequence[Split], world: int) -> list[list[Split]]:
    """The splits of each of ``world`` ranks: contiguous runs, in order, balanced by size.

    A split goes to the rank whose equal share of all bytes holds its middle byte, so no rank
    gets more than total / world + the largest split. Splits without bytes count as one byte.
    """
    assigned: list[list[Split]] = [[] for _ in range(world)]
    sizes = [max(1, split.size) for split in splits]
    total = sum(sizes)
    before = 0
    for split, size in zip(splits, sizes, strict=True):
        assigned[(2 * before + size) * world // (2 * total)].append(split)
        before += size
    return assigned


@dataclass(frozen=True, eq=False)
class Shares:
    """How much each of some ranks reads of a listing, looked up once for a number of them."""

    splits: Sequence[Split]
    _rows: dict[int, list[int]] = field(default_factory=dict, init=False, repr=False)

    def rows(self, world: int) -> list[int]:
        """Rows (text: bytes) of each of ``world`` ranks."""
        if world not in self._rows:
            assigned = assign_splits(self.splits, world)
            self._rows[world] = [sum(split.rows for split in mine) for mine in assigned]
        return self._rows[world]


def split_ranges(total: int, size: int, target_bytes: int) -> list[tuple[int, int]]:
    """Ranges ``[start, stop)`` that divide ``total`` units of ``size`` bytes evenly.

    Each takes about ``target_bytes``; none is empty.
    """
    count = min(total, max(1, round(size / target_bytes)))
    bounds = [total * i // count for i in range(count + 1)] if total else []
    return list(pairwise(bounds))


def map_objects(objects: Sequence[S], look: Callable[[S], T]) -> list[T]:
    """``look(object)`` for every object, in order; concurrent, since each waits for the store.

    Raises:
        Exception: the first error of ``look``, in the order of ``objects``.
    """
    with ThreadPoolExecutor(max_workers=_LISTING_THREADS) as pool:
        return list(pool.map(look, objects))
