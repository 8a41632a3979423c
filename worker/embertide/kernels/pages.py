"""Memory for large arrays of numpy: on huge pages where the system has them; needs no torch.

Tensors on the same pages are in :mod:`embertide.kernels.memory`.
"""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.kernels import native

LEAST_BYTES = 8 << 20
"""Below this, rounding up to huge pages of 2 MiB would cost more than they bring."""
_LINE_BYTES = 64


class Pages:
    """Small arrays side by side on pages of large tensors, which go when the last array has gone.

    So a list of them leaves its pages to the tensors that come after it. One thread may take.
    """

    def __init__(self) -> None:
        self._bytes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._taken = 0

    def take(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """[count] uninitialised."""
        size = count * np.dtype(dtype).itemsize
        if native.lib is None or size > LEAST_BYTES // 2:
            return empty_bytes(size).view(dtype)
        if self._taken + size > len(self._bytes):
            self._bytes, self._taken = empty_bytes(LEAST_BYTES), 0
        first = self._taken
        self._taken += -(-size // _LINE_BYTES) * _LINE_BYTES
        return self._bytes[first : first + size].view(dtype)


def empty_bytes(count: int) -> npt.NDArray[np.uint8]:
    """[count] uninitialised; its memory is touched first by whatever writes it."""
    if native.lib is None or count < LEAST_BYTES:
        return np.empty(count, np.uint8)
    pages: npt.NDArray[np.uint8] = native.lib.huge_pages(count)
    return pages[:count]


def empty_pages(count: int) -> npt.NDArray[np.uint8]:
    """[count] uninitialised, from the beginning of a page on."""
    if native.lib is not None and count >= LEAST_BYTES:
        return empty_bytes(count)
    room = np.empty(count + mmap.PAGESIZE, np.uint8)
    first = -room.ctypes.data % mmap.PAGESIZE
    return room[first : first + count]


def empty_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """[*shape] uninitialised."""
    return empty_bytes(math.prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
