"""A file without a name on a local disk, of which long parts are read and written.

Whole pages go past the page cache where the file system can do that (``O_DIRECT``): copying them
to the cache takes as long as a quick disk, and in a container the cache counts as memory. Ends of a
part that fill no page go through the cache, and so does everything on file systems that cannot. It
is kept small: what was read is dropped from it, and of what was written only ``_IN_FLIGHT`` pieces
are on their way to the disk.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.kernels.pages import empty_pages

Bytes = npt.NDArray[np.uint8]

PIECE_BYTES = 8 << 20
"""Read and written at a time; whole pages."""
_IN_FLIGHT = 2
"""Pieces that are on their way to the disk while others are written."""
_WAIT, _WRITE, _WRITE_AND_WAIT = 1, 2, 7
"""Flags of ``sync_file_range``: wait for what is being written; begin to write; write, and wait
before and after. Where it waits it raises what failed since it last did."""
_DIRECT = getattr(os, "O_DIRECT", 0)
"""No system but Linux has it."""


class ScratchFile:
    """A file of a fixed size whose room is reserved; one thread writes, others may read beside it.

    Its room is given back when it is closed, and with the process, however that ends.

    Args:
        size: bytes; rounded up to whole pages.

    Raises:
        OSError: the folder cannot be written to, or has no room.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.size = max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE
        self._written: list[tuple[int, int]] = []
        self._direct = -1
        self._cached = _unnamed(folder)
        try:
            os.posix_fallocate(self._cached, 0, self.size)
        except OSError:
            self.close()
            raise
        if _DIRECT:
            # Some file systems can't: all goes through the cache.
            with suppress(OSError):
                flags = os.O_RDWR | os.O_CLOEXEC | _DIRECT
                self._direct = os.open(f"/proc/self/fd/{self._cached}", flags)
        self._goes_direct = self._direct >= 0

    def map(self) -> mmap.mmap:
        """The whole file, as memory; what is changed there is written by :meth:`settle`."""
        return mmap.mmap(self._cached, self.size)

    def close(self) -> None:
        """Give the room back, once nothing maps it."""
        for file in (self._cached, self._direct):
            if file >= 0:
                os.close(file)
        self._cached = self._direct = -1

    def read(self, at: int, out: Bytes) -> None:
        """Fill ``out`` from byte ``at`` on.

        Raises:
            OSError: the disk cannot be read, or the file ends before, or the disk has failed to
                take what it was given earlier.
        """
        for place, piece in _pieces(at, out):
            direct = self._fills_pages(place, piece) and self._read_direct(place, piece)
            if not direct:
                _each(os.preadv, self._cached, place, piece)
            # Pages that could not be written are dropped from the cache like others, and read as
            # the zeros that the disk has.
            _sync(self._cached, place, len(piece), _WAIT)
            if not direct:
                os.posix_fadvise(self._cached, place, len(piece), os.POSIX_FADV_DONTNEED)

    def write(self, at: int, values: Bytes) -> None:
        """Set the bytes from number ``at`` on.

        Raises:
            OSError: the disk cannot be written.
        """
        for place, piece in _pieces(at, values):
            if not (self._fills_pages(place, piece) and self._write_direct(place, piece)):
                _each(os.pwritev, self._cached, place, piece)
                self._leaves(place, len(piece))

    def wait(self) -> None:
        """The disk has all that was written.

        Raises:
            OSError: the disk cannot be written.
        """
        self._written.clear()
        _sync(self._cached, 0, self.size, _WRITE_AND_WAIT)

    def settle(self) -> None:
        """What was changed where the file is mapped goes to the disk, and leaves the page cache.

        Raises:
            OSError: the disk cannot be written.
        """
        _sync(self._cached, 0, self.size, _WRITE)
        os.posix_fadvise(self._cached, 0, self.size, os.POSIX_FADV_DONTNEED)

    # -- past the page cache ---------------------------------------------------------------------

    def _fills_pages(self, at: int, piece: Bytes) -> bool:
        return self._goes_direct and not (at % mmap.PAGESIZE or len(piece) % mmap.PAGESIZE)

    def _read_direct(self, at: int, out: Bytes) -> bool:
        """Whether the file system could; memory that begins no page is filled by a copy."""
        pages = out if _begins_page(out) else empty_pages(len(out))
        read = self._try(os.preadv, at, pages)
        if read and pages is not out:
            out[:] = pages
        return read

    def _write_direct(self, at: int, values: Bytes) -> bool:
        """Whether the file system could."""
        pages = values
        if not _begins_page(values):
            pages = empty_pages(len(values))
            pages[:] = values
        return self._try(os.pwritev, at, pages)

    def _try(self, call: Callable[..., int], at: int, pages: Bytes) -> bool:
        try:
            _each(call, self._direct, at, pages)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # It wants other multiples than pages, or opens such files and then refuses.
            self._goes_direct = False
        return self._goes_direct

    # -- through the page cache --------------------------------------------------------------------

    def _leaves(self, at: int, count: int) -> None:
        """A piece begins to go to the disk; one that began earlier is waited for and dropped."""
        _sync(self._cached, at, count, _WRITE)
        self._written.append((at, count))
        if len(self._written) > _IN_FLIGHT:
            first, size = self._written.pop(0)
            _sync(self._cached, first, size, _WRITE_AND_WAIT)
            os.posix_fadvise(self._cached, first, size, os.POSIX_FADV_DONTNEED)


def _pieces(at: int, values: Bytes) -> Iterator[tuple[int, Bytes]]:
    """Where each piece of some bytes is in a file: whole pages, and what is before and after."""
    first = min(-at % mmap.PAGESIZE, len(values))
    last = first + (len(values) - first) // mmap.PAGESIZE * mmap.PAGESIZE
    for start, stop in pairwise([0, *range(first, last, PIECE_BYTES), last, len(values)]):
        if start < stop:
            yield at + start, values[start:stop]


def _each(call: Callable[..., int], file: int, at: int, values: Bytes) -> None:
    """Read or write all bytes, in as many calls as the system needs.

    Raises:
        OSError: a call fails, or the file ends before.
    """
    view, done = values.data, 0
    while done < len(view):
        count = call(file, [view[done:]], at + done)
        if count == 0:
            raise OSError("the file ends too early")
        done += count


def _begins_page(values: Bytes) -> bool:
    address: int = values.__array_interface__["data"][0]
    return address % mmap.PAGESIZE == 0


def _unnamed(folder: Path) -> int:
    """The descriptor of a file that has no name; on some file systems it has had one."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EINVAL, errno.EOPNOTSUPP):
            raise
    file, name = tempfile.mkstemp(prefix="embertide-", dir=folder)
    Path(name).unlink()
    return file


_libc: Any = ctypes.CDLL(None, use_errno=True)


def _sync(file: int, at: int, count: int, flags: int) -> None:
    """Write a part of a file to the disk; systems without this call write as they see fit.

    Raises:
        OSError: the disk cannot be written.
    """
    call = getattr(_libc, "sync_file_range", None)
    wide = ctypes.c_int64
    if call is not None and call(file, wide(at), wide(count), ctypes.c_uint(flags)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
