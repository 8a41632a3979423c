"""A file that is written under a hidden name, and gets its own once all is written."""

from __future__ import annotations

import io
import os
import secrets
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from embertide.io.storage.full_disk import FullDisk
from embertide.io.storage.local_errors import UNFINISHED, to_path, writing
from embertide.io.storage.protocol import ObjectInfo
from embertide.io.storage.write_back import begin_write_back

_BUFFER_BYTES = 1 << 20
_WRITE_BACK_BYTES = 8 << 20
"""How much of a file is written before its disk is asked to begin with it."""


class FileSink(io.BufferedIOBase):
    """A hidden file that `commit` gives its name. Closing it decides nothing."""

    def __init__(self, uri: str, full_disk: FullDisk) -> None:
        self._uri, self._path, self._full_disk = uri, to_path(uri), full_disk
        self._hidden = self._path.with_name(f".{secrets.token_hex(6)}{UNFINISHED}")
        with writing(uri):
            self._file = full_disk.tried(lambda: io.FileIO(str(self._hidden), "xb"))
        self._pending = bytearray()
        # Bytes that the file has, and those of them that the disk was asked to begin with.
        self._written = self._begun = 0

    def writable(self) -> bool:
        """True: this file is for writing."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._written + len(self._pending)

    def write(self, data: Any) -> int:
        """Write all of ``data``.

        Raises:
            OutputError: the disk is full.
        """
        view = memoryview(data).cast("B")
        if len(self._pending) + len(view) < _BUFFER_BYTES:
            self._pending += view
            return len(view)
        with writing(self._uri):
            self._drain()
            self._put(view)
            if self._written - self._begun >= _WRITE_BACK_BYTES:
                self._begin()
        return len(view)

    def flush(self) -> None:
        """Give the system what is pending.

        Raises:
            OutputError: the disk is full.
        """
        with writing(self._uri):
            self._drain()

    def _drain(self) -> None:
        pending, self._pending = self._pending, bytearray()
        self._put(memoryview(pending))

    def _put(self, view: memoryview) -> None:
        """Have the file take all bytes; a system may take some of them and refuse the rest."""
        while view:
            count = self._full_disk.tried(partial(self._file.write, view))
            self._written += count
            view = view[count:]

    def _begin(self) -> None:
        """Have the disk begin with what the file has."""
        begin_write_back(self._file.fileno(), self._begun, self._written - self._begun)
        self._begun = self._written

    def commit(self) -> ObjectInfo:
        """Make the file durable, then visible."""
        with writing(self._uri):
            self._drain()
            status = os.fstat(self._file.fileno())
            os.fsync(self._file.fileno())
            self._file.close()
            self._full_disk.tried(lambda: self._hidden.replace(self._path))
            sync(self._path.parent)
        return ObjectInfo(uri_of(self._path), status.st_size, etag_of(status))

    def show(self) -> None:
        """Make the file visible, and have the disk begin with what is left of it."""
        with writing(self._uri):
            self._drain()
            self._begin()
            self._file.close()
            self._full_disk.tried(lambda: self._hidden.replace(self._path))

    def remove(self) -> None:
        """Remove the hidden file, unless `commit` renamed it already."""
        self._pending.clear()
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._hidden.unlink()


def uri_of(path: Path) -> str:
    """The URI of a file."""
    return f"file://{path}"


def etag_of(status: os.stat_result) -> str:
    """A tag that changes with a file's contents."""
    return f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


def sync(path: Path) -> None:
    """Make a file's bytes durable, whatever process wrote them, or the names in a directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
