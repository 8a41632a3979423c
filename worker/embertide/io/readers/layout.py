"""How the columns of a data file come from what it stores, its folders and its table's metadata.

A table stores columns under other names than it shows, or knows them by field ids; files of tables
and of partitioned folders lack columns that are the same in every row. One mechanism serves
Hive-style folders, Delta and Iceberg: a column is stored under some name, or it is a constant.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.errors import InputError
from embertide.io.readers.columns import Column, listed, similar_hint
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import ObjectInfo

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FIELD_ID = b"PARQUET:field_id"
_WANTED = {"integer": "an integer of 64 bits", "number": "a number"}

Positions = npt.NDArray[np.int64]
"""Rows of a file, ascending."""


@dataclass(frozen=True)
class StoredAs:
    """How a file knows a column of its table: by its field id, where it has such ids, or by names.

    Neither: no file stores the column.
    """

    names: tuple[str, ...]
    field_id: int | None = None


@dataclass(frozen=True)
class Layout:
    """The columns of a data file beyond what it stores itself.

    Attributes:
        columns: of its table: name -> how the file stores it; None for files without a table, whose
            columns are those that they store.
        constants: columns that have one value in all rows, as text; None stands for null.
        deleted: rows of the file that the table no longer has; None for none.
    """

    columns: Mapping[str, StoredAs] | None = None
    constants: Mapping[str, str | None] = field(default_factory=dict)
    deleted: Positions | None = None


PLAIN = Layout()


@dataclass(frozen=True)
class DataFile(ObjectInfo):
    """An object, and how its columns are read."""

    layout: Layout = field(default=PLAIN, compare=False)


@dataclass(frozen=True)
class StoredColumns:
    """Where wanted columns of one file are.

    Attributes:
        names: column -> name that it is stored under.
        constants: column -> its value in every row, as text; None stands for null.
    """

    names: Mapping[str, str]
    constants: Mapping[str, str | None]


def layout_of(info: ObjectInfo) -> Layout:
    """The layout of an object: its own, or the one that its folders give."""
    if isinstance(info, DataFile):
        return info.layout
    constants = hive_constants(info.uri)
    return Layout(constants=constants) if constants else PLAIN


def hive_constants(uri: str) -> dict[str, str | None]:
    """Columns that the folders of a URI name, ``country`` in ``.../country=NL/part.parquet``.

    Where two folders name the same column, the inner one counts.
    """
    folders = uri.partition("://")[2].split("/")[:-1]
    pairs = (folder.partition("=") for folder in folders if "=" in folder[1:])
    return {
        unquote(name): None if value == NULL_PARTITION else unquote(value)
        for name, _, value in pairs
    }


def find_columns(info: ObjectInfo, schema: Any, columns: Sequence[Column]) -> StoredColumns:
    """Where each column is in a file of that arrow schema.

    A column that the file stores is read from there, whatever its folders say.

    Raises:
        InputError: the file, its folders or its table has no such column, or several.
    """
    layout = layout_of(info)
    ids = _names_by_id(schema) if layout.columns is not None else {}
    names: dict[str, str] = {}
    constants: dict[str, str | None] = {}
    for column in columns:
        name = str(column.name)
        stored = _stored_name(info.uri, column, layout, schema, ids)
        if stored is not None:
            names[name] = stored
        elif name in layout.constants:
            constants[name] = layout.constants[name]
            check_constant(info.uri, column, constants[name])
        elif layout.columns is not None and name in layout.columns:
            constants[name] = None  # It was added to the table after this file.
        else:
            _refuse_missing(info.uri, column, layout, schema)
    return StoredColumns(names, constants)


def column_names(info: ObjectInfo, schema: Any) -> list[str]:
    """The names that a manifest's patterns select from: the table's, or the file's own."""
    columns = layout_of(info).columns
    return list(schema.names if columns is None else columns)


def _stored_name(
    uri: str, column: Column, layout: Layout, schema: Any, ids: Mapping[int, str]
) -> str | None:
    name = str(column.name)
    if layout.columns is None:
        candidates: tuple[str, ...] = (name,)
    elif (stored := layout.columns.get(name)) is None:
        return None
    elif stored.field_id is not None and ids:
        return ids.get(stored.field_id)
    elif stored.field_id is not None and not stored.names:
        raise InputError(
            f"{uri}: {column} is known to the table by its field id, but the file has no field ids"
            " and the table no mapping of names (schema.name-mapping.default); set one"
        )
    else:
        candidates = stored.names
    for candidate in candidates:
        count = len(schema.get_all_field_indices(candidate))
        if count > 1:
            raise InputError(
                f"{uri} has several columns {candidate!r} ({count}), as after a join; rename all"
                " but one where it is written"
            )
        if count:
            return candidate
    return None


def _names_by_id(schema: Any) -> dict[int, str]:
    """Field ids that a file has for its columns."""
    return {
        int(item.metadata[_FIELD_ID]): item.name
        for item in schema
        if item.metadata is not None and _FIELD_ID in item.metadata
    }


def _refuse_missing(uri: str, column: Column, layout: Layout, schema: Any) -> None:
    if layout.columns is not None:
        raise InputError(
            f"the table of {uri} has no {column}; its columns are {listed(list(layout.columns))}"
            f"{_struct_hint(str(column.name), schema)}"
        )
    folders = f", its folders give {listed(list(layout.constants))}" if layout.constants else ""
    raise InputError(
        f"{uri} has no {column}; its columns are {listed(schema.names)}{folders}"
        f"{_struct_hint(str(column.name), schema)}{similar_hint(str(column.name), schema.names)}"
    )


def _struct_hint(name: str, schema: Any) -> str:
    """How to get a column that is a field of a struct: by its path, or by the field's name."""
    for item in schema:
        if not pa.types.is_struct(item.type):
            continue
        for field_name in (part.name for part in item.type):
            if name in (f"{item.name}.{field_name}", field_name):
                return (
                    f". It is a field of the struct {item.name!r}: write it as a column of its own,"
                    f" in SQL SELECT {item.name}.{field_name} AS {item.name}_{field_name}, and name"
                    " that"
                )
    return ""


def check_constant(uri: str, column: Column, text: str | None) -> None:
    """Refuse a constant that is not of the kind that is wanted.

    Raises:
        InputError: names the column and its value.
    """
    if text is None or column.kind in ("text", "id", "order"):
        return
    try:
        if column.kind == "vector":
            raise ValueError
        _value(column, text)
    except (ValueError, OverflowError):
        wanted = _WANTED.get(column.kind, "a list of numbers")
        raise InputError(
            f"{uri}: {column} is {text!r}, by its partition; it must hold {wanted}"
        ) from None


def constant_array(column: Column, text: str | None, rows: int) -> Any:
    """``rows`` times the value of a constant column, as an arrow array of what is wanted."""
    if text is None:
        return pa.nulls(rows, _ARROW[column.kind])
    return pa.repeat(pa.scalar(_value(column, text), _ARROW[column.kind]), rows)


def constant_value(column: Column, text: str | None) -> str | int | float | None:
    """The value of a constant column in every row."""
    return None if text is None else _value(column, text)


_ARROW = {
    "integer": pa.int64(),
    "text": pa.string(),
    "id": pa.string(),
    "order": pa.string(),
    "number": pa.float64(),
    "vector": pa.list_(pa.float32()),
}


def _value(column: Column, text: str) -> str | int | float:
    if column.kind == "integer":
        if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
            raise ValueError
        return int(text)
    if column.kind == "number":
        return float({"true": "1", "false": "0"}.get(text, text))
    return text


def pack_rows(deleted: Positions | None, start: int, stop: int) -> tuple[str, int]:
    """Deleted rows among ``[start, stop)``, as text for a split, and how many they are."""
    if deleted is None:
        return "", 0
    first, last = np.searchsorted(deleted, [start, stop])
    if first == last:
        return "", 0
    mask = np.zeros(stop - start, np.bool_)
    mask[deleted[first:last] - start] = True
    packed = zlib.compress(np.packbits(mask).tobytes(), 6)
    return base64.b64encode(packed).decode(), int(mask.sum())


def unpack_kept(text: str, rows: int) -> npt.NDArray[np.bool_]:
    """Which of a split's ``rows`` are left, by what :func:`pack_rows` made."""
    packed = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    kept: npt.NDArray[np.bool_] = np.unpackbits(packed, count=rows) == 0
    return kept


def keep_rows(
    arrays: list[Any], where: Where, kept: npt.NDArray[np.bool_]
) -> tuple[list[Any], Where]:
    """The rows of a batch that are left, and where they are.

    Args:
        kept: of the batch's rows.
    """
    if kept.all():
        return arrays, where
    rows = np.flatnonzero(kept)
    return [array.take(pa.array(rows)) for array in arrays], where.select(rows)
