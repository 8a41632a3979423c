"""What every store of objects can do: the protocol that local files and S3 implement.

The rest of the package names objects by URI (``file:///...`` or ``s3://bucket/key``) and calls
the methods below, on what `opening.open_storage` gives. All of them raise
:class:`~embertide.errors.StorageError` or :class:`~embertide.errors.OutputError` naming the
URI, never the library's own exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol


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
