"""Reductions over all rows that a module computes itself: ``x.mean(dim=0)``, ``w / w.max()``.

What a call reduces, what it gives, and what may be done with the result. It stands for a row of
each node while the module runs, so that what is made of it goes on as rows do; the proof compares
that with the module's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from embertide.program.steps import Statistic

_DIM, _NORM_DIM = ("x", "dim", "keepdim"), ("x", "p", "dim", "keepdim")
_ARGUMENTS = {
    **dict.fromkeys(("mean", "sum", "max", "min", "amax", "amin"), _DIM),
    **dict.fromkeys(("var", "std"), ("x", "dim", "unbiased", "keepdim")),
    **dict.fromkeys(("norm", "linalg_norm", "linalg_vector_norm"), _NORM_DIM),
}
"""Arguments of torch's functions by place, by torch's short name."""
_OF: dict[str, Statistic] = {
    **{"mean": "mean", "sum": "sum", "var": "var", "std": "std"},
    **{"max": "max", "amax": "max", "min": "min", "amin": "min"},
    **{"norm": "norm", "linalg_norm": "norm", "linalg_vector_norm": "norm"},
}


class Reduction(NamedTuple):
    """A call that reduces all rows.

    Attributes:
        of: the statistic.
        every: of all values, and not of each column.
        correction: what is taken from the number of values that a sum of squares is divided by.
        places: torch also gives where the largest or smallest values are.
    """

    of: Statistic
    every: bool = False
    correction: int = 0
    places: bool = False


def reduction_of(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reduction | None:
    """The reduction over all rows that a call of torch's is; None for any other call."""
    names = _ARGUMENTS.get(op, ())
    if not names or len(args) > len(names):
        return None
    passed = dict(zip(names, args, strict=False)) | kwargs
    x: Any = passed.get("x", passed.get("input"))
    if passed.get("dtype") is not None or "other" in passed:
        return None
    unbiased, dim = passed.get("unbiased"), passed.get("dim")
    if type(dim) is bool:
        # x.std(False)
        unbiased, dim = dim, None
    over = _over(dim, x.dim())
    if over is None:
        return None
    every = over == "all"
    if not _is_known_norm(op, passed.get("p", passed.get("ord")), every, x):
        return None
    correction = 0
    if op in ("var", "std"):
        stated = passed.get("correction")
        correction = int(unbiased is not False) if stated is None else int(stated)
    return Reduction(_OF[op], every, correction, op in ("max", "min") and not every)


def _over(dim: Any, dims: int) -> str | None:
    """Whether it goes over ``all`` values or the ``rows``; None: over other dimensions."""
    if dim is None:
        return "all"
    several = list(dim) if isinstance(dim, (tuple, list)) else [dim]
    if not all(type(number) is int for number in several):
        return None
    places = {number % max(1, dims) for number in several}
    if places == {0}:
        return "rows"
    return "all" if places == set(range(dims)) else None


def _is_known_norm(op: str, kind: Any, every: bool, x: Tensor) -> bool:
    """Whether a norm is the root of the sum of squares; all other reductions are known."""
    if _OF[op] != "norm":
        return True
    # Without a dim, linalg.norm(ord=2) is the largest singular value of a matrix.
    spectral = op == "linalg_norm" and every and kind is not None and x.dim() > 1
    return kind in ("fro", 2, 2.0, None) and not spectral


def over_nodes(x: Tensor, of: Statistic, correction: int, count: Tensor | None = None) -> Tensor:
    """The statistic of [N, ...], for each node.

    Args:
        count: [N, 1] of max and min: rows where it is 0 do not count.
    """
    match of:
        case "mean":
            statistic = x.mean(0)
        case "sum":
            statistic = x.sum(0)
        case "norm":
            statistic = x.square().sum(0).sqrt()
        case "var":
            statistic = torch.var(x, 0, correction=correction)
        case "std":
            statistic = torch.std(x, 0, correction=correction)
        case "max" | "min":
            counted = x if count is None else x[count.flatten() != 0]
            nothing = x.new_full((1, *x.shape[1:]), -torch.inf if of == "max" else torch.inf)
            counted = counted if len(counted) else nothing
            statistic = counted.amax(0) if of == "max" else counted.amin(0)
    return statistic.expand_as(x).clone()


SAME_ROWS = ("unsqueeze", "squeeze", "view", "reshape", "repeat", "expand", "expand_as")
"""Shapes of a statistic that are for what follows: it has a row for each node already."""
ON_STATISTICS = frozenset(
    {
        *("add", "__radd__", "sub", "rsub", "__rsub__", "mul", "__rmul__", "div", "__rdiv__"),
        *("true_divide", "pow", "neg", "sqrt", "rsqrt", "square", "abs", "exp", "log", "clamp"),
        *("reciprocal", "maximum", "minimum", "relu", "leaky_relu", "elu", "gelu", "silu"),
        *("sigmoid", "tanh", "softplus", "dropout", "linear", "matmul", "__matmul__"),
        *("layer_norm", "detach", "clone", "to", "float", "double", "contiguous", "type_as"),
        *("clamp_min", "clamp_max", "where", "eq", "ne", "lt", "le", "gt", "ge", "log1p"),
    }
)
"""What may be done with statistics alone: the same for each column, or for a row."""
BESIDE_ROWS = frozenset(
    {
        *("add", "__add__", "__radd__", "sub", "subtract", "__sub__", "rsub", "__rsub__"),
        *("mul", "multiply", "__mul__", "__rmul__", "div", "divide", "true_divide"),
        *("__truediv__", "__rdiv__", "pow", "maximum", "minimum", "where", "masked_fill"),
        *("eq", "__eq__", "ne", "__ne__", "lt", "le", "gt", "ge", "add_", "sub_", "mul_", "div_"),
    }
)
"""What puts a statistic beside rows of nodes or of edges, value by value."""


def is_shape_for_rows(op: str, x: Tensor, args: tuple[Any, ...]) -> bool:
    """Whether a call only prepares a statistic to be put beside the rows of nodes."""
    if op not in SAME_ROWS:
        return False
    sizes = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    if op == "unsqueeze":
        return sizes == (0,)
    if op == "squeeze":
        return sizes in ((), (0,))
    if op in ("view", "reshape"):
        return list(sizes) in ([1, -1], [1, x.shape[-1]]) or x[0].numel() == 1
    return True
