"""Memory for large tensors: on huge pages where the system has them.

A gather of random rows from 4 KiB pages misses the translation cache on nearly every row, and the
first touch of each page is a fault. Pages of a tensor that is gone are kept for those that come,
until :func:`release_idle`; those that other processes map only for one of about the size.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
from collections.abc import Sequence

import torch

from embertide.kernels import native
from embertide.kernels.pages import LEAST_BYTES, empty_bytes

Place = tuple[int, int]
"""Offset and bytes of a part of a file."""

_PAGE_BYTES = mmap.PAGESIZE


def empty(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """An uninitialised CPU tensor; its memory is touched first by the thread that writes it."""
    size = math.prod(shape) * dtype.itemsize
    if native.lib is None or size < LEAST_BYTES:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(empty_bytes(size)).view(dtype).view(shape)


def empty_as(like: torch.Tensor, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor on the device of another one, and with its dtype unless one is given."""
    if like.device.type == "cpu":
        return empty(shape, dtype or like.dtype)
    return like.new_empty(shape, dtype=dtype)


def copy_of(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A contiguous copy, rounded to the nearest values of a dtype that is given."""
    return empty_as(tensor, *tensor.shape, dtype=dtype).copy_(tensor)


def as_type(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor itself where it has the dtype, else a copy that has."""
    return tensor if tensor.dtype == dtype else copy_of(tensor, dtype)


def release_idle(most: int | None = None) -> None:
    """Give pages that no tensor uses back to the system, up to ``most`` bytes of huge pages."""
    if native.lib is not None:
        native.lib.release_pages(sys.maxsize if most is None else most)


# -- memory that other processes of this host can map ------------------------------------------


def may_share() -> bool:
    """Whether workers of one host may map each other's memory.

    Without the native kernels they cannot; ``EMBERTIDE_IN_PLACE=0`` in the environment forbids it.
    """
    return native.lib is not None and os.environ.get("EMBERTIDE_IN_PLACE") != "0"


def shared_file() -> int | None:
    """The descriptor of the file that shared memory comes from; None where there is none."""
    if not may_share():
        return None
    file = int(native.lib.shared_file())
    return None if file < 0 else file


def share() -> None:
    """Take large tensors from the shared file from now on, in this process."""
    native.lib.use_shared_file()


def place_in_file(tensor: torch.Tensor) -> tuple[torch.Tensor, list[Place]]:
    """A contiguous tensor in the shared file, and the parts of the file that it is, in order.

    The tensor itself if it begins a page of the file; else a copy, which the caller keeps alive.
    """
    if tensor.is_contiguous():
        places = native.lib.place_in_file(tensor.data_ptr(), tensor.nbytes)
        if places and places[0][0] % _PAGE_BYTES == 0:
            return tensor, places
    size = max(1, tensor.nbytes)
    pages = torch.from_numpy(native.lib.huge_pages(size))
    copy = pages[: tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    places = native.lib.place_in_file(pages.data_ptr(), tensor.nbytes)
    if tensor.nbytes and not places:
        raise MemoryError(f"no room for {size} bytes in the file of shared memory")
    return copy, places


def window(
    shape: tuple[int, ...], dtype: torch.dtype, parts: Sequence[tuple[int, int, int, int]]
) -> torch.Tensor:
    """A tensor to be read only, whose memory is parts of shared files; between them is nothing.

    Touching what is in no part ends the process.

    Args:
        parts: (file descriptor, offset, bytes, where they go in the tensor); both places are
            multiples of a page.
    """
    size = math.prod(shape) * dtype.itemsize
    pages = torch.from_numpy(native.lib.window(size, list(parts)))
    return pages.view(dtype).view(shape)
