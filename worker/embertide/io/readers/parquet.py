"""Parquet: splits are runs of row groups, read batch by batch without decoding more.

Only the wanted columns are fetched. Names and types are checked from the footer of every
object before anything runs, so a wrong column ends a job in its first seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from embertide.errors import InputError
from embertide.io.readers.columns import Column, check_type
from embertide.io.readers.ids import to_text
from embertide.io.readers.layout import (
    StoredColumns,
    column_names,
    constant_array,
    constant_value,
    find_columns,
    keep_rows,
    layout_of,
    pack_rows,
    unpack_kept,
)
from embertide.io.readers.recognise import refuse_other_object
from embertide.io.readers.splits import Split
from embertide.io.readers.vector_types import as_lists
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import BLOCK_BYTES, GAP_BYTES, ObjectInfo, Span, Storage
from embertide.kernels.parquet import (
    ColumnChunk,
    NotDecoded,
    Stored,
    footer_problem,
    stored,
    where_stored,
)
from embertide.spec.schemes import is_local

_FOOTER_BYTES = 64 << 10
"""Bytes of an object's end, which says where its columns are, if it is not longer."""

CheckNames = Callable[[str, Sequence[str]], None]

UNBUFFERED_BYTES = 64 << 20
BUFFER_BYTES = 1 << 20
"""Column chunks in a store are fetched whole, in few requests, unless a split is over 64 MiB: that
is one huge row group, and reading it through small buffers keeps memory bounded. Files are read so
too: their bytes are copied faster to where others just were than to fresh pages."""


@contextmanager
def parquet_file(
    storage: Storage, info: ObjectInfo, columns: Sequence[Column]
) -> Iterator[tuple[Any, StoredColumns]]:
    """An open ``pq.ParquetFile``, and where ``columns`` are; those in it have fitting types."""
    with opened(storage, info, [], [], 0) as (file, _raw):
        where = find_columns(info, file.schema_arrow, columns)
        stored = [column for column in columns if str(column.name) in where.names]
        names = [where.names[str(column.name)] for column in stored]
        _check_types(info.uri, file.schema_arrow, stored, names)
        yield file, where


@contextmanager
def opened(
    storage: Storage,
    info: ObjectInfo,
    names: Sequence[str],
    row_groups: Sequence[int],
    buffer_bytes: int,
) -> Iterator[tuple[Any, Any]]:
    """An open ``pq.ParquetFile``, and the open object, of which those columns are read.

    Raises:
        InputError: it is not readable as parquet.
    """
    metadata, spans = None, []
    with _readable(storage, info):
        if info.size > BLOCK_BYTES and not is_local(info.uri):
            # All that is read of it is fetched ahead: where that is has to be known before.
            metadata = _metadata(info, partial(_fetch_end, storage, info))
            spans = _spans(metadata, leaf_columns(metadata, names), row_groups)
        with storage.open(info.uri, info, spans) as raw:
            metadata = metadata or read_metadata(raw, info)
            with _parsed():
                file = pq.ParquetFile(
                    pa.PythonFile(raw, mode="r"),
                    metadata=metadata,
                    pre_buffer=False,
                    buffer_size=buffer_bytes,
                )
            yield file, raw


def read_metadata(raw: Any, info: ObjectInfo) -> Any:
    """The ``pq.FileMetaData`` at the end of an open object.

    Raises:
        OSError, ArrowException: it is damaged.
    """
    return _metadata(info, partial(_read_end, raw, info))


def _metadata(info: ObjectInfo, read_end: Callable[[int], bytes]) -> Any:
    end = read_end(_FOOTER_BYTES)
    size = int.from_bytes(end[-8:-4], "little")
    if len(end) < size + 8 <= info.size:
        end = read_end(size + 8)
    if size + 8 <= len(end) and (problem := footer_problem(end[-8 - size : -8])):
        raise OSError(f"its footer is damaged: {problem}")
    with _parsed():
        return pq.read_metadata(pa.BufferReader(end))


def _end_of(info: ObjectInfo, count: int) -> Span:
    return max(0, info.size - count), info.size


def _read_end(raw: Any, info: ObjectInfo, count: int) -> bytes:
    """The last bytes of an open object."""
    first, last = _end_of(info, count)
    raw.seek(first)
    end: bytes = raw.read(last - first)
    return end


def _fetch_end(storage: Storage, info: ObjectInfo, count: int) -> bytes:
    """The last bytes of an object, and nothing before them."""
    with storage.open(info.uri, info, [_end_of(info, count)]) as raw:
        return _read_end(raw, info, count)


@contextmanager
def _parsed() -> Iterator[None]:
    """What arrow raises of a damaged footer beside its own errors, as one of these."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise
    except (ValueError, LookupError, ArithmeticError, MemoryError, NotImplementedError) as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def _spans(metadata: Any, leaves: Sequence[int], row_groups: Sequence[int]) -> list[Span]:
    """Where some columns of some row groups are, together with small gaps between them."""
    groups = [metadata.row_group(number) for number in row_groups]
    found: list[Span] = []
    for first, last in sorted(
        where_stored(group.column(leaf)) for group in groups for leaf in leaves
    ):
        if found and first - found[-1][1] <= GAP_BYTES:
            first, last = found[-1][0], max(found.pop()[1], last)
        found.append((first, last))
    return found


_CAUSES = {
    "ncrypt": "it is encrypted: write a copy without encryption",
    "more than 64 bits": "a column holds integers of 128 bits (polars' Int128): cast them where"
    " they are written, ids to BIGINT or text, such as CAST(id AS VARCHAR)",
}
"""Part of arrow's message -> what it means."""


@contextmanager
def _readable(storage: Storage, info: ObjectInfo) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(
            f"{info.uri}: the name of a column is not UTF-8 ({error.object!r}); rename it where the"
            " file is written"
        ) from error
    except (pa.ArrowException, OSError) as error:
        refuse_other_object(storage, info, "parquet", "parquet")
        text = " ".join(str(error).split())
        for part, cause in _CAUSES.items():
            if part in text:
                message = f"{info.uri} is not readable as parquet ({text}): {cause}"
                raise InputError(message) from error
        raise InputError(
            f"{info.uri} is not readable as parquet ({text}): it is truncated, damaged or in "
            "another format; write it again, or correct format in the manifest"
        ) from error


def _check_types(uri: str, schema: Any, columns: Sequence[Column], names: Sequence[str]) -> None:
    """Refuse columns, stored under those names, that are of another type than is wanted."""
    for column, name in zip(columns, names, strict=True):
        check_type(uri, column, schema.field(name).type)


def split_parquet(
    storage: Storage,
    info: ObjectInfo,
    columns: Sequence[Column],
    target_bytes: int,
    check_names: CheckNames | None = None,
    only: tuple[Column, str | int] | None = None,
) -> list[Split]:
    """The splits of one object: runs of row groups of at least ``target_bytes`` (compressed).

    ``check_names`` is given the object's URI and the names of its columns. ``only`` is one of the
    columns, and a value: row groups without it, by their statistics, are in no split.
    """
    with parquet_file(storage, info, columns) as (file, where):
        metadata = file.metadata
        if check_names is not None:
            check_names(info.uri, column_names(info, file.schema_arrow))
    leaves = leaf_columns(metadata, list(where.names.values()))
    if only is not None and (name := str(only[0].name)) in where.constants:
        if constant_value(only[0], where.constants[name]) != only[1]:
            return []
        only = None
    bounds = None if only is None else leaf_columns(metadata, [where.names[str(only[0].name)]])
    splits: list[Split] = []
    run: list[int] = []
    row = size = first = 0
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        if only is not None and bounds and _lacks(group.column(bounds[0]), only[1]):
            if row > first:
                splits.append(Split.of(info, first, row, size, tuple(run)))
            row += group.num_rows
            run, size, first = [], 0, row
            continue
        run.append(g)
        row += group.num_rows
        size += sum(group.column(c).total_compressed_size for c in leaves)
        if row > first and size >= target_bytes:
            splits.append(Split.of(info, first, row, size, tuple(run)))
            run, size, first = [], 0, row
    if row > first:
        splits.append(Split.of(info, first, row, size, tuple(run)))
    return _with_layout(info, where, splits)


def _lacks(chunk: Any, value: Any) -> bool:
    """Whether no row of a column chunk has a value, by its statistics."""
    known = chunk.statistics
    if known is None or not known.has_min_max:
        return False
    low, high = known.min, known.max
    if type(low) is not type(value) or type(high) is not type(value):
        return False
    # Python orders texts by characters as parquet does by their bytes of UTF-8.
    return bool(value < low or value > high)


def _with_layout(info: ObjectInfo, where: StoredColumns, splits: list[Split]) -> list[Split]:
    """The splits with what their readers need to know of the file's layout."""
    renamed = {name: stored for name, stored in where.names.items() if name != stored}
    deleted = layout_of(info).deleted
    if not renamed and not where.constants and deleted is None:
        return splits
    found = []
    for split in splits:
        text, count = pack_rows(deleted, split.start, split.stop)
        found.append(
            replace(
                split,
                names=renamed,
                constants=where.constants,
                deleted=text,
                deleted_rows=count,
            )
        )
    return found


def leaf_columns(metadata: Any, names: Sequence[str]) -> list[int]:
    """Indices of the stored columns that make up the named ones (a list has nested ones)."""
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    return [
        i
        for i, path in enumerate(paths)
        if any(path == n or path.startswith(n + ".") for n in names)
    ]


def read_parquet(
    storage: Storage, columns: Sequence[Column], split: Split, batch_rows: int
) -> Iterator[tuple[list[Any], Where]]:
    """The rows of a split in order: one arrow array per column, at most ``batch_rows`` long.

    Constant columns are filled in, and rows that the table no longer has are left out.
    """
    stored = [column for column in columns if str(column.name) not in split.constants]
    kept = unpack_kept(split.deleted, split.stop - split.start) if split.deleted else None
    for arrays, rows, where in _read_stored(storage, stored, split, batch_rows):
        if split.constants:
            values = iter(arrays)
            arrays = [
                constant_array(column, split.constants[str(column.name)], rows)
                if str(column.name) in split.constants
                else next(values)
                for column in columns
            ]
        if kept is not None:
            first = where.first_row - split.start
            arrays, where = keep_rows(arrays, where, kept[first : first + rows])
        if len(arrays[0]):
            yield arrays, where


def _read_stored(
    storage: Storage, columns: Sequence[Column], split: Split, batch_rows: int
) -> Iterator[tuple[list[Any], int, Where]]:
    """Stored columns of a split, batch by batch, with the number of rows of each.

    Plain columns of files are decoded natively, all others by pyarrow; and the rest of a split
    from where that stops, so that bad values and damage are found by one set of rules. Strings are
    UTF-8 either way.
    """
    names = [split.names.get(str(column.name), str(column.name)) for column in columns]
    where = Where(split.uri, split.start)
    local = is_local(split.uri)
    buffer_bytes = BUFFER_BYTES if local or split.size > UNBUFFERED_BYTES else 0
    row_groups = list(split.row_groups or ())
    with opened(storage, split.info, names, row_groups, buffer_bytes) as (file, raw):
        _check_types(split.uri, file.schema_arrow, columns, names)
        plain = local and names and all(column.kind != "vector" for column in columns)
        groups = _stored_groups(file, names, split) if plain else None
        if groups is not None:
            try:
                for arrays in _decode(raw.fileno(), groups, batch_rows):
                    yield arrays, len(arrays[0]), where
                    where = where.skip(len(arrays[0]))
                return
            except NotDecoded:
                pass
        batches = file.iter_batches(
            batch_rows,
            row_groups=row_groups,
            columns=list(dict.fromkeys(names)),
            use_threads=False,
        )
        batches = _naming_bytes(batches, Where(split.uri, split.start))
        done, first = where.first_row - split.start, 0
        uuids = _uuids(file.metadata)
        for batch in batches:
            fresh = batch.slice(max(0, done - first))
            first += batch.num_rows
            if fresh.num_rows:
                yield (
                    [
                        _checked(fresh.column(name), column, where, name in uuids)
                        for name, column in zip(names, columns, strict=True)
                    ],
                    fresh.num_rows,
                    where,
                )
                where = where.skip(fresh.num_rows)


def _uuids(metadata: Any) -> set[str]:
    """Names of the columns of UUIDs, which arrow takes for bytes."""
    columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    return {column.path for column in columns if column.logical_type.type == "UUID"}


def _checked(array: Any, column: Column, where: Where, is_uuid: bool) -> Any:
    """A column as pyarrow gave it; it takes any bytes for strings."""
    if column.kind == "text":
        return to_text(array, column, where, is_uuid)
    return as_lists(array, column, where) if column.kind == "vector" else array


def _naming_bytes(batches: Iterator[Any], where: Where) -> Iterator[Any]:
    """The batches; arrow refuses strings that are not UTF-8 where it builds a dictionary of them.

    Raises:
        InputError: names the row that the batch of such a string begins with.
    """
    try:
        for batch in batches:
            yield batch
            where = where.skip(batch.num_rows)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
        raise InputError(
            f"{where.row(0)}, or a row soon after: a column of strings (a dictionary) holds bytes"
            " that are not UTF-8; convert it to UTF-8 where it is written"
        ) from error


def _stored_groups(
    file: Any, names: Sequence[str], split: Split
) -> list[tuple[int, list[Stored]]] | None:
    """Rows of each row group of a split, and where its columns are; None if one is not plain."""
    metadata, schema = file.metadata, file.schema_arrow
    leaves = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    groups = []
    for number in split.row_groups or ():
        group = metadata.row_group(number)
        found = []
        for name in names:
            leaf = leaves.get(name)
            if leaf is None:
                return None
            chunk, column = group.column(leaf), metadata.schema.column(leaf)
            kind = schema.field(name).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type  # The file holds the values, and so do the arrays.
            at = stored(kind, chunk, column)
            if at is None:
                return None
            found.append(at)
        groups.append((group.num_rows, found))
    return groups


def _decode(
    descriptor: int, groups: list[tuple[int, list[Stored]]], batch_rows: int
) -> Iterator[list[Any]]:
    """An array of each column of some row groups, batch by batch.

    Raises:
        NotDecoded: a batch cannot be decoded natively; those before it were given.
    """
    for rows, columns in groups:
        chunks = [ColumnChunk(descriptor, at) for at in columns]
        for first in range(0, rows, batch_rows):
            yield [chunk.read(min(batch_rows, rows - first)) for chunk in chunks]
