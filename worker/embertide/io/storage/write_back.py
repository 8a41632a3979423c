"""The disk's work on a file begins while the file is still being written.

A system keeps what is written in memory until someone waits for it, and the disk idles meanwhile.
Asked to begin, it writes beside the encoding and hashing of what follows, so that little is left
for `fsync`, which alone says that all has arrived, or that it has not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

_WRITE = 2
"""SYNC_FILE_RANGE_WRITE: begin, wait for nothing, and leave errors to fsync."""


def begin_write_back(file: int, start: int, length: int) -> bool:
    """Have the system begin to write some bytes of a file to its disk; whether it can.

    Args:
        file: an open descriptor.
    """
    call = _sync_file_range()
    return call is not None and call(file, start, length, _WRITE) == 0


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The system's function; None where it has none."""
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        call.restype = ctypes.c_int
    return call
