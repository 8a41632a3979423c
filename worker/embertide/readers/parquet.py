"""Parquet: splits are runs of row groups, read batch by batch without decoding more.

Only the wanted columns are fetched. Names and types are checked from the footer of every
object before anything runs, so a wrong column ends a job in its first seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from embertide.errors import InputError
from embertide.readers.columns import Column, check_type, listed
from embertide.readers.splits import Split
from embertide.readers.where import Where
from embertide.storage.protocol import ObjectInfo, Storage

CheckNames = Callable[[str, Sequence[str]], None]

UNBUFFERED_BYTES = 64 << 20
BUFFER_BYTES = 1 << 20
"""Column chunks in a store are fetched whole, in few requests, unless a split is over 64 MiB: that
is one huge row group, and reading it through small buffers keeps memory bounded. Files are read so
too: their bytes are copied faster to where others just were than to fresh pages."""


@contextmanager
def parquet_file(
    storage: Storage, info: ObjectInfo, columns: Sequence[Column], buffer_bytes: int = 0
) -> Iterator[Any]:
    """An open ``pq.ParquetFile`` whose schema has ``columns`` with fitting types."""
    with storage.open(info.uri, info) as raw, _readable(info.uri):
        source = pa.PythonFile(raw, mode="r")
        file = pq.ParquetFile(source, pre_buffer=False, buffer_size=buffer_bytes)
        _check_schema(info.uri, file.schema_arrow, columns)
        yield file


@contextmanager
def _readable(uri: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{uri} is not readable as parquet ({error}): it is truncated, damaged or in another "
            "format; write it again, or correct format in the manifest"
        ) from error


def _check_schema(uri: str, schema: Any, columns: Sequence[Column]) -> None:
    for column in columns:
        found = schema.get_all_field_indices(column.name)
        if not found:
            raise InputError(f"{uri} has no {column}; its columns are {listed(schema.names)}")
        if len(found) > 1:
            raise InputError(f"{uri} has {len(found)} columns {column.name!r}; rename all but one")
        check_type(uri, column, schema.field(found[0]).type)


def split_parquet(
    storage: Storage,
    info: ObjectInfo,
    columns: Sequence[Column],
    target_bytes: int,
    check_names: CheckNames | None = None,
) -> list[Split]:
    """The splits of one object: runs of row groups of at least ``target_bytes`` (compressed).

    ``check_names`` is given the object's URI and the names of its columns.
    """
    with parquet_file(storage, info, columns) as file:
        metadata = file.metadata
        if check_names is not None:
            check_names(info.uri, file.schema_arrow.names)
    leaves = _leaf_columns(metadata, columns)
    splits: list[Split] = []
    run: list[int] = []
    row = size = first = 0
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        run.append(g)
        row += group.num_rows
        size += sum(group.column(c).total_compressed_size for c in leaves)
        if row > first and (size >= target_bytes or g == metadata.num_row_groups - 1):
            splits.append(Split.of(info, first, row, size, tuple(run)))
            run, size, first = [], 0, row
    return splits


def _leaf_columns(metadata: Any, columns: Sequence[Column]) -> list[int]:
    """Indices of the stored columns that make up the wanted ones (a list has nested ones)."""
    names = [str(column.name) for column in columns]
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    return [
        i
        for i, path in enumerate(paths)
        if any(path == n or path.startswith(n + ".") for n in names)
    ]


def read_parquet(
    storage: Storage, columns: Sequence[Column], split: Split, batch_rows: int
) -> Iterator[tuple[list[Any], Where]]:
    """The rows of a split in order: one arrow array per column, at most ``batch_rows`` long."""
    names = [column.name for column in columns]
    where = Where(split.uri, split.start)
    buffered = split.size > UNBUFFERED_BYTES or split.uri.startswith("file://")
    buffer_bytes = BUFFER_BYTES if buffered else 0
    with parquet_file(storage, split.info, columns, buffer_bytes) as file:
        batches = file.iter_batches(
            batch_rows,
            row_groups=list(split.row_groups or ()),
            columns=list(dict.fromkeys(names)),
            use_threads=False,
        )
        for batch in batches:
            yield [batch.column(name) for name in names], where
            where = where.skip(batch.num_rows)
