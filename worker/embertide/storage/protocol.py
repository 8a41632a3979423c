"""Where objects live: one small seam over local files and S3.

Everything else names objects by URI (``file:///...`` or ``s3://bucket/key``) and goes through
:class:`Storage`, which picks the store by scheme. A store does no more than the methods below;
all of them raise :class:`~embertide.errors.StorageError` or
:class:`~embertide.errors.OutputError` naming the URI, never the library's own exceptions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from embertide.errors import StorageError
from embertide.spec.workers import StorageSettings


@dataclass(frozen=True)
class ObjectInfo:
    """One object: where, how many bytes, and a tag that changes with its contents."""

    uri: str
    size: int
    etag: str


@dataclass
class TransferStats:
    """What went over the network; ``requests`` counts attempts, ``retries`` all but the first."""

    requests: int = 0
    retries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class Storage(Protocol):
    """What the rest of the package asks of a store. Safe to use from several threads.

    A storage can be pickled; the copy connects anew.
    """

    @property
    def stats(self) -> TransferStats:
        """What was transferred so far; local files count nothing."""

    def list_folders(self, uri: str) -> list[str]:
        """Names directly below a prefix that have objects below them, sorted; none if missing."""

    def list(self, uri: str) -> list[ObjectInfo]:
        """The object at ``uri``, or all objects below it, by URI.

        Names that begin with ``.`` or ``_`` at any level below ``uri`` are markers of other
        tools and left out.

        Raises:
            ObjectMissing: there is nothing.
        """

    def stat(self, uri: str) -> ObjectInfo | None:
        """The object, or None."""

    def read(self, uri: str) -> bytes:
        """The whole object."""

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """At most ``length`` bytes from byte ``start``."""

    def open(self, uri: str, info: ObjectInfo | None = None) -> AbstractContextManager[Any]:
        """A seekable binary file over the object."""

    def write(self, uri: str, data: bytes) -> ObjectInfo:
        """Write an object whole; readers see the old one or the new one."""

    def create(self, uri: str) -> AbstractContextManager[BinaryIO]:
        """A file to write an object front to back; it appears when the block ends cleanly."""

    def write_if(self, uri: str, data: bytes, expected: str | None) -> bool:
        """Write only if the object's tag is ``expected`` (None: only if it does not exist).

        Returns:
            Whether it was written.
        """

    def delete(self, uris: Iterable[str]) -> None:
        """Remove objects; those that are gone already are fine."""

    def sweep(self, folder: str) -> None:
        """Remove what writers that were killed left unfinished in a folder."""


def as_uri(location: str) -> str:
    """Bare absolute paths are files."""
    return f"file://{location}" if location.startswith("/") else location


class Stores:
    """The storage that users of this package get: picks the store by the URI's scheme.

    A store is made on first use, so that a run without S3 never loads its client.
    """

    def __init__(self, settings: StorageSettings) -> None:
        self._settings = settings
        self._made: dict[str, Storage] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Stores, (self._settings,)

    @property
    def stats(self) -> TransferStats:
        """What was transferred so far; local files count nothing."""
        s3 = self._made.get("s3")
        return s3.stats if s3 is not None else TransferStats()

    def _store(self, uri: str) -> Storage:
        scheme = uri.partition("://")[0]
        with self._lock:
            if scheme not in self._made:
                self._made[scheme] = _make(scheme, uri, self._settings)
            return self._made[scheme]

    def list_folders(self, uri: str) -> list[str]:
        """See :class:`Storage`."""
        uri = as_uri(uri)
        return self._store(uri).list_folders(uri)

    def list(self, uri: str) -> list[ObjectInfo]:
        """See :class:`Storage`."""
        uri = as_uri(uri)
        return self._store(uri).list(uri)

    def stat(self, uri: str) -> ObjectInfo | None:
        """See :class:`Storage`."""
        uri = as_uri(uri)
        return self._store(uri).stat(uri)

    def read(self, uri: str) -> bytes:
        """See :class:`Storage`."""
        uri = as_uri(uri)
        return self._store(uri).read(uri)

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """See :class:`Storage`."""
        uri = as_uri(uri)
        return self._store(uri).read_range(uri, start, length)

    def open(self, uri: str, info: ObjectInfo | None = None) -> AbstractContextManager[Any]:
        """See :class:`Storage`."""
        uri = as_uri(uri)
        return self._store(uri).open(uri, info)

    def write(self, uri: str, data: bytes) -> ObjectInfo:
        """See :class:`Storage`."""
        uri = as_uri(uri)
        return self._store(uri).write(uri, data)

    def create(self, uri: str) -> AbstractContextManager[BinaryIO]:
        """See :class:`Storage`."""
        uri = as_uri(uri)
        return self._store(uri).create(uri)

    def write_if(self, uri: str, data: bytes, expected: str | None) -> bool:
        """See :class:`Storage`."""
        uri = as_uri(uri)
        return self._store(uri).write_if(uri, data, expected)

    def sweep(self, folder: str) -> None:
        """See :class:`Storage`."""
        folder = as_uri(folder)
        self._store(folder).sweep(folder)

    def delete(self, uris: Iterable[str]) -> None:
        """See :class:`Storage`."""
        for uri in map(as_uri, uris):
            self._store(uri).delete([uri])


def _make(scheme: str, uri: str, settings: StorageSettings) -> Storage:
    if scheme == "file":
        from embertide.storage.local import LocalStore

        return LocalStore()
    if scheme == "s3":
        from embertide.storage.s3 import S3Store

        return S3Store(settings)
    raise StorageError(f"{uri}: unknown scheme; use s3://bucket/path or file:///absolute/path")


def open_storage(settings: StorageSettings | None = None) -> Stores:
    """The storage for a job's ``spec.storage``."""
    return Stores(settings or StorageSettings())
