"""What every store can do, so that nothing else in the project knows which one it talks to.

A store holds whole objects named by URIs. An object appears, changes and vanishes as a whole:
nobody ever sees half of one. URIs are taken as they are written, without percent-decoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from embertide.errors import ObjectMissing


@dataclass(frozen=True)
class ObjectInfo:
    """One object: ``size`` in bytes; ``etag`` changes whenever the object does."""

    uri: str
    size: int
    etag: str


@dataclass
class TransferStats:
    """What went over the network; local files count nothing.

    ``requests`` counts attempts, ``retries`` those that were not the first; bytes are payload.
    """

    requests: int = 0
    retries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class Settings(Protocol):
    """What ``spec.storage`` says about reaching S3; fields are explained there."""

    @property
    def endpoint_url(self) -> str | None: ...  # noqa: D102

    @property
    def region(self) -> str | None: ...  # noqa: D102

    @property
    def path_style(self) -> bool | None: ...  # noqa: D102

    @property
    def max_attempts(self) -> int: ...  # noqa: D102

    @property
    def connect_timeout_seconds(self) -> float: ...  # noqa: D102


class Storage(Protocol):
    """Objects by URI. All methods may be called from several threads.

    Every method raises AccessDenied when the store refuses, and StoreUnavailable when it does
    not answer after the retries. A storage can be pickled; the copy connects anew.
    """

    @property
    def stats(self) -> TransferStats:
        """What this storage transferred so far."""

    def list(self, uri: str) -> list[ObjectInfo]:
        """The object ``uri``, or all objects in the folder ``uri`` and below, sorted by URI.

        Objects and folders whose names start with ``_`` or ``.`` are left out, unless ``uri``
        itself names them. Raises ObjectMissing when there is nothing.
        """

    def stat(self, uri: str) -> ObjectInfo | None:
        """The object's size and ETag; None when it does not exist."""

    def read(self, uri: str) -> bytes:
        """The whole object. Raises ObjectMissing."""

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """Bytes ``[start, start + length)``, fewer at the object's end. Raises ObjectMissing."""

    def open(self, uri: str, info: ObjectInfo | None = None) -> BinaryIO:
        """The object as a seekable file, not shared between threads.

        With ``info`` its size and ETag need not be asked for. Raises ObjectMissing, and
        InputError when the object is no longer the one of ``info``.
        """

    def write(self, uri: str, data: bytes) -> ObjectInfo:
        """Create or replace the object. Raises OutputError."""

    def create(self, uri: str) -> AbstractContextManager[BinaryIO]:
        """A stream whose bytes become the object at the block's end; nothing on an exception.

        Raises OutputError from its ``write`` or at the block's end.
        """

    def write_if(self, uri: str, data: bytes, expected: str | None) -> bool:
        """Write if the object has the ETag ``expected``, or with None if there is no object.

        Of several writers at once at most one succeeds. False: the condition did not hold.
        """

    def delete(self, uris: Iterable[str]) -> None:
        """Remove objects; those that do not exist are fine."""

    def delete_folder(self, uri: str) -> None:
        """Remove a folder with all below it, also hidden objects and unfinished writes."""


def is_hidden(name: str) -> bool:
    """Whether an object of this (relative) name is not data, such as ``_SUCCESS``."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))


def nothing_at(uri: str, what: str) -> ObjectMissing:
    """The error for a ``list`` that finds nothing; ``what`` is object, folder or both."""
    return ObjectMissing(
        f"{uri}: no such {what}, or nothing in it (names that start with '_' or '.' do not"
        " count); check the uri"
    )


@contextmanager
def closing_sink(sink: Sink) -> Iterator[BinaryIO]:
    """Commit ``sink`` at the block's end, abort it on any exception."""
    try:
        yield sink.stream
        sink.commit()
    except BaseException:
        sink.abort()
        raise


class Sink(Protocol):
    """One object in the making."""

    @property
    def stream(self) -> BinaryIO:
        """Takes the bytes."""

    def commit(self) -> None:
        """Make the object visible; called once."""

    def abort(self) -> None:
        """Remove all traces; also after a failed commit."""
