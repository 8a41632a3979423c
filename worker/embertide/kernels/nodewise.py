"""Steps that touch each node alone, in place where they can."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from embertide.kernels import native
from embertide.kernels.ghosts import changes_first, is_ghost
from embertide.kernels.memory import empty_as

_CHUNK_VALUES = 1 << 18
"""Values that are gone over several times while they are in the cache."""
_VECTOR_VALUES = 64
"""A multiple of what torch goes over at once: two vectors of the widest registers."""
_THREAD_VALUES = 1 << 14
"""Values of which torch gives no part to another thread, whichever the function is."""
_SHARED_VALUES = 1 << 15
"""Values for each thread, of which torch gives each so many."""


def head_dot(x: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """[n, H*F] and [H, F] -> [n, H]: each head's dot product with its vector."""
    heads, per_head = vector.shape
    if is_ghost(x):
        return x.new_empty(x.shape[0], heads)
    if native.lib is not None and x.device.type == "cpu" and x.dtype == torch.float32:
        out = empty_as(x, len(x), heads)
        native.lib.head_dots(out, x, vector.contiguous())
        return out
    spread = x.new_zeros(heads * per_head, heads)
    for head in range(heads):
        spread[head * per_head : (head + 1) * per_head, head] = vector[head]
    return x @ spread


def pair_dot(a: torch.Tensor, b: torch.Tensor, heads: int) -> torch.Tensor:
    """[e, H*F] twice -> [e, H]: the dot product of both ends, per head."""
    return (a * b).reshape(len(a), heads, a.shape[1] // heads).sum(2)


@changes_first
def affine_(
    x: torch.Tensor, scale: torch.Tensor | None, shift: torch.Tensor | None
) -> torch.Tensor:
    """x * scale + shift per column, in place."""
    if scale is not None:
        x.mul_(scale)
    if shift is not None:
        x.add_(shift)
    return x


@changes_first
def add_times_(x: torch.Tensor, other: torch.Tensor, times: float) -> torch.Tensor:
    """x + other * times, in place; every product is rounded before it is added.

    torch may or may not round it, depending on where a value stands.
    """
    if times == 1.0:
        return x.add_(other)
    rows = max(1, _CHUNK_VALUES // max(1, x.shape[1]))
    for part, added in zip(x.split(rows), other.split(rows), strict=True):
        part.add_(added * times)
    return x


@changes_first
def center_(
    x: torch.Tensor, mean: torch.Tensor, factor: torch.Tensor, shift: torch.Tensor | None
) -> torch.Tensor:
    """(x - mean) * factor + shift per column, in place.

    The difference comes first, so that nothing cancels, and what a mean loses when it becomes as
    narrow as ``x`` is made good by the shift.

    Args:
        mean, factor: [d] or [1] float64.
    """
    narrow = mean.to(x.dtype)
    rest = (narrow.to(mean.dtype) - mean) * factor
    last = (rest if shift is None else rest + shift).to(x.dtype)
    times = factor.to(x.dtype)
    for part in x.split(max(1, _CHUNK_VALUES // max(1, x.shape[1]))):
        part.sub_(narrow).mul_(times).add_(last)
    return x


@changes_first
def activate_(
    x: torch.Tensor, kind: str, slope: float, weight: torch.Tensor | None = None
) -> torch.Tensor:
    """An element-wise activation, in place.

    On a CPU each value has the same bits wherever it stands, but for elu's.
    """
    if kind == "relu":
        return functional.relu_(x)
    if kind == "leaky_relu":
        return functional.leaky_relu_(x, slope)
    if kind == "elu":
        return functional.elu_(x, slope)
    if kind == "prelu":
        assert weight is not None
        # A few rows at a time, since torch makes a new tensor.
        for part in x.split(max(1, _CHUNK_VALUES // max(1, x.shape[1]))):
            part.copy_(torch.where(part > 0, part, part * weight))
        return x
    return _change_(x, _FUNCTIONS[kind])


Function = Callable[[torch.Tensor], torch.Tensor]
_FUNCTIONS: dict[str, Function] = {
    "silu": lambda x: functional.silu(x, inplace=True),
    "tanh": torch.tanh_,
    "sigmoid": torch.sigmoid_,
    "softplus": functional.softplus,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}
"""Functions of torch, in place where it can."""


def _change_(x: torch.Tensor, function: Function) -> torch.Tensor:
    """A function of torch, in place, which never goes over a part of a vector of values.

    torch rounds what remains of its vectors in another way, at the end of each thread's part too.
    So it gets as many values at a time as its threads share in whole vectors, and what remains
    in the end is put into a vector.
    """
    flat = x.contiguous().view(-1)
    count = len(flat) - len(flat) % _VECTOR_VALUES
    at, shared = 0, torch.get_num_threads() * _SHARED_VALUES
    while at < count:
        stop = at + shared if count - at >= shared else min(at + _THREAD_VALUES, count)
        _put(flat[at:stop], function)
        at = stop
    if rest := len(flat) - count:
        vector = flat.new_zeros(_VECTOR_VALUES)
        vector[:rest] = flat[count:]
        _put(vector, function)
        flat[count:] = vector[:rest]
    return x if flat.data_ptr() == x.data_ptr() else x.copy_(flat.view(x.shape))


def _put(values: torch.Tensor, function: Function) -> None:
    changed = function(values)
    if changed is not values:
        values.copy_(changed)
