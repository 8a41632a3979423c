"""Functions of torch that are recorded as others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from embertide.tracing.record.recurrent import called_gru_cell, called_lstm_cell
from embertide.tracing.record.traced import Traced, is_truth
from embertide.tracing.record.user_code import here, refuse


def as_numbers(x: Any) -> Any:
    """Truth values as 1 and 0; all else as it is."""
    return torch.where(x, 1.0, 0.0) if isinstance(x, Traced) and is_truth(x.node) else x


# Constants of a tensor's shape.


def _filled(x: Tensor, value: float) -> Tensor:
    return x.clamp(min=value, max=value)


def _typed(x: Tensor, dtype: Any) -> Tensor:
    return x if dtype in (None, x.dtype) else x.to(dtype)


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
    if dropout_p:
        raise refuse(here(), "attention within a row is known without dropout; pass dropout_p=0")
    if is_causal:
        sizes = query.shape[-2], key.shape[-2]
        attn_mask = torch.ones(sizes, dtype=torch.bool).tril()
    kept = attn_mask is not None and attn_mask.dtype is torch.bool
    masks = [] if attn_mask is None else [~attn_mask if kept else attn_mask]
    return attend_within(query, key, value, masks, scale)[0]


def attend_within(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    masks: Sequence[Tensor],
    scale: float | None = None,
    *,
    whole: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention over tokens of each row, and its shares.

    Args:
        masks: pairs of tokens to leave out (true), or what is added to their scores.
        whole: whether the shares of a token that looks at none are asked for, which are NaN.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    for mask in masks:
        truth = mask.dtype is torch.bool
        scores = torch.where(mask, -torch.inf, scores) if truth else scores + mask
    shares = torch.softmax(scores, dim=-1)
    if masks and not whole:
        # A token that looks at none gets zeros.
        some = scores.amax(-1, keepdim=True) > -torch.inf
        shares = torch.where(some, shares, 0.0)
    return shares @ value, shares


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


def _place(x: Tensor, dim: Any, keepdim: bool, extreme: str) -> Tensor:
    """The number of the first of a row's values that is the largest, or the smallest."""
    place = _own(dim) % x.dim()
    if place == 0:
        raise refuse(here(), "argmax and argmin over all rows give a node's number; keep all rows")
    size = x.shape[place]
    numbers = torch.arange(size, dtype=torch.float64).view(-1, *[1] * (x.dim() - place - 1))
    there = x == getattr(x, extreme)(place, keepdim=True)
    return torch.where(there, numbers, float(size)).amin(place, keepdim).long()


def _distances(x: Tensor, other: Tensor, p: float = 2.0, **_kwargs: Any) -> Tensor:
    """torch.cdist of rows and a table of the module's own."""
    if isinstance(other, Traced) or not isinstance(x, Traced) or x.dim() != 2 or p != 2:
        raise refuse(
            here(),
            "cdist of nodes and nodes looks at every pair of them, which needs the whole graph at"
            " once; known is that of nodes and a table of the module's own, with p=2: make nearest"
            " neighbours before, as the job's edges or a relation of it",
        )
    return (x.unsqueeze(1) - other).square().sum(-1).sqrt()


def _own(dim: Any) -> Any:
    """A dimension of each row's own."""
    if dim is None:
        raise refuse(
            here(),
            "any and all over a whole tensor look at all rows at once; give a dim of each row, or"
            " decide by an argument of the module",
        )
    return dim


def _gathered(x: Any, dim: int, index: Any, **_kwargs: Any) -> Tensor:
    """torch.gather within a row: each place takes the value whose number it has."""
    place, whole = dim % x.dim(), isinstance(index, Traced)
    if place == 0 or not whole or x.dim() != index.dim() or x.node.of != index.node.of:
        raise refuse(
            here(),
            "values are gathered by numbers, which is known within each node's own row: of a tensor"
            " [N, steps, ...] with dim=1 and numbers that are computed for each node",
        )
    for at in range(1, x.dim()):
        if at != place and index.shape[at] < x.shape[at]:
            x = x.narrow(at, 0, index.shape[at])
    choices = x.transpose(place, -1).unsqueeze(-2).transpose(place, -2)
    chosen = index.unsqueeze(-1) == torch.arange(x.shape[place])
    return torch.where(chosen, choices, 0.0).sum(-1)


def _taken_along(x: Any, index: Any, dim: int) -> Tensor:
    """The same with numbers for all of the other dimensions, where they have one."""
    sizes = [
        own if at == dim % x.dim() or own > 1 else size
        for at, (own, size) in enumerate(zip(index.shape, x.shape, strict=True))
    ]
    return _gathered(x, dim, index.expand(sizes))


def at_steps(x: Any, index: Any) -> Tensor:
    """[N, ...] of [N, steps, ...], each node's own step: ``x[torch.arange(len(x)), index]``."""
    wide = index.view(-1, 1, *[1] * (x.dim() - 2)).expand(-1, 1, *x.shape[2:])
    result: Tensor = _gathered(x, 1, wide).squeeze(1)
    return result


def _bag(
    index: Any,
    table: Tensor,
    offsets: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """torch's embedding_bag of the numbers in a row."""
    del norm_type, scale_grad_by_freq, sparse, include_last_offset
    if offsets is not None or index.dim() != 2:
        raise refuse(here(), "embedding_bag is known of [N, numbers], without offsets")
    rows: Any = torch.nn.functional.embedding(index, table, max_norm=max_norm)
    if padding_idx is None:
        kept: Any = torch.ones(1, index.shape[1], dtype=torch.bool)
    else:
        kept = index != padding_idx % len(table)
    if mode == "max":
        most = torch.where(kept.unsqueeze(-1), rows, -torch.inf).amax(1)
        return torch.where(most > -torch.inf, most, 0.0)
    counts = torch.where(kept, 1.0, 0.0)
    if per_sample_weights is not None:
        counts = per_sample_weights * counts
    total: Tensor = (rows * counts.unsqueeze(-1)).sum(1)
    return total if mode == "sum" else total / counts.sum(1, keepdim=True).clamp(min=1.0)


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
    "zeros_like": lambda x, dtype=None, **_: _typed(_filled(x, 0.0), dtype),
    "ones_like": lambda x, dtype=None, **_: _typed(_filled(x, 1.0), dtype),
    "full_like": lambda x, value, **_: _filled(x, float(value)),
    "new_zeros": _new(0.0),
    "new_ones": _new(1.0),
    "masked_fill": lambda x, mask, value: torch.where(mask, value, x),
    "norm": _norm,
    **dict.fromkeys(("linalg_norm", "linalg_vector_norm"), _linalg_norm),
    "cosine_similarity": _cosine,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
    "gather": _gathered,
    "take_along_dim": _taken_along,
    "embedding_bag": _bag,
    "narrow": lambda x, dim, start, length: torch.split(
        x, [n for n in (start, length, x.shape[dim] - start - length) if n], dim
    )[int(start > 0)],
    "argmax": lambda x, dim=None, keepdim=False: _place(x, dim, keepdim, "amax"),
    "argmin": lambda x, dim=None, keepdim=False: _place(x, dim, keepdim, "amin"),
    "cdist": _distances,
    "count_nonzero": lambda x, dim=None: (x != 0).sum(_own(dim)),
    "isnan": lambda x: x != x,
    "isinf": lambda x: x.abs() == float("inf"),
    "isfinite": lambda x: x.abs() < float("inf"),
    "addcmul": lambda x, a, b, value=1: x + a * b * value,
    "lerp": lambda x, end, weight: x + (end - x) * weight,
    "gru_cell": called_gru_cell,
    "lstm_cell": called_lstm_cell,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "bool": lambda x: x != 0,
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

OF_TRUTH = (
    *("logical_and", "logical_or", "logical_not", "logical_xor", "__and__", "__or__", "__xor__"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "__invert__", "__rand__"),
    *("__ror__", "__rxor__", "where", "any", "all", "masked_fill", "__getitem__", "item"),
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"),
    *("expand", "expand_as", "repeat", "transpose", "permute", "swapaxes", "swapdims", "movedim"),
    *("cat", "concat", "concatenate", "stack", "chunk", "split", "unbind", "contiguous", "clone"),
    *("detach", "data", "cpu", "__bool__", "tolist", "numpy", "nonzero", "argwhere", "take"),
    *("unique", "masked_select", "__float__", "__int__", "__index__", "__contains__", "T", "mT"),
    *("t", "select", "narrow", "to_dense", "index_select", "gather", "take_along_dim", "flip"),
)
"""Functions that leave truth values what they are, or read them; all others take 1 and 0."""
