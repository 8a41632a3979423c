"""The operations of `ops`: torch's, each kept from touching dimension 0, the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from embertide.errors import InputError


class RowError(ValueError):
    """An operation would mix rows."""


Sizes = Sequence[int]


def _within(x: Tensor, dim: Any) -> int:
    """A dimension of a row, counted from the front."""
    if not isinstance(dim, int):
        raise RowError(f"dim is {dim!r}, but must be one number")
    place = dim + x.dim() if dim < 0 else dim
    if not 1 <= place < x.dim():
        raise RowError(f"dim={dim} of {x.dim()} is none of a row's own")
    return place


def _reshape(x: Tensor, sizes: Sizes) -> Tensor:
    # torch does not infer -1 of a tensor without rows, which a worker may have.
    known = prod(size for size in sizes if size != -1)
    sizes = [prod(x.shape[1:]) // known if size == -1 else size for size in sizes]
    return x.reshape(len(x), *sizes)


def _expand(x: Tensor, sizes: Sizes) -> Tensor:
    return x.expand(len(x), *sizes)


def _flatten(x: Tensor) -> Tensor:
    return x.flatten(1)


def _unsqueeze(x: Tensor, dim: int) -> Tensor:
    place = dim + x.dim() + 1 if dim < 0 else dim
    if not 1 <= place <= x.dim():
        raise RowError(f"dim={dim} is before the rows")
    return x.unsqueeze(place)


def _squeeze(x: Tensor, dim: int) -> Tensor:
    return x.squeeze(_within(x, dim))


def _transpose(x: Tensor, a: int, b: int) -> Tensor:
    return x.transpose(_within(x, a), _within(x, b))


def _narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x.narrow(_within(x, dim), start, length)


def _select(x: Tensor, dim: int, index: int) -> Tensor:
    return x.select(_within(x, dim), index)


def _cat(parts: list[Tensor], dim: int) -> Tensor:
    return torch.cat(parts, _within(parts[0], dim))


def _stack(parts: list[Tensor], dim: int) -> Tensor:
    _unsqueeze(parts[0], dim)
    return torch.stack(parts, dim)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if x.dim() < 2:
        raise RowError("a product needs a row's columns")
    return functional.linear(x, weight, bias)


def _einsum(equation: str, *parts: Tensor) -> Tensor:
    """The first letter of the result is that of the rows, and never summed."""
    terms, _, result = equation.replace(" ", "").partition("->")
    row = result[:1]
    places = [term.find(row) for term in terms.split(",")]
    if not row or "." in equation or not {-1, 0} >= set(places) or 0 not in places:
        raise RowError(f"{equation!r} must have the rows' letter first in the result, and in front")
    return torch.einsum(equation, *parts)


def _layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _normalize(x: Tensor, dim: int, p: float = 2.0, eps: float = 1e-12) -> Tensor:
    return functional.normalize(x, p, _within(x, dim), eps)


def _softmax(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x, _within(x, dim))


def _log_softmax(x: Tensor, dim: int) -> Tensor:
    return torch.log_softmax(x, _within(x, dim))


def _reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reduce(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
        return function(x, dim=_within(x, dim), keepdim=keepdim)

    return reduce


def _binary(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def apply(a: Any, b: Any) -> Tensor:
        like = a if isinstance(a, Tensor) else b
        a, b = (v if isinstance(v, Tensor) else _number(v).to(like) for v in (a, b))
        return function(a, b)

    return apply


def _number(value: float) -> Tensor:
    """A number as it is written, not rounded to torch's default type."""
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _clamp(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    return torch.clamp(x, min, max)


def _where(condition: Tensor, a: Any, b: Any) -> Tensor:
    return torch.where(condition, a, b)


def _repeat(value: Tensor, like: Tensor) -> Tensor:
    """A parameter as every row of a tensor that has as many rows as another one."""
    return value.expand(len(like), *value.shape)


def _same(x: Tensor) -> Tensor:
    return x


def _take(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a parameter by their numbers, whole ones in floating point.

    Raises:
        InputError: there is no row of such a number.
    """
    rows = index.long()
    if rows.numel():
        low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= len(table):
            raise InputError(
                f"a category is {low if low < 0 else high}, but the model knows 0 to"
                f" {len(table) - 1}; clean the features, or train the model again with it"
            )
    return table[rows]


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "same": _same,
    # Element by element.
    **{
        name: getattr(torch, name)
        for name in (
            "abs", "cos", "erf", "exp", "expm1", "log", "log1p", "neg", "reciprocal", "rsqrt",
            "sigmoid", "sign", "sin", "sqrt", "square", "tanh", "logical_not", "floor", "trunc",
        )
    },
    **{
        name: getattr(functional, name)
        for name in (
            "celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu",
            "logsigmoid", "mish", "prelu", "relu", "relu6", "selu", "silu", "softplus", "softsign",
            "tanhshrink",
        )
    },
    **{
        name: _binary(getattr(torch, name))
        for name in (
            "add", "div", "eq", "ge", "gt", "le", "logical_and", "logical_or", "lt", "maximum",
            "minimum", "mul", "ne", "pow", "sub",
        )
    },
    "clamp": _clamp,
    "where": _where,
    # Within a row.
    **{
        name: _reduction(getattr(torch, name))
        for name in ("amax", "amin", "logsumexp", "mean", "prod", "std", "sum", "var")
    },
    "einsum": _einsum,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "log_softmax": _log_softmax,
    "normalize": _normalize,
    "softmax": _softmax,
    "take": _take,
    # Shapes; sizes are those of a row.
    "cat": _cat,
    "expand": _expand,
    "flatten": _flatten,
    "narrow": _narrow,
    "repeat": _repeat,
    "reshape": _reshape,
    "select": _select,
    "squeeze": _squeeze,
    "stack": _stack,
    "transpose": _transpose,
    "unsqueeze": _unsqueeze,
}  # fmt: skip
"""By the names that lines use: torch's own."""
