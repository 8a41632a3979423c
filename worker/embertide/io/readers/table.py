"""A table of wanted columns in any format: list its objects, split them, read them.

Edges, nodes and scalar features all ask for a few columns of many rows. What they mean by
them is their matter; here the rows only have to come completely, in order, and in batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from embertide.io.readers.columns import Column
from embertide.io.readers.dialect import Dialect
from embertide.io.readers.layout import keep_rows
from embertide.io.readers.npy import read_npy, split_npy
from embertide.io.readers.objects import naming_others
from embertide.io.readers.parquet import CheckNames, read_parquet, split_parquet
from embertide.io.readers.sources import Sources
from embertide.io.readers.splits import Split, map_objects
from embertide.io.readers.text import read_text, split_text
from embertide.io.readers.types import plain
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.edges import EdgeFormat
from embertide.spec.places import ObjectInput
from embertide.spec.tables import COLUMN_FORMATS

BATCH_ROWS = 1 << 18


@dataclass(frozen=True)
class Selection:
    """The rows of a table that are read: those with one value in a column."""

    column: Column
    equals: str | int

    def of(self, array: Any) -> npt.NDArray[np.bool_]:
        """[n] which values of the column are the one; a null is not."""
        found = pc.equal(plain(array), self.equals).fill_null(False)
        kept: npt.NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
        return kept


@dataclass(frozen=True)
class Table:
    """The objects of an input and the columns wanted from each.

    Attributes:
        field: of the manifest, such as ``edges``, for messages.
        dialect: of csv and tsv.
        check_names: sees the names of all columns of every parquet object.
        only: the rows that count; None: all do.
    """

    field: str
    source: ObjectInput
    format: EdgeFormat
    columns: tuple[Column, ...]
    dialect: Dialect | None = None
    check_names: CheckNames | None = None
    only: Selection | None = None

    @property
    def read(self) -> tuple[Column, ...]:
        """The columns, and last the one that says which rows count."""
        return self.columns if self.only is None else (*self.columns, self.only.column)


def split_table(
    storage: Storage, table: Table, target_bytes: int, sources: Sources | None = None
) -> list[Split]:
    """Splits of all objects, in order of uri and row; every object's columns are checked.

    Raises:
        ObjectMissing: there are no objects.
        InputError: an object is unreadable or in a subfolder, or a column is missing or has a
            wrong type.
    """
    objects = (sources or Sources(storage)).files(table.source, table.field)

    def look(info: ObjectInfo) -> list[Split]:
        with naming_others(objects, info, table.format, f"{table.field}.recursive"):
            return _split_object(storage, table, target_bytes, info)

    return with_bases(map_objects(objects, look))


def _split_object(
    storage: Storage, table: Table, target_bytes: int, info: ObjectInfo
) -> list[Split]:
    if table.format in COLUMN_FORMATS:
        only = None if table.only is None else (table.only.column, table.only.equals)
        return split_parquet(storage, info, table.read, target_bytes, table.check_names, only)
    if table.format == "npy":
        return split_npy(storage, info, table.read, target_bytes, table.source.key)
    assert table.dialect is not None
    return split_text(storage, info, table.read, table.dialect, target_bytes)


def with_bases(objects: list[list[Split]]) -> list[Split]:
    """All splits in one list, each with the number of rows in the objects before its own."""
    splits: list[Split] = []
    base = 0
    for of_object in objects:
        splits += [replace(split, base=base) for split in of_object]
        base += of_object[-1].stop if of_object else 0
    return splits


def read_table(
    storage: Storage, table: Table, split: Split, batch_rows: int
) -> Iterator[tuple[list[Any], Where]]:
    """The rows of a split in order: one arrow array per wanted column, and their position."""
    for arrays, where in _read_all(storage, table, split, batch_rows):
        if table.only is not None:
            arrays, where = keep_rows(arrays[:-1], where, table.only.of(arrays[-1]))
            if not len(arrays[0]):
                continue
        yield arrays, where


def _read_all(
    storage: Storage, table: Table, split: Split, batch_rows: int
) -> Iterator[tuple[list[Any], Where]]:
    if table.format in COLUMN_FORMATS:
        return read_parquet(storage, table.read, split, batch_rows)
    if table.format == "npy":
        return read_npy(storage, table.read, split, batch_rows)
    assert table.dialect is not None
    return read_text(storage, table.read, table.dialect, split, batch_rows)
