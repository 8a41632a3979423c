"""The delta of a version against the one before: rows to replace or add, and ids to remove.

    _delta/upsert/part-00000.parquet   columns id, embedding, as the version's parts
    _delta/delete/part-00000.parquet   column id
    _delta/paths/part-00000.parquet    columns id, embedding [1]: the length of a row's path

The folder's name begins with ``_``, so that tools which read a version as a folder of parquet files
leave it out. Rows of several results are in folders of their names below. An empty part is not
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.io.compare.base import Base
from embertide.io.compare.base_rows import Previous
from embertide.io.compare.rows import KeyedRows
from embertide.io.compare.travel import Travel
from embertide.io.storage.protocol import Storage
from embertide.io.versions.keyed import taken
from embertide.io.versions.parts import PartDigest, PartDtype, PartIds, PartWriter
from embertide.kernels.ids import Ids
from embertide.kernels.row_pairs import Values

FOLDER = "_delta"
Kind = Literal["upsert", "delete", "paths"]
KINDS: tuple[Kind, ...] = ("upsert", "delete", "paths")
_GROUP_VALUES = 1 << 20
"""Values in a row group, about."""


@dataclass
class Chain:
    """What this worker knows of the deltas of its rows.

    Attributes:
        dtype: that values are published in.
        travels: key of a result -> the paths of our rows.
        why: key of a result -> why it has no delta.
    """

    tolerance: float
    dtype: PartDtype
    base: str = ""
    travels: dict[str, Travel] = field(default_factory=dict)
    rows: dict[str, KeyedRows] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    def begin(
        self, key: str, rows: KeyedRows, base: Base, previous: Previous | None
    ) -> Travel | None:
        """Where the paths of a result's rows are noted; None where it has no delta.

        Args:
            rows: ours.
            base: the version before.
            previous: the result there.
        """
        self.base = base.version
        if previous is None:
            self.why[key] = base.why or "there is nothing to compare with"
        elif previous.dim != rows.width:
            self.why[key] = f"{base.version} has {previous.dim} values in a row, not {rows.width}"
        elif previous.dtype != self.dtype:
            self.why[key] = f"{base.version} has {previous.dtype}, not {self.dtype}"
        else:
            self.travels[key], self.rows[key] = Travel(len(rows)), rows
        return self.travels.get(key)

    def write(
        self, storage: Storage, uri: str, label: str, key: str, ids: Ids, kind: str, rank: int
    ) -> dict[Kind, list[dict[str, Any]]]:
        """Write and verify our parts of a result's delta.

        Args:
            uri: of the version.
            label: the result's folder; "" for none.
            ids: of our rows; ``kind`` of ids: ``dense``, ``int64`` or ``string``.

        Raises:
            OutputError, StorageError: a part cannot be written or verified.
        """
        rows, travel = self.rows[key], self.travels[key]
        upserts = travel.upserts(self.tolerance)
        kept = ~upserts & (travel.moved > 0)
        place = _Place(storage, uri, label, kind, rank, self.dtype)
        return {
            "upsert": place.write("upsert", rows.width, upserts, ids, rows.read),
            "delete": place.write_ids(travel.gone),
            "paths": place.write("paths", 1, kept, ids, lambda a, b: travel.moved[a:b, None]),
        }


@dataclass(frozen=True)
class _Place:
    """Where a worker's parts of a result's delta go."""

    storage: Storage
    uri: str
    label: str
    kind: str
    rank: int
    dtype: PartDtype

    def write(
        self,
        what: Kind,
        width: int,
        chosen: npt.NDArray[np.bool_],
        ids: Ids,
        read: Callable[[int, int], Values],
    ) -> list[dict[str, Any]]:
        """The part of the chosen rows [n], in their order."""
        count = int(chosen.sum())
        if not count:
            return []
        dtype: PartDtype = "float32" if what == "paths" else self.dtype
        writer = self._writer(what, width, dtype, count, ordered=True)
        with writer:
            for group_ids, values in _groups(chosen, ids, read, width):
                writer.write(group_ids, values)
        return self._verified(what, writer)

    def write_ids(self, gone: list[Ids]) -> list[dict[str, Any]]:
        """The part of ids alone."""
        if not gone:
            return []
        ids: Any = (
            np.concatenate(gone) if isinstance(gone[0], np.ndarray) else pa.concat_arrays(gone)
        )
        writer = self._writer("delete", 0, "float32", len(ids), ordered=False)
        with writer:
            writer.write(ids, np.empty((len(ids), 0), np.float32))
        return self._verified("delete", writer)

    def _writer(
        self, what: Kind, width: int, dtype: PartDtype, rows: int, *, ordered: bool
    ) -> PartWriter:
        kind: PartIds = "string" if self.kind == "string" else "int64"
        return PartWriter(
            self.storage,
            uri=f"{self.uri}/{self._folder(what)}/part-{self.rank:05d}",
            format="parquet",
            dtype=dtype,
            ids_kind=kind,
            width=width,
            rows=rows,
            keys=self.kind if ordered else None,  # type: ignore[arg-type]
        )

    def _folder(self, what: Kind) -> str:
        return "/".join(filter(None, (FOLDER, self.label, what)))

    def _verified(self, what: Kind, writer: PartWriter) -> list[dict[str, Any]]:
        writer.verify()
        return [asdict(writer.digest.within(self._folder(what)))]


def _groups(
    chosen: npt.NDArray[np.bool_], ids: Ids, read: Callable[[int, int], Values], width: int
) -> Iterator[tuple[Any, Values]]:
    """The chosen rows in groups of about 2^20 values; of all rows a window is read at a time."""
    step = max(1, _GROUP_VALUES // width)
    waiting: list[tuple[Any, Values]] = []
    count = 0
    for first in range(0, len(chosen), step):
        mask = chosen[first : first + step]
        if not mask.any():
            continue
        last = first + len(mask)
        waiting.append((taken(ids[first:last], mask), read(first, last)[mask]))
        count += int(mask.sum())
        if count >= step:
            yield _joined(waiting)
            waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(groups: list[tuple[Any, Values]]) -> tuple[Any, Values]:
    ids = [group[0] for group in groups]
    joined = np.concatenate(ids) if isinstance(ids[0], np.ndarray) else pa.concat_arrays(ids)
    return joined, np.concatenate([group[1] for group in groups])


def describe(
    base: str, tolerance: float, by_rank: list[dict[str, list[dict[str, Any]]]]
) -> dict[str, Any]:
    """A result's delta, as the version's manifest has it, from the parts of all workers."""
    found: dict[str, Any] = {"base": base, "tolerance": tolerance}
    for what in KINDS:
        parts = [PartDigest(**part) for of_rank in by_rank for part in of_rank[what]]
        found[what] = {
            "rows": sum(part.rows for part in parts),
            "size": sum(part.size for part in parts),
            "parts": [asdict(part) for part in parts],
        }
    return found
