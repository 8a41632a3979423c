"""What every store of objects can do: the protocol that local files and S3 implement.

The rest of the package names objects by URI (``file:///...`` or ``s3://bucket/key``) and calls
the methods below, on what `opening.open_storage` gives. All of them raise
:class:`~embertide.errors.StorageError` or :class:`~embertide.errors.OutputError` naming the
URI, never the library's own exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

from embertide.facts.telemetry.transfers import TransferStats

OnRetry = Callable[[str], None]
"""Called with a sentence before a request is sent again."""
OnUpload = Callable[[str], None]
"""Called with the URI of an object whose upload begins: a killed process may leave parts of it."""
BLOCK_BYTES = 4 << 20
"""The most of an object that a remote store is asked for at a time."""
GAP_BYTES = 1 << 20
"""Between ranges that are read of a remote store: it takes no longer than another request."""
NAMES_AT_ONCE = 1000
"""Names that one request lists, at most."""
CHANGED = "{uri} changed after it was listed; run the job again"
GONE = "{uri} was removed after it was listed; run the job again"
Span = tuple[int, int]
"""The first byte of a range of an object, and the one after its last."""


@dataclass(frozen=True)
class ObjectInfo:
    """One object: where, how many bytes, and a tag that changes with its contents.

    Attributes:
        modified: when it was created or last changed, by the store's clock, in seconds since the
            epoch; 0 where the request did not say.
    """

    uri: str
    size: int
    etag: str
    modified: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Listing:
    """What a folder holds.

    Attributes:
        objects: by URI.
        hidden: URIs of the hidden files and folders that were left out, a folder's with a slash at
            its end; not what is in such a folder.
    """

    objects: list[ObjectInfo]
    hidden: list[str]


class Storage(Protocol):
    """A store of objects, safe to use from several threads.

    It can be pickled; the copy opens its own connections.
    """

    @property
    def stats(self) -> TransferStats:
        """What was transferred so far; zero for local files."""

    def list_folders(self, uri: str) -> list[str]:
        """Names directly below a prefix that have objects below them, sorted; [] if none have."""

    def names(self, folder: str, start: str = "") -> list[str]:
        """Names directly below a folder, hidden ones too; a folder's with a slash at its end.

        Args:
            start: only names that begin with it; without a slash.

        Returns:
            Sorted, and at most :data:`NAMES_AT_ONCE`, which takes one request; none where there
            is no such folder.
        """

    def all_names(self, folder: str, start: str = "") -> list[str]:
        """All names that :meth:`names` would give, in as many requests as that takes."""

    def list(self, uri: str, *, hidden: bool = False) -> list[ObjectInfo]:
        """The object at ``uri``, or all objects below it, by URI.

        Names that begin with ``.`` or ``_`` at any level below ``uri`` are not data, as other
        readers of folders hold too: they are left out unless ``hidden``.

        Raises:
            ObjectMissing: there is nothing.
        """

    def scan(self, uri: str) -> Listing:
        """What :meth:`list` gives, and the names of what it leaves out; as many requests.

        Raises:
            ObjectMissing: there is nothing, not even hidden names.
        """

    def stat(self, uri: str) -> ObjectInfo | None:
        """The object's size and tag; None if it does not exist."""

    def read(self, uri: str) -> bytes:
        """All bytes of the object.

        Raises:
            ObjectMissing: it does not exist.
        """

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """At most ``length`` bytes from byte ``start``.

        Raises:
            ObjectMissing: it does not exist.
        """

    def read_into(self, uri: str, buffer: memoryview, spans: Sequence[Span] = ()) -> int:
        """Fill a buffer with parts of an object, one after another; the object's size in bytes.

        A local file's bytes are copied once; a remote store is asked for several spans at a time.

        Args:
            spans: that the object has, as many bytes as the buffer; none: it is filled with the
                first bytes, as far as there are any. Where the object ends before one, the size
                that is given is another than where all are there.

        Raises:
            ObjectMissing: it does not exist.
        """

    def open(
        self, uri: str, info: ObjectInfo | None = None, spans: Sequence[Span] = ()
    ) -> AbstractContextManager[Any]:
        """A seekable binary file over the object, in the state of ``info`` if that is given.

        Args:
            spans: what will be read, ascending and apart, so that a remote store fetches
                nothing else ahead; none: all of it. Other bytes can be read, too.

        Raises:
            ObjectMissing: it does not exist.
            InputChanged: it changed since ``info`` was listed, or is gone.
        """

    def write(self, uri: str, data: bytes) -> ObjectInfo:
        """Create or replace an object atomically: readers see the old one or the new one."""

    def write_soon(self, uri: str, data: bytes | memoryview) -> None:
        """Write as :meth:`write` does; until it is settled, a crash of the machine may lose it."""

    def settle(self, uris: Iterable[str]) -> None:
        """Return once objects of :meth:`write_soon` outlast a machine that goes down.

        Any process of the machine that wrote them may call, for several at a time.

        Raises:
            OutputError: an object is gone, or the disk could not write it.
        """

    def create(self, uri: str) -> AbstractContextManager[BinaryIO]:
        """A file to write an object sequentially; it appears when the block ends cleanly."""

    def write_if(self, uri: str, data: bytes, expected: str | None) -> bool:
        """Compare and write: only if its tag is ``expected`` (None: only if it does not exist).

        Returns:
            Whether it was written.
        """

    def try_upload(self, uri: str) -> None:
        """Begin what writing a large object begins with, and give it up; leaves nothing.

        Raises:
            AccessDenied: a right is missing that large objects take.
        """

    def delete(self, uris: Iterable[str]) -> None:
        """Remove objects; those that do not exist are ignored."""

    def free_bytes(self, uri: str) -> int | None:
        """What the disk that an object would be on has room for; None where that is not known."""

    def making_room(
        self, uri: str, give_back: Callable[[], object]
    ) -> AbstractContextManager[None]:
        """While the block runs, what a full disk does not take of any object is tried once more
        after ``give_back``, which any thread may call. Remote stores do not call it.

        Args:
            uri: of the folder that is written to.
        """

    def unfinished(self, folder: str) -> Sequence[str]:
        """What writers have begun below a folder and not finished: hidden files, open uploads.

        Returns:
            URIs; an upload's is that of the object that it would become.
        """

    def sweep(self, folder: str, begun: Iterable[str] = ()) -> None:
        """Remove what killed writers left unfinished in a folder: hidden files, open uploads.

        Args:
            begun: URIs of objects whose uploads are known to have begun; some stores, such as
                MinIO, list uploads by the whole key alone.
        """
