"""Memory for large tensors: on huge pages where the system has them.

A gather of random rows from 4 KiB pages misses the translation cache on nearly every row, and the
first touch of each page is a fault. Pages of a tensor that is gone are kept for the next one of
about its size, until another size or :func:`release_idle` is asked for.
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


def empty_as(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """A tensor with the dtype and device of another one, uninitialised."""
    if like.device.type == "cpu":
        return empty(shape, like.dtype)
    return like.new_empty(shape)


def release_idle() -> None:
    """Give pages that no tensor uses back to the system."""
    if native.lib is not None:
        native.lib.release_pages()
