"""Delta tables: which files a version has, by the library of the format.

The library reads a copy of the log (`delta_log.py`). Partition columns, column mapping and deletion
vectors become layouts of files; a table that needs more of its readers is refused.
"""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from embertide.errors import InputError, ObjectMissing
from embertide.io.readers.delta_log import LOG, DeltaLog
from embertide.io.readers.layout import Layout, Positions, StoredAs
from embertide.io.readers.objects import listed_folder
from embertide.io.readers.splits import map_objects
from embertide.io.readers.table_snapshot import (
    NamedFile,
    TableSnapshot,
    check_deleted,
    data_uri,
    missing_library,
    pin_file,
)
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.tables import AsOf

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    # Values of wider types in newer files: each file's own type is read.
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    # Of types that no input column can have.
    "geospatial",
    "variantShredding",
    "variantShredding-preview",
    "variantType",
    "variantType-preview",
    # It binds who vacuums.
    "vacuumProtocolCheck",
}
"""Reader features of the protocol that are honoured here."""
_PURGE = "rewrite its files (OPTIMIZE, or REORG TABLE ... APPLY (PURGE))"
_PHYSICAL, _ID, _MODE = (
    "delta.columnMapping.physicalName",
    "delta.columnMapping.id",
    "delta.columnMapping.mode",
)


def read_delta(storage: Storage, uri: str, as_of: AsOf | None) -> TableSnapshot:
    """A version of the Delta table in a folder.

    Raises:
        ObjectMissing: there is no Delta table at the uri, or no such version.
        InputError: it needs more of its readers than is
            known here, or a file is missing; or the library is not installed.
        StorageError: the store refuses or does not answer.
    """
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise missing_library("delta", "deltalake") from None
    root = f"{listed_folder(uri)}/"
    listed = {info.uri: info for info in storage.list(root, hidden=True)}
    objects = {at.removeprefix(root): info for at, info in listed.items() if at.startswith(root)}
    log = DeltaLog(storage, uri, objects)
    if log.newest < 0:
        raise ObjectMissing(
            f"{uri} is no Delta table: it has no commits below {LOG}; name the table's own folder,"
            " or correct format in the manifest"
        )
    version = log.version(as_of)
    named = _named_files(log, uri, root, version)
    label = f"Delta table {uri}, version {version}"
    files = map_objects(named, partial(pin_file, storage, label, listed=listed))
    files.sort(key=lambda info: info.uri)
    return TableSnapshot("Delta", uri, version, log.committed(version), list[ObjectInfo](files))


def _named_files(log: DeltaLog, uri: str, root: str, version: int) -> list[NamedFile]:
    """The files of a version, with their layouts."""
    with tempfile.TemporaryDirectory(prefix="embertide-delta-") as name:
        folder = Path(name) / "table"
        log.copy(version, folder)
        with _errors_of(uri, folder):
            table = _open(uri, folder, version)
            deleted = _deleted_rows(log, table, folder, uri, version)
            columns = _columns(table)
            adds = pa.table(table.get_add_actions(flatten=False)).to_pylist()
        partitions = set(table.metadata().partition_columns)
    return [_named_file(add, columns, partitions, deleted, uri, root) for add in adds]


@contextmanager
def _errors_of(uri: str, folder: Path) -> Iterator[None]:
    """The library's own errors become ours; it has several kinds, without one above them."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        text = str(error).replace(f"file://{folder}", uri).replace(str(folder), uri)
        raise InputError(f"Delta table {uri} cannot be read: {text}") from error


def _open(uri: str, folder: Path, version: int) -> DeltaTable:
    from deltalake import DeltaTable

    table = DeltaTable(str(folder), version=version)
    protocol = table.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - _FEATURES)
    if protocol.min_reader_version > 3 or unknown:
        needed = ", ".join(unknown) or f"reader version {protocol.min_reader_version}"
        raise InputError(
            f"Delta table {uri}, version {version}, needs of its readers what is not known here:"
            f" {needed}. Write its rows to a table without (ALTER TABLE ... DROP FEATURE, or a copy"
            " of the table)"
        )
    return table


def _columns(table: DeltaTable) -> dict[str, StoredAs]:
    """How files store each column: by name, or as column mapping says."""
    mode = table.metadata().configuration.get(_MODE, "none")
    partitions = set(table.metadata().partition_columns)
    found = {}
    for item in json.loads(table.schema().to_json())["fields"]:
        name, about = item["name"], item["metadata"]
        if name in partitions:
            found[name] = StoredAs(())
        elif mode == "none":
            found[name] = StoredAs((name,))
        else:
            field_id = about[_ID] if mode == "id" else None
            found[name] = StoredAs((about[_PHYSICAL],), field_id)
    return found


def _deleted_rows(
    log: DeltaLog, table: DeltaTable, folder: Path, uri: str, version: int
) -> dict[str, Positions]:
    """Rows that deletion vectors take away, by the file's path in the table."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    log.copy_deletion_vectors(folder)
    deleted: dict[str, Positions] = {}
    total = 0
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for path, kept in zip(
            batch.column("filepath"), batch.column("selection_vector"), strict=True
        ):
            rows = np.flatnonzero(~kept.values.to_numpy(zero_copy_only=False)).astype(np.int64)
            total += len(rows)
            check_deleted(f"Delta table {uri}, version {version},", total, _PURGE)
            deleted[unquote(path.as_py().removeprefix(f"file://{folder}/"))] = rows
    return deleted


def _named_file(
    add: dict[str, Any],
    columns: dict[str, StoredAs],
    partitions: set[str],
    deleted: dict[str, Positions],
    uri: str,
    root: str,
) -> NamedFile:
    path = unquote(add["path"])
    at = data_uri(uri, path) if "://" in path or path.startswith("/") else root + path
    values = add.get("partition") or {}
    constants = {name: _as_text(values.get(name)) for name in partitions}
    return NamedFile(at, add["size_bytes"], Layout(columns, constants, deleted.get(path)))


def _as_text(value: Any) -> str | None:
    """A partition's value as text."""
    if value is None or value == "":
        return None  # Delta's empty string is null.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    return str(value)
