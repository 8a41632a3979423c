"""The disk begins with files before anybody reads them.

While processes start and import, the disk idles; asked for what will be read first, it has that in
memory by the time it is asked for. Nothing changes but the time: what is not read after all, or
memory is too short for, is dropped by the system.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from embertide.io.storage.local_errors import to_path
from embertide.spec.schemes import is_local


def begin_to_read(uris: Iterable[str], most_bytes: int) -> int:
    """Have the system begin to read local files, in their order; how many bytes of them.

    A file that cannot be opened is left to its reader, who can say what to do.

    Args:
        uris: objects elsewhere are left out.
        most_bytes: the rest is left out.
    """
    begun = 0
    for uri in uris if hasattr(os, "posix_fadvise") else ():
        if begun >= most_bytes:
            break
        if is_local(uri):
            with suppress(OSError):
                begun += _begin(uri, most_bytes - begun)
    return begun


def _begin(uri: str, most_bytes: int) -> int:
    file = os.open(to_path(uri), os.O_RDONLY)
    try:
        length = min(os.fstat(file).st_size, most_bytes)
        os.posix_fadvise(file, 0, length, os.POSIX_FADV_WILLNEED)
        return length
    finally:
        os.close(file)
