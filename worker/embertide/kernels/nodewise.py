"""Steps that touch each node alone, in place where they can."""

from __future__ import annotations

import torch
from torch.nn import functional

from embertide.kernels import native
from embertide.kernels.memory import empty_as

_CHUNK_VALUES = 1 << 18
"""Values that are gone over several times while they are in the cache."""


def head_dot(x: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """[n, H*F] and [H, F] -> [n, H]: each head's dot product with its vector."""
    heads, per_head = vector.shape
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


def affine_(
    x: torch.Tensor, scale: torch.Tensor | None, shift: torch.Tensor | None
) -> torch.Tensor:
    """x * scale + shift per column, in place."""
    if scale is not None:
        x.mul_(scale)
    if shift is not None:
        x.add_(shift)
    return x


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


def activate_(
    x: torch.Tensor, kind: str, slope: float, weight: torch.Tensor | None = None
) -> torch.Tensor:
    """An element-wise activation, in place."""
    in_place = {
        "relu": lambda: functional.relu_(x),
        "elu": lambda: functional.elu_(x, slope),
        "leaky_relu": lambda: functional.leaky_relu_(x, slope),
        "silu": lambda: functional.silu(x, inplace=True),
        "tanh": x.tanh_,
        "sigmoid": x.sigmoid_,
    }
    if kind in in_place:
        return in_place[kind]()
    # A few rows at a time where torch makes a new tensor.
    for part in x.split(max(1, _CHUNK_VALUES // max(1, x.shape[1]))):
        part.copy_(_activated(part, kind, weight))
    return x


def _activated(x: torch.Tensor, kind: str, weight: torch.Tensor | None) -> torch.Tensor:
    if kind == "prelu":
        assert weight is not None
        return torch.where(x > 0, x, x * weight)
    if kind == "softplus":
        return functional.softplus(x)
    return functional.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")
