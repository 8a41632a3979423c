"""A table of wanted columns, whatever format it lies in: list it, cut it, read it.

Edges, nodes and scalar features all ask for a few columns of many rows. What they mean by
them is their matter; here the rows only have to come completely, in order, and in batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from embertide.readers.columns import Column
from embertide.readers.npy import read_npy, split_npy
from embertide.readers.parquet import read_parquet, split_parquet
from embertide.readers.splits import Piece, map_objects
from embertide.readers.text import Dialect, read_text, split_text
from embertide.readers.where import Where
from embertide.storage.protocol import ObjectInfo, Storage

BATCH_ROWS = 1 << 18


@dataclass(frozen=True)
class Table:
    """Objects under ``uri`` and the columns wanted from each; ``dialect`` is for csv and tsv."""

    uri: str
    format: Literal["parquet", "csv", "tsv", "npy"]
    columns: tuple[Column, ...]
    dialect: Dialect | None = None


def split_table(storage: Storage, table: Table, target_bytes: int) -> list[Piece]:
    """List the objects, check each one's columns, and cut it into pieces, in order of uri.

    Raises ObjectMissing when there are none, InputError for a missing or mistyped column.
    """
    look = partial(_split_object, storage, table, target_bytes)
    return with_bases(map_objects(storage.list(table.uri), look))


def _split_object(
    storage: Storage, table: Table, target_bytes: int, info: ObjectInfo
) -> list[Piece]:
    if table.format == "parquet":
        return split_parquet(storage, info, table.columns, target_bytes)
    if table.format == "npy":
        return split_npy(storage, info, table.columns, target_bytes)
    assert table.dialect is not None
    return split_text(storage, info, table.columns, table.dialect, target_bytes)


def with_bases(objects: list[list[Piece]]) -> list[Piece]:
    """All pieces in a row, each knowing how many rows the objects before its own have.

    (Bytes for text, whose bases nobody asks for.)
    """
    pieces: list[Piece] = []
    base = 0
    for of_object in objects:
        pieces += [replace(piece, base=base) for piece in of_object]
        base += of_object[-1].stop if of_object else 0
    return pieces


def read_table(
    storage: Storage, table: Table, piece: Piece, batch_rows: int
) -> Iterator[tuple[list[Any], Where]]:
    """The rows of a piece in order: arrow arrays, one for each wanted column, and their place."""
    if table.format == "parquet":
        return read_parquet(storage, table.columns, piece, batch_rows)
    if table.format == "npy":
        return read_npy(storage, table.columns, piece, batch_rows)
    assert table.dialect is not None
    return read_text(storage, table.columns, table.dialect, piece, batch_rows)
