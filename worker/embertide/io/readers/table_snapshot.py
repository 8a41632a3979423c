"""One version of a Delta or Iceberg table: its files, in the state that is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from embertide.errors import InputError
from embertide.io.readers.layout import DataFile, Layout
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.schemes import FILE, without_alias

MAX_DELETED_ROWS = 100_000_000
"""Rows that a version may have deleted without having rewritten their files."""
_REMOVED = {
    "Delta": "VACUUM removes files of old versions",
    "Iceberg": "expire_snapshots removes files of old snapshots",
}


@dataclass(frozen=True)
class TableSnapshot:
    """A version of a table.

    Attributes:
        format: ``Delta`` or ``Iceberg``.
        uri: of the table, as the manifest has it.
        version: Delta: the number of the version; Iceberg: the id of the snapshot.
        committed: when it was written, in seconds since the epoch.
        files: by URI.
    """

    format: str
    uri: str
    version: int
    committed: float
    files: list[ObjectInfo]

    @property
    def committed_text(self) -> str:
        """The time in UTC, to the second."""
        return datetime.fromtimestamp(self.committed, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class TableRead:
    """A version of a table that a run reads, as a version's manifest has it.

    Attributes:
        field: of ``spec.input`` that names the table, such as ``edges[0]``.
        committed: when that version was written, in UTC.
    """

    field: str
    uri: str
    format: str
    version: int
    committed: str

    @classmethod
    def of(cls, field: str, snapshot: TableSnapshot) -> TableRead:
        """A snapshot that an input stands for."""
        when = snapshot.committed_text
        return cls(field, snapshot.uri, snapshot.format.lower(), snapshot.version, when)


@dataclass(frozen=True)
class NamedFile:
    """A file of data that a table's metadata names."""

    uri: str
    size: int
    layout: Layout


def pin_file(
    storage: Storage,
    table: str,
    named: NamedFile,
    listed: Mapping[str, ObjectInfo],
) -> DataFile:
    """The file in its present state.

    Args:
        table: its format, uri and version, for errors.
        listed: objects that are known already.

    Raises:
        InputError: it is not there, or has another size than the metadata says.
        StorageError: the store refuses or does not answer.
    """
    info = listed.get(named.uri) or storage.stat(named.uri)
    if info is None:
        raise InputError(
            f"{named.uri} belongs to {table}, but is not there:"
            f" {_REMOVED[table.partition(' ')[0]]}. Read a version whose files are kept (omit asOf"
            " for the newest), or keep them for longer"
        )
    if info.size != named.size:
        raise InputError(
            f"{named.uri} has {info.size:,} bytes, but the metadata of {table} says"
            f" {named.size:,}: it was replaced or damaged; restore it"
        )
    return DataFile(info.uri, info.size, info.etag, info.modified, named.layout)


def data_uri(table_uri: str, path: str) -> str:
    """The URI of a file that a table's metadata names by URI or absolute path.

    Raises:
        InputError: it is in another kind of store than the table.
    """
    scheme, separator, rest = path.partition(":")
    if not separator or "/" in scheme:
        scheme, rest = FILE.name, path
    scheme = without_alias(scheme)
    rest = "/" + rest.lstrip("/") if scheme == FILE.name else rest.removeprefix("//")
    own = table_uri.partition("://")[0]
    if scheme != own:
        raise InputError(
            f"the table {table_uri} has the file {path}, which is in another kind of store; only"
            f" tables whose files are all under {own}:// can be read"
        )
    return f"{scheme}://{rest}"


def check_deleted(table: str, deleted: int, remedy: str) -> None:
    """Refuse more deleted rows than the plan of a run can name.

    Raises:
        InputError: says how many there are, and what to do.
    """
    if deleted > MAX_DELETED_ROWS:
        raise InputError(
            f"{table} has {deleted:,} deleted rows whose files were not rewritten; at most"
            f" {MAX_DELETED_ROWS:,} can be left out while reading: {remedy}"
        )


def missing_library(form: str, library: str) -> InputError:
    """The error for a table whose format's library is not installed."""
    return InputError(
        f"format: {form} needs the library {library}, which is not installed: pip install"
        " 'embertide[tables]' (the worker's image has it)"
    )
