"""Iceberg tables: which files a snapshot has, by the library of the format.

Everything that the library reads comes by the job's own storage. A table is found by its metadata
file, or by the hint in its folder; without a hint only a catalog knows which metadata is current,
and guessing by the highest number may pick a commit that failed.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from embertide.errors import EmbertideError, InputError, ObjectMissing
from embertide.io.readers.layout import Layout, Positions, StoredAs
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
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

_METADATA_ENDS = (".metadata.json", ".metadata.json.gz")
_HINT = "metadata/version-hint.text"
_REWRITE = "rewrite its files (CALL system.rewrite_data_files)"


def read_iceberg(
    storage: Storage, uri: str, as_of: AsOf | None, version: int | None = None
) -> TableSnapshot:
    """A snapshot of the Iceberg table in a folder, or of a metadata file.

    Args:
        version: the id of the snapshot that ``as_of`` stood for when it was looked up before.

    Raises:
        ObjectMissing: there is no metadata at the uri, or no such snapshot.
        InputError: it is not known which metadata is current, the snapshot has equality deletes or
            files that are not parquet, or a file is missing; or the library is not installed.
        StorageError: the store refuses or does not answer.
    """
    try:
        import pyiceberg  # noqa: F401
    except ImportError:
        raise missing_library("iceberg", "pyiceberg") from None
    location = _metadata_uri(storage, uri)
    with _errors_of(uri):
        table = _open(storage, uri, location)
        snapshot = _snapshot(table, uri, as_of if version is None else AsOf(version=version))
        label = f"Iceberg table {uri}, snapshot {snapshot.snapshot_id}"
        tasks = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
        schema = _schema(table, snapshot, as_of)
        named = _named_files(table, tasks, schema, uri, label)
    files = map_objects(named, partial(pin_file, storage, label, listed={}))
    files.sort(key=lambda info: info.uri)
    return TableSnapshot(
        "Iceberg",
        uri,
        snapshot.snapshot_id,
        snapshot.timestamp_ms / 1000,
        list[ObjectInfo](files),
    )


@contextmanager
def _errors_of(uri: str) -> Iterator[None]:
    """The library's own errors become ours; it has several kinds, without one above them."""
    try:
        yield
    except EmbertideError:
        raise
    except Exception as error:
        if "equality delete" in str(error):
            raise InputError(
                f"Iceberg table {uri} has equality deletes, which cannot be read; {_REWRITE}"
            ) from error
        raise InputError(f"Iceberg table {uri} cannot be read: {error}") from error


def _metadata_uri(storage: Storage, uri: str) -> str:
    """The URI of the metadata file that is current."""
    if uri.endswith(_METADATA_ENDS):
        return uri
    folder = uri.rstrip("/")
    try:
        hint = storage.read(f"{folder}/{_HINT}").decode().strip()
    except ObjectMissing:
        names = storage.names(f"{folder}/metadata/")
        held = [name for name in names if name.endswith(_METADATA_ENDS)]
        if not held:
            raise ObjectMissing(
                f"{uri} is no Iceberg table: it has no metadata/*.metadata.json; name the table's"
                " own folder or its metadata file, or correct format in the manifest"
            ) from None
        raise InputError(
            f"Iceberg table {uri} has no {_HINT}, so only its catalog knows which of its"
            f" {len(held)} metadata files is current. Name that file as the uri, as the catalog"
            f" gives it (metadata_location), such as {folder}/metadata/{held[-1]}"
        ) from None
    except UnicodeDecodeError:
        raise InputError(
            f"{folder}/{_HINT} is not text; write the table's metadata again"
        ) from None
    return _hinted(storage, f"{folder}/metadata/", hint)


def _hinted(storage: Storage, folder: str, hint: str) -> str:
    """The metadata that a hint names; of numbered ones a newer one, if it is there.

    A writer without a catalog creates the next number first and renews the hint afterwards.
    """
    if hint.endswith(_METADATA_ENDS):
        return folder + hint
    if not (hint.isascii() and hint.isdigit()):
        return f"{folder}{hint}.metadata.json"
    number = int(hint)
    while storage.stat(f"{folder}v{number + 1}.metadata.json") is not None:
        number += 1
    return f"{folder}v{number}.metadata.json"


def _open(storage: Storage, uri: str, location: str) -> Table:
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import Table

    files = _storage_io(storage, uri)
    metadata = FromInputFile.table_metadata(files.new_input(location))
    return Table(("table",), metadata, location, files, NoopCatalog("none"))


def _storage_io(storage: Storage, uri: str) -> Any:
    """The library's way to files, by our storage; its classes are imported late."""
    from pyiceberg.io import FileIO, InputFile

    class Input(InputFile):
        def __len__(self) -> int:
            info = storage.stat(self.location)
            if info is None:
                raise ObjectMissing(f"{self.location} does not exist")
            return info.size

        def exists(self) -> bool:
            return storage.stat(self.location) is not None

        def open(self, seekable: bool = True) -> Any:  # noqa: ARG002
            # Metadata and deletes, which the library reads as a whole.
            return io.BytesIO(storage.read(self.location))

    class Files(FileIO):
        def new_input(self, location: str) -> InputFile:
            return Input(data_uri(uri, location))

        def new_output(self, location: str) -> Any:
            raise AssertionError(f"{location}: inputs are not written")

        def delete(self, location: Any) -> None:
            raise AssertionError(f"{location}: inputs are not removed")

    return Files()


def _snapshot(table: Table, uri: str, as_of: AsOf | None) -> Snapshot:
    """The snapshot that the manifest asks for."""
    refs = table.metadata.refs
    if as_of is None:
        snapshot, asked = table.current_snapshot(), "snapshot: nothing was written to it yet"
    elif as_of.version is not None:
        snapshot, asked = table.snapshot_by_id(as_of.version), f"snapshot {as_of.version}"
        asked += " (asOf.version)"
    elif as_of.timestamp is not None:
        moment = int(as_of.moment.timestamp() * 1000)
        snapshot = table.snapshot_as_of_timestamp(moment)
        asked = f"snapshot of {as_of.timestamp} (asOf.timestamp)"
    else:
        kind = "tag" if as_of.tag is not None else "branch"
        name = str(as_of.tag or as_of.branch)
        ref = refs.get(name)
        right = ref is not None and ref.snapshot_ref_type == kind
        snapshot = table.snapshot_by_id(ref.snapshot_id) if right and ref is not None else None
        held = [each for each, ref in refs.items() if ref.snapshot_ref_type == kind]
        asked = f"{kind} {name!r} (asOf.{kind}); it has {', '.join(held) or 'none'}"
    if snapshot is None:
        known = sorted(table.snapshots(), key=lambda each: each.timestamp_ms)[-3:]
        newest = ", ".join(str(each.snapshot_id) for each in known)
        more = f"; its newest snapshots are {newest}" if newest else ""
        raise ObjectMissing(f"Iceberg table {uri} has no {asked}{more}")
    return snapshot


def _schema(table: Table, snapshot: Snapshot, as_of: AsOf | None) -> Schema:
    """The columns as they are now; of a version that is fixed, as they were then."""
    if as_of is not None and as_of.fixed and snapshot.schema_id is not None:
        return table.schemas()[snapshot.schema_id]
    return table.schema()


def _named_files(
    table: Table, tasks: list[FileScanTask], schema: Schema, uri: str, label: str
) -> list[NamedFile]:
    columns = _columns(table, schema)
    deletes = _read_deletes(table, tasks, label)
    specs = table.specs()
    named = []
    for task in tasks:
        file = task.file
        _check_file(file, label)
        constants = _constants(file, specs[file.spec_id], schema)
        layout = Layout(columns, constants, _positions(task, deletes))
        named.append(NamedFile(data_uri(uri, file.file_path), file.file_size_in_bytes, layout))
    return named


def _check_file(file: IcebergFile, label: str) -> None:
    form = str(getattr(file.file_format, "value", file.file_format)).lower()
    if form != "parquet":
        raise InputError(
            f"{label}: {file.file_path} is {form}; only files in parquet can be read. Set"
            f" write.format.default to parquet and {_REWRITE}"
        )
    if file.key_metadata is not None:
        raise InputError(f"{label}: {file.file_path} is encrypted, which cannot be read")


def _columns(table: Table, schema: Schema) -> dict[str, StoredAs]:
    """How files store each column: by field id, and files without ids by the mapping of names."""
    mapping = table.name_mapping()
    by_id = {item.field_id: tuple(item.names) for item in mapping or ()}
    return {
        column.name: StoredAs(by_id.get(column.field_id, ()), column.field_id)
        for column in schema.columns
    }


def _constants(file: IcebergFile, spec: PartitionSpec, schema: Schema) -> dict[str, str | None]:
    """Values of the columns that files may lack: defaults, and partitions by the value itself."""
    from pyiceberg.transforms import IdentityTransform

    columns = {column.field_id: column for column in schema.columns}
    constants: dict[str, str | None] = {
        column.name: str(column.initial_default)
        for column in columns.values()
        if column.initial_default is not None
    }
    for at, part in enumerate(spec.fields):
        column = columns.get(part.source_id)
        if column is not None and isinstance(part.transform, IdentityTransform):
            value = file.partition[at]
            text = (
                None if value is None else part.transform.to_human_string(column.field_type, value)
            )
            constants[column.name] = text
    return constants


def _read_deletes(
    table: Table, tasks: Iterable[FileScanTask], label: str
) -> dict[str, dict[str, list[Any]]]:
    """For each file of deletes: path of a file of data -> arrays of deleted rows."""
    from pyiceberg.io.pyarrow import _read_deletes as read

    files = {file.file_path: file for task in tasks for file in task.delete_files}
    found: dict[str, dict[str, list[Any]]] = {}
    total = sum(file.record_count for file in files.values())
    check_deleted(label, total, _REWRITE)
    for path, held in zip(
        files, map_objects(list(files.values()), partial(read, table.io)), strict=True
    ):
        found[path] = {data: array.chunks for data, array in held.items()}
    return found


def _positions(task: FileScanTask, deletes: dict[str, dict[str, list[Any]]]) -> Positions | None:
    """The rows of a file that are deleted."""
    path = task.file.file_path
    chunks = [
        chunk.to_numpy(zero_copy_only=False)
        for file in task.delete_files
        for chunk in deletes[file.file_path].get(path, ())
    ]
    if not chunks:
        return None
    rows: Positions = np.unique(np.concatenate(chunks).astype(np.int64))
    return rows
