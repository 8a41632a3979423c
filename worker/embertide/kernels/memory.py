"""Memory for large tensors: on huge pages where the system has them.

A gather of random rows from 4 KiB pages misses the translation cache on nearly every row, and the
first touch of each page is a fault. The pages belong to the tensor and go back with it.
"""

from __future__ import annotations

import math

import torch

from embertide.kernels import native

_LEAST_BYTES = 8 << 20
"""Below this, rounding up to huge pages of 2 MiB would cost more than they bring."""


def empty(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """An uninitialised CPU tensor; its memory is touched first by whoever writes it."""
    size = math.prod(shape) * dtype.itemsize
    if native.lib is None or size < _LEAST_BYTES:
        return torch.empty(shape, dtype=dtype)
    pages = torch.from_numpy(native.lib.huge_pages(size))
    return pages[:size].view(dtype).view(shape)


def empty_rows(like: torch.Tensor, rows: int, width: int) -> torch.Tensor:
    """[rows, width] with the dtype and device of another tensor, uninitialised."""
    if like.device.type == "cpu":
        return empty((rows, width), like.dtype)
    return like.new_empty(rows, width)
