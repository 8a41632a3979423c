"""Published versions, streamed back in the order they were written, or as one table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from embertide.errors import InputError, ObjectMissing, OutputError
from embertide.kernels.arrow import to_arrow, to_numpy
from embertide.readers.npy import Header, read_header, read_rows
from embertide.readers.splits import map_objects
from embertide.spec.version_names import version_uri
from embertide.storage.protocol import ObjectInfo, Storage
from embertide.versions.catalog import find_version, latest
from embertide.versions.embeddings import Embeddings
from embertide.versions.manifest import TypeEntry, read_manifest, types_in
from embertide.versions.part_sinks import ID_COLUMN, VECTOR_COLUMN, schema_of
from embertide.versions.parts import Ids, PartDigest

Batch = tuple[Ids, npt.NDArray[np.float32]]
"""(ids, values): ``np.int64 [n]`` or ``pa.LargeStringArray``, and ``float32 [n, D]``."""

_BATCH_BYTES = 8 << 20
_BUFFER_BYTES = 1 << 20


def iter_embeddings(
    storage: Storage,
    output_uri: str,
    version: str | None = None,
    node_type: str | None = None,
    result: str | None = None,
) -> Iterator[Batch]:
    """All rows of a version (default: the current one), in batches of about 8 MiB.

    Args:
        node_type: which rows, in a version of several node types.
        result: which rows, in a version of several results.

    Raises:
        InputError: no such type or result, or none given where there are several; lists them.
        ObjectMissing: no such version; lists those there are.
        OutputError: a part is missing or damaged.
    """
    version = version if version is not None else latest(storage, output_uri).version
    manifest, _ = read_manifest(storage, output_uri, version)
    uri = version_uri(output_uri, version)
    chosen = choose_result(uri, manifest, node_type, result)
    for part in chosen.digests:
        yield from read_part(storage, uri, part, chosen.dim)


def choose_result(
    uri: str, manifest: dict[str, Any], node_type: str | None, result: str | None
) -> TypeEntry:
    """The entry of a result; without a node type or a name that of the only one.

    Args:
        uri: of the version, for messages.

    Raises:
        InputError: no such type or result, or none given where there are several; lists them.
    """
    of_type = _of_type(uri, types_in(manifest), node_type)
    names = [entry.result for entry in of_type]
    if len(of_type) == 1 and result is None:
        return of_type[0]
    if names == [""]:
        raise InputError(
            f"{uri} has one result, which has no name there; leave the result {result!r} out"
        )
    there = ", ".join(names)
    if result is None:
        raise InputError(
            f"{uri} has several results; choose one of {there} (result=, or --result of a command)"
        )
    if result not in names:
        raise InputError(f"{uri} has no result {result!r}; it has {there}")
    return of_type[names.index(result)]


def _of_type(uri: str, entries: list[TypeEntry], node_type: str | None) -> list[TypeEntry]:
    """The entries of a node type; without a name those of the only one."""
    there = [entry for entry in entries if entry.name == (node_type or "")]
    if there:
        return there
    if not entries[0].name:
        raise InputError(
            f"{uri} has one node type, which has no name there; leave {node_type!r} out"
        )
    names = ", ".join(dict.fromkeys(entry.name for entry in entries))
    if node_type is None:
        raise InputError(f"{uri} has several node types; choose one of {names}")
    raise InputError(f"{uri} has no node type {node_type!r}; it has {names}")


def read_version(
    storage: Storage,
    output_uri: str,
    version: str | None = None,
    node_type: str | None = None,
    result: str | None = None,
) -> Embeddings:
    """All rows of a version (default: the current one) as one table, in the published dtype.

    Args:
        node_type: which rows, in a version of several node types.
        result: which rows, in a version of several results.

    Raises:
        InputError: no such type or result, or none given where there are several; lists them.
        ObjectMissing: no such version; lists those there are.
        OutputError: a part is missing or damaged.
    """
    info = (
        latest(storage, output_uri)
        if version is None
        else find_version(storage, output_uri, version)
    )
    manifest, _ = read_manifest(storage, output_uri, info.version)

    def table_of(part: PartDigest) -> Any:
        return part_table(storage, info.uri, part)

    chosen = choose_result(info.uri, manifest, node_type, result)
    table = pa.concat_tables(map_objects(chosen.digests, table_of))
    return Embeddings(info, table)


def part_table(storage: Storage, folder_uri: str, part: PartDigest) -> Any:
    """All rows of a part as an arrow table.

    Raises:
        OutputError: an object of the part is missing or damaged; names it.
    """
    uri = f"{folder_uri}/{part.name}"
    with readable(uri):
        if part.ids_name is None:
            table = _parquet_table(storage, uri)
        else:
            ids = _id_column(storage, f"{folder_uri}/{part.ids_name}")
            values = _npy_array(storage, uri)
            schema = schema_of(_kind_of(ids), values.dtype, values.shape[1])
            flat = to_arrow(values.reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(flat, type=schema.field(1).type)
            table = pa.Table.from_arrays([ids, vectors], schema=schema)
        if table.num_rows != part.rows:
            raise EOFError(f"it has {table.num_rows} rows, {part.rows} were written")
    return table


def _id_column(storage: Storage, uri: str) -> Any:
    with readable(uri):
        if uri.endswith(".parquet"):
            return _parquet_table(storage, uri)[ID_COLUMN]
        return to_arrow(_npy_array(storage, uri)[:, 0])


def _kind_of(ids: Any) -> str:
    return "string" if pa.types.is_large_string(ids.type) else "int64"


def _parquet_table(storage: Storage, uri: str) -> Any:
    info = find_object(storage, uri)
    with storage.open(info.uri, info) as raw:
        return pq.ParquetFile(pa.PythonFile(raw, mode="r")).read(use_threads=False)


def _npy_array(storage: Storage, uri: str) -> npt.NDArray[Any]:
    """``[n, width]`` in the stored dtype; a list of values is one column."""
    info = find_object(storage, uri)
    header = read_header(storage, info)
    empty = np.empty((0, header.width), header.dtype)
    rows = read_rows(storage, info, header, 0, header.rows, max(1, header.rows))
    return next((array for array, _ in rows), empty)


def read_part(storage: Storage, folder_uri: str, part: PartDigest, width: int) -> Iterator[Batch]:
    """The rows of a part in batches of about 8 MiB.

    Args:
        folder_uri: the version's objects are below it.
        width: D, the length of an embedding.

    Raises:
        OutputError: an object of the part is missing or damaged; names it.
    """
    rows = batch_rows(width)
    with readable(f"{folder_uri}/{part.name}"):
        values = find_object(storage, f"{folder_uri}/{part.name}")
        if part.ids_name is None:
            for batch in _parquet_batches(storage, values, rows):
                yield ids_of(batch.column(ID_COLUMN)), values_of(batch.column(VECTOR_COLUMN), width)
            return
        header = read_header(storage, values)
        with storage.open(values.uri, values) as file:
            file.seek(header.offset)
            for ids in _ids(storage, f"{folder_uri}/{part.ids_name}", rows):
                yield ids, _next_rows(file, header, len(ids))


def _ids(storage: Storage, uri: str, rows: int) -> Iterator[Ids]:
    with readable(uri):
        info = find_object(storage, uri)
        if uri.endswith(".parquet"):
            for batch in _parquet_batches(storage, info, rows):
                yield batch.column(ID_COLUMN)
            return
        header = read_header(storage, info)
        for array, _ in read_rows(storage, info, header, 0, header.rows, rows):
            yield array[:, 0]


def _next_rows(file: Any, header: Header, rows: int) -> npt.NDArray[np.float32]:
    """``float32 [rows, D]`` from where the file is."""
    values = np.empty((rows, header.width), header.dtype)
    as_bytes: Any = values.view(np.uint8)
    view = memoryview(as_bytes).cast("B")
    while len(view):
        got = file.read(len(view))
        if not got:
            raise EOFError("it ends early")
        view[: len(got)] = got
        view = view[len(got) :]
    return values.astype(np.float32, copy=False)


def _parquet_batches(storage: Storage, info: ObjectInfo, rows: int) -> Iterator[Any]:
    with storage.open(info.uri, info) as raw:
        source = pa.PythonFile(raw, mode="r")
        file = pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        yield from file.iter_batches(rows, use_threads=False)


def batch_rows(width: int) -> int:
    """Rows of width D in a batch of about 8 MiB."""
    return max(1, _BATCH_BYTES // (4 * width))


def read_ids(storage: Storage, uri: str) -> Ids:
    """All ids of a part that keeps them in an object beside its values.

    Raises:
        OutputError: the object is missing or damaged.
    """
    column = _id_column(storage, uri)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return ids_of(column)


def values_of(column: Any, width: int) -> npt.NDArray[np.float32]:
    """``float32 [n, width]`` of a column of vectors."""
    vectors = to_numpy(column.flatten())
    return vectors.astype(np.float32, copy=False).reshape(-1, width)


def ids_of(column: Any) -> Ids:
    """``np.int64 [n]``, or the column of strings as it is."""
    return column if pa.types.is_large_string(column.type) else to_numpy(column)


def find_object(storage: Storage, uri: str) -> ObjectInfo:
    """The object's size and tag.

    Raises:
        ObjectMissing: there is none.
    """
    info = storage.stat(uri)
    if info is None:
        raise ObjectMissing(f"no object {uri}")
    return info


@contextmanager
def readable(uri: str) -> Iterator[None]:
    """Say which object of a version is damaged; other objects' damage passes as it is."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, InputError, ObjectMissing) as error:
        raise OutputError(
            f"{uri} of a published version is missing or damaged ({error}); go back to another"
            " version with embertide rollback, or run the job again"
        ) from error
