"""Files that are gone over once, and leave nothing of that in the system's cache.

What passes through the cache takes a page of memory for each page of the file. Where a hypervisor
has to find that memory first, it takes longer than the disk; and what others keep in the cache is
pushed out. Linux, from 6.14 on and for most file systems, drops such pages as soon as they have
been read or written, so that a few serve the whole file. What is in the cache already is read from
there, and stays. Elsewhere these are files like any other.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

_DONTCACHE = 0x80
"""RWF_DONTCACHE."""
_LEAST_BYTES = 64 << 10
"""Below this it is read and written as usual: headers and footers are read again."""
_UNKNOWN = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class UncachedFile(io.FileIO):
    """An open file, to be buffered; its large reads and writes are those that leave nothing."""

    _can = sys.platform == "linux"

    def readinto(self, buffer: Any, /) -> int | None:
        """As that of any file."""
        view = memoryview(buffer).cast("B")
        if self._can and len(view) >= _LEAST_BYTES:
            try:
                return os.preadv(self.fileno(), [view], -1, _DONTCACHE)
            except OSError as error:
                self._never_again(error)
        return super().readinto(view)

    def write(self, data: Any, /) -> int:
        """As that of any file."""
        view = memoryview(data).cast("B")
        if self._can and len(view) >= _LEAST_BYTES:
            try:
                return os.pwritev(self.fileno(), [view], -1, _DONTCACHE)
            except OSError as error:
                self._never_again(error)
        return super().write(view)

    def _never_again(self, error: OSError) -> None:
        """Without what this system or this file system cannot do; raises any other error."""
        if error.errno not in _UNKNOWN:
            raise error
        self._can = False
