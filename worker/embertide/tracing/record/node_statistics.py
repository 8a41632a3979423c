"""Statistics over all nodes that a module computes itself: ``x.mean(dim=0)``, ``x.norm(dim=0)``.

The result stands for a row of each node while the module runs, so that what is made of it goes on
as rows do; the proof holds that to the module's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from embertide.steps import Statistic

_ARGUMENTS = {
    **dict.fromkeys(("mean", "sum"), ("x", "dim", "keepdim")),
    **dict.fromkeys(("var", "std"), ("x", "dim", "unbiased", "keepdim")),
    **dict.fromkeys(("norm", "linalg_norm", "linalg_vector_norm"), ("x", "p", "dim", "keepdim")),
}
"""Arguments of torch's functions by place, by torch's short name."""
_NORM: Statistic = "norm"
_OF: dict[str, Statistic] = {"mean": "mean", "sum": "sum", "var": "var", "std": "std"}


def statistic_of(
    op: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Statistic, int] | None:
    """The statistic over dimension 0, and what is taken from N; None for any other call."""
    names = _ARGUMENTS.get(op, ())
    if not names or len(args) > len(names):
        return None
    given = dict(zip(names, args, strict=False)) | kwargs
    of, dim, kind = _OF.get(op, _NORM), given.get("dim"), given.get("p", given.get("ord"))
    if isinstance(dim, (tuple, list)) and len(dim) == 1:
        (dim,) = dim
    if type(dim) is not int or given.get("dtype") is not None:
        return None
    if dim not in (0, -given.get("x", args[0]).dim()):
        return None
    if of == "norm" and kind not in ("fro", 2, 2.0, None):
        return None
    if of not in ("var", "std"):
        return of, 0
    correction = given.get("correction")
    return of, int(given.get("unbiased") is not False) if correction is None else correction


def over_nodes(x: Tensor, of: Statistic, correction: int) -> Tensor:
    """The statistic of [N, ...], for each node."""
    match of:
        case "mean":
            found = x.mean(0)
        case "sum":
            found = x.sum(0)
        case "norm":
            found = x.square().sum(0).sqrt()
        case "var":
            found = torch.var(x, 0, correction=correction)
        case "std":
            found = torch.std(x, 0, correction=correction)
    return found.expand_as(x).clone()


SAME_ROWS = ("unsqueeze", "view", "reshape", "repeat", "expand", "expand_as")
"""Shapes of a statistic that are for what follows: it has a row for each node already."""
ON_STATISTICS = frozenset(
    {
        *("add", "__radd__", "sub", "rsub", "__rsub__", "mul", "__rmul__", "div", "__rdiv__"),
        *("true_divide", "pow", "neg", "sqrt", "rsqrt", "square", "abs", "exp", "log", "clamp"),
        *("reciprocal", "maximum", "minimum", "relu", "leaky_relu", "elu", "gelu", "silu"),
        *("sigmoid", "tanh", "softplus", "dropout", "linear", "matmul", "__matmul__"),
        *("layer_norm", "detach", "clone", "to", "float", "double", "contiguous", "type_as"),
    }
)
"""What may be done with statistics alone: the same for each column, or for a row."""


def is_shape_for_rows(op: str, x: Tensor, args: tuple[Any, ...]) -> bool:
    """Whether a call only prepares a statistic to be put beside the rows of nodes."""
    if op not in SAME_ROWS:
        return False
    sizes = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    if op == "unsqueeze":
        return sizes == (0,)
    if op in ("view", "reshape"):
        return list(sizes) in ([1, -1], [1, x.shape[-1]])
    return True
