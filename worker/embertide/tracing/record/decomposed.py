"""Functions of torch that are recorded as others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from embertide.tracing.record.recurrent import called_gru_cell, called_lstm_cell
from embertide.tracing.record.user_code import here, refuse


def as_numbers(x: Any) -> Any:
    """Truth values as 1 and 0; all else as it is."""
    return torch.where(x, 1.0, 0.0) if isinstance(x, Tensor) and x.dtype is torch.bool else x


# Constants of a tensor's shape.


def _filled(x: Tensor, value: float) -> Tensor:
    return x.clamp(min=value, max=value)


def _constant(x: Any, sizes: list[int], value: float) -> Tensor:
    """One with a row for each node, made of a tensor of edges, or the other way round."""
    if not sizes or sizes[0] not in {*x.tape.counts.values(), *x.tape.ends.lengths()}:
        raise refuse(
            here(),
            f"a new tensor {sizes} is known with a row for each node or edge: x.new_zeros("
            "x.size(0), columns)",
        )
    return torch.full(sizes, value, dtype=x.dtype)


def _new(value: float) -> Callable[..., Tensor]:
    def new(x: Tensor, *size: Any, **_kwargs: Any) -> Tensor:
        sizes = list(size[0]) if len(size) == 1 and isinstance(size[0], Sequence) else list(size)
        if not sizes or sizes[0] != len(x):
            return _constant(x, sizes, value)
        rows = _filled(x if x.dim() == 1 else x.flatten(1)[:, 0], value)
        if len(sizes) == 1:
            return rows
        return rows.view(-1, 1).repeat(1, prod(sizes[1:])).view(sizes)

    return new


# Lengths and products.


def _norm(
    x: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, **_kwargs: Any
) -> Tensor:
    """The length of each row, or of a part of it."""
    if isinstance(dim, (tuple, list)) and len(dim) == 1:
        (dim,) = dim
    if not isinstance(dim, int) or dim % x.dim() == 0 or p not in ("fro", None, 1, 2):
        raise refuse(
            here(), "norm is known with p=1 or 2 and a dim of each row, or with p=2 over all nodes"
        )
    if p == 1:
        return x.abs().sum(dim, keepdim)
    return (x * x).sum(dim, keepdim).sqrt()


def _linalg_norm(
    x: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Tensor:
    return _norm(x, ord, dim, keepdim, **kwargs)


def _cosine(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    lengths = [_norm(x, 2, dim, keepdim=True).clamp(min=eps) for x in (a, b)]
    return (a / lengths[0] * (b / lengths[1])).sum(dim)


def _addmm(bias: Any, x: Tensor, weight: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    result: Tensor = x @ weight * alpha + bias * beta
    return result


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Any = None, eps: Any = None) -> Tensor:
    """torch.nn.RMSNorm over the last dimension of each row."""
    if list(shape) != [x.shape[-1]] or x.dim() < 2:
        raise refuse(here(), "rms_norm is known over the last dimension of each row")
    least = torch.finfo(x.dtype).eps if eps is None else eps
    result: Tensor = x * ((x * x).mean(-1, keepdim=True) + least).rsqrt()
    return result if weight is None else result * weight


def _group_norm(
    x: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_more: Any
) -> Tensor:
    """torch.nn.GroupNorm over groups of a row's columns."""
    if x.dim() != 2:
        raise refuse(here(), "group_norm is known over the columns of [N, columns]")
    apart = x.unflatten(1, (groups, x.shape[1] // groups))
    centred = apart - apart.mean(-1, keepdim=True)
    scaled = centred * ((centred * centred).mean(-1, keepdim=True) + eps).rsqrt()
    result: Tensor = scaled.flatten(1)
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def _nan_to_num(x: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    # Of the numbers that workers compute in; where float64 has another one, the proof shows it.
    most = torch.finfo(torch.float32).max
    x = torch.where(x != x, 0.0 if nan is None else float(nan), x)
    x = torch.where(x == float("inf"), most if posinf is None else float(posinf), x)
    return torch.where(x == float("-inf"), -most if neginf is None else float(neginf), x)


def _cumsum(x: Tensor, dim: int) -> Tensor:
    """Sums of a row's columns, one after another."""
    if dim % x.dim() != x.dim() - 1 or x.dim() < 2:
        raise refuse(here(), "cumsum is known over the last dimension of each row")
    size = x.shape[-1]
    return x @ torch.ones(size, size, dtype=x.dtype).triu()


def _floor_divide(x: Any, other: Any) -> Any:
    """Floor division; the result is an integer if both operands are."""
    whole = not x.is_floating_point() and isinstance(other, int)
    result = torch.floor(x / other)
    return result.long() if whole else result


def _remainder(x: Any, other: Any) -> Any:
    whole = not x.is_floating_point() and isinstance(other, int)
    result = x - torch.floor(x / other) * other
    return result.long() if whole else result


def _bucketize(x: Tensor, boundaries: Any, *, right: bool = False, **_kwargs: Any) -> Tensor:
    """The number of boundaries below each value."""
    each, bounds = x.unsqueeze(-1), torch.as_tensor(boundaries, dtype=torch.float64)
    below = each >= bounds if right else each > bounds
    return torch.where(below, 1.0, 0.0).sum(-1).long()


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_kwargs: Any,
) -> Tensor:
    """torch's scaled_dot_product_attention within each row: over tokens, not over nodes."""
    rows: Any = query
    if query.dim() < 3 or query.shape[0] not in rows.tape.counts.values():
        raise refuse(
            here(),
            "attention over all nodes looks at every pair of nodes, which needs the whole graph at"
            " once; attention over edges is known (TransformerConv, GATConv), and over tokens that"
            " each node has, [N, ..., tokens, columns]",
        )
    if attn_mask is not None or dropout_p or is_causal:
        raise refuse(here(), "attention within a row is known without mask and dropout")
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    shares = torch.softmax((query * factor) @ key.transpose(-2, -1), dim=-1)
    return shares @ value


# Shapes.


def _permute(x: Tensor, *dims: Any) -> Tensor:
    order = list(dims[0]) if len(dims) == 1 and isinstance(dims[0], Sequence) else list(dims)
    order = [dim % x.dim() for dim in order]
    at = list(range(x.dim()))
    for place, dim in enumerate(order):
        other = at.index(dim)
        if other != place:
            x = x.transpose(place, other)
            at[place], at[other] = at[other], at[place]
    return x


def _unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    place = dim % x.dim()
    if place == 0 and x.shape[0] == 2:
        raise refuse(
            here(),
            "edges are taken apart into their ends; that is known of one relation's own edges, with"
            " PyG's functions for self-loops, degrees and sums",
        )
    if place == 0:
        raise refuse(here(), "rows are taken one by one, which are other nodes in another graph")
    ahead: list[Any] = [slice(None)] * place
    return tuple(x[(*ahead, at)] for at in range(x.shape[place]))


def _interleaved(x: Tensor, times: Any, dim: Any = None, **_kwargs: Any) -> Tensor:
    if not isinstance(times, int) or not isinstance(dim, int) or dim % x.dim() != x.dim() - 1:
        raise refuse(here(), "repeat_interleave is known with a number, over the last dimension")
    whole = x.unsqueeze(-1).repeat(*[1] * x.dim(), times)
    return whole.flatten(-2)


def _tile(x: Tensor, *dims: Any) -> Tensor:
    return x.repeat(*dims)


def _own(dim: Any) -> Any:
    """A dimension of each row's own."""
    if dim is None:
        raise refuse(
            here(),
            "any and all over a whole tensor look at all rows at once; give a dim of each row, or"
            " decide by an argument of the module",
        )
    return dim


def _columns(x: Tensor, dim: int, index: Any) -> Tensor:
    """Columns by their numbers."""
    if dim % x.dim() != 1 or type(index) is not Tensor:
        raise refuse(
            here(),
            "rows are picked out by number, which are other nodes in another graph; return"
            " all rows",
        )
    return torch.cat([x[:, at : at + 1] for at in index.tolist()], 1)


DECOMPOSED: dict[str, Callable[..., Any]] = {
    "zeros_like": lambda x, **_: _filled(x, 0.0),
    "ones_like": lambda x, **_: _filled(x, 1.0),
    "full_like": lambda x, value, **_: _filled(x, float(value)),
    "new_zeros": _new(0.0),
    "new_ones": _new(1.0),
    "masked_fill": lambda x, mask, value: torch.where(mask, value, x),
    "norm": _norm,
    **dict.fromkeys(("linalg_norm", "linalg_vector_norm"), _linalg_norm),
    "cosine_similarity": _cosine,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
    "addcmul": lambda x, a, b, value=1: x + a * b * value,
    "lerp": lambda x, end, weight: x + (end - x) * weight,
    "gru_cell": called_gru_cell,
    "lstm_cell": called_lstm_cell,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "nan_to_num": _nan_to_num,
    "cumsum": _cumsum,
    **dict.fromkeys(("floor_divide", "__floordiv__"), _floor_divide),
    **dict.fromkeys(("remainder", "__mod__"), _remainder),
    "bucketize": _bucketize,
    "glu": lambda x, dim=-1: x.chunk(2, dim)[0] * x.chunk(2, dim)[1].sigmoid(),
    "clamp_min": lambda x, least: x.clamp(min=least),
    "clamp_max": lambda x, most: x.clamp(max=most),
    "_threshold": lambda x, least, value: torch.where(x > least, x, value),
    "permute": _permute,
    **dict.fromkeys(("swapaxes", "swapdims"), lambda x, a, b: x.transpose(a, b)),
    "unbind": _unbind,
    "repeat_interleave": _interleaved,
    "tile": _tile,
    "index_select": _columns,
    **dict.fromkeys(("hstack", "column_stack"), lambda parts: torch.cat(tuple(parts), 1)),
    "any": lambda x, dim=None, keepdim=False: as_numbers(x).amax(_own(dim), keepdim) > 0,
    "all": lambda x, dim=None, keepdim=False: as_numbers(x).amin(_own(dim), keepdim) > 0,
}
"""By torch's short name: an equivalent of other functions, for rows of nodes and of edges."""

OF_NUMBERS = (
    *("add", "sub", "mul", "div", "true_divide", "sum", "mean", "matmul", "linear"),
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__"),
    *("float", "double", "to", "type_as"),
)
"""Functions that take truth values as 1 and 0."""
