"""Who reads what: inputs are cut into pieces once, and ranks take contiguous runs of them.

Whole objects would balance badly (one big file, four workers), so a piece is a run of row
groups of a parquet object, a row range of an npy array, or a byte range of a text file.
Listing and cutting happen in one process; the pieces are small and travel as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypeVar

from embertide.storage.protocol import ObjectInfo

S = TypeVar("S")
T = TypeVar("T")

TARGET_BYTES = 16 << 20
"""Default size of a piece: small enough to balance, large enough to hide a store's latency."""

_LISTING_THREADS = 16


@dataclass(frozen=True)
class Piece:
    """One part of one object, read by one rank.

    ``size`` is its work in bytes. ``start`` and ``stop`` are rows of the object, except for
    text, where they are bytes: the piece owns the lines that begin in that range. ``base`` is
    the number of rows in the objects before this one (0 for text). ``object_size`` and
    ``etag`` say which state of the object was cut. ``ids_uri``, ``ids_size`` and ``ids_etag``
    name the object with the ids of npy rows.
    """

    uri: str
    size: int
    start: int
    stop: int
    object_size: int
    etag: str
    row_groups: tuple[int, ...] | None = None
    base: int = 0
    ids_uri: str | None = None
    ids_size: int = 0
    ids_etag: str = ""

    @property
    def info(self) -> ObjectInfo:
        """The object, as it was when it was cut."""
        return ObjectInfo(self.uri, self.object_size, self.etag)

    @property
    def ids_info(self) -> ObjectInfo | None:
        """The object with the ids of npy rows, as it was when it was cut."""
        if self.ids_uri is None:
            return None
        return ObjectInfo(self.ids_uri, self.ids_size, self.ids_etag)

    def to_json(self) -> dict[str, Any]:
        """A dict of plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Piece:
        """The piece that `to_json` described (also after a trip through JSON)."""
        groups = data["row_groups"]
        return cls(**data | {"row_groups": None if groups is None else tuple(groups)})


def share(pieces: Sequence[Piece], world: int) -> list[list[Piece]]:
    """Deal pieces to ``world`` ranks: contiguous, in order, balanced by size.

    A piece goes to the rank whose equal share of all bytes holds its middle byte, so no rank
    gets more than total / world + the largest piece. Pieces without bytes count as one byte.
    """
    shares: list[list[Piece]] = [[] for _ in range(world)]
    sizes = [max(1, piece.size) for piece in pieces]
    total = sum(sizes)
    before = 0
    for piece, size in zip(pieces, sizes, strict=True):
        shares[(2 * before + size) * world // (2 * total)].append(piece)
        before += size
    return shares


def cut_ranges(total: int, size: int, target_bytes: int) -> list[tuple[int, int]]:
    """Cut ``total`` units weighing ``size`` bytes into equal ranges of about ``target_bytes``."""
    count = min(total, max(1, round(size / target_bytes)))
    bounds = [total * i // count for i in range(count + 1)] if total else []
    return list(pairwise(bounds))


def map_objects(objects: Sequence[S], look: Callable[[S], T]) -> list[T]:
    """``look`` at every object, several at a time since each look waits for the store.

    Results are in the order of ``objects``; the first error in that order is raised.
    """
    with ThreadPoolExecutor(max_workers=_LISTING_THREADS) as pool:
        return list(pool.map(look, objects))
