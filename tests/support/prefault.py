"""Files of memory, as tests look at them."""

from __future__ import annotations

import os
from functools import cache

from embertide.kernels import native

MIB = 1 << 20


def held(file: int) -> int:
    """MiB of a file in memory."""
    return os.fstat(file).st_blocks * 512 // MIB


@cache
def has_huge_files() -> bool:
    """Whether files of memory can be made of huge pages, as Linux 6.1 and later can."""
    if native.lib is None:
        return False
    file = os.memfd_create("probe", os.MFD_CLOEXEC)
    try:
        os.truncate(file, 2 * MIB)
        return bool(native.lib.fill_file(file, 0, 2 * MIB))
    finally:
        os.close(file)
