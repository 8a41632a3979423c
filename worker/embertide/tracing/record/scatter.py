"""torch's own functions that sum tensors of edges up at nodes: ``index_add``, ``scatter_add``.

They add to a tensor that is there: zeros, or rows of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from embertide.models.convs.shared.aggregation import REDUCES
from embertide.tracing.record.constants import uniform
from embertide.tracing.record.edges import Edges
from embertide.tracing.record.roles import SHAPING, is_weight, origin_of, target_of
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.traced import Node, Traced
from embertide.tracing.record.user_code import here, refuse

_WIDER = (*SHAPING, "expand", "repeat", "broadcast_to")
"""Operations that leave or repeat the numbers of an index."""


class _Call(NamedTuple):
    """The arguments of such a function; ``reduce`` is one of torch's names."""

    base: Any
    dim: int
    index: Any
    src: Any
    reduce: str = "sum"
    include_self: bool = True
    alpha: float = 1.0


_ARGUMENTS = {
    "index_add": ("base", "dim", "index", "src", "alpha"),
    "scatter_add": ("base", "dim", "index", "src"),
    "scatter_reduce": ("base", "dim", "index", "src", "reduce", "include_self"),
}
SCATTERS = (*_ARGUMENTS, *(f"{name}_" for name in _ARGUMENTS))
"""By torch's short name; those with ``_`` change the tensor that they add to."""
_LONG = {"input": "base", "self": "base", "source": "src"}


def ends_of(
    edges: Mapping[str, Edges], index: Any, *, repeated: bool = False
) -> tuple[Edges, bool] | None:
    """The edges whose ends an index is, and whether these are their destinations.

    Args:
        repeated: the index may stand in several columns.
    """
    if not isinstance(index, Traced):
        return None
    node = _narrow(index.node) if repeated else index.node
    for into, of in ((True, target_of), (False, origin_of)):
        name = of(node)
        if name in edges:
            return edges[str(name)], into
    return None


def scattered(
    edges: Mapping[str, Edges], scope: Called, op: str, args: Any, kwargs: Mapping[str, Any]
) -> Any:
    """What such a function gives at the ends of edges; None for other indices.

    Raises:
        ModelError: it reduces as no step does, or to a tensor of other rows.
    """
    name = op.removesuffix("_")
    named = {_LONG.get(key, key): value for key, value in kwargs.items()}
    call = _Call(**dict(zip(_ARGUMENTS[name], args, strict=False)), **named)
    ends = ends_of(edges, call.index, repeated=name != "index_add")
    if ends is None:
        return None
    along, into = ends
    nodes = along.destinations if into else along.sources
    if call.dim % call.base.dim() != 0 or len(call.base) != nodes:
        raise refuse(
            here(),
            f"{op} of edges is known to a tensor with a row for each node, {nodes} here, and dim=0",
        )
    total = summed(along, call.src, call.reduce, scope, into=into, what=op)
    total = total if call.alpha == 1 else total * call.alpha
    return _added(call, total, op)


def _added(call: _Call, total: Any, op: str) -> Any:
    """What was there, and what arrives."""
    if _is_zero(call.base) and (REDUCES.get(call.reduce) == "sum" or not call.include_self):
        return total
    if REDUCES.get(call.reduce) == "sum":
        return total + call.base
    raise refuse(
        here(),
        f"{op} with reduce={call.reduce!r} is known to zeros with include_self=False, which gives"
        " zeros to nodes without edges; or use torch_geometric.utils.scatter",
    )


def _is_zero(base: Any) -> bool:
    """Whether it was made as zeros, such as ``torch.zeros_like(h)``."""
    while isinstance(base, Traced | Node):
        node = base.node if isinstance(base, Traced) else base
        if node.op == "clamp":
            return bool(node.kwargs.get("min") == node.kwargs.get("max") == 0.0)
        if node.op not in _WIDER:
            return False
        base = node.args[0]
    return uniform(base) == 0.0


def summed(edges: Edges, src: Any, reduce: str, scope: Called, *, into: bool, what: str) -> Any:
    """[N, ...] tensors of edges, or ones, reduced at one of their ends.

    Args:
        reduce: a name of PyG's or torch's.
        into: at their destinations.
        what: the function, for messages.

    Raises:
        ModelError: no step reduces so.
    """
    kind = REDUCES.get(reduce.removeprefix("a") if reduce in ("amax", "amin") else reduce)
    if kind is None or kind == "var":
        raise refuse(
            here(), f"{what} with reduce={reduce!r} is not known; use sum, mean, max or min"
        )
    counted = _counted(edges, src, into) if kind == "sum" else None
    if counted is not None:
        return counted
    if not into:
        raise refuse(
            here(),
            f"{what} to the sources of edges is known of ones and of the edges' weights; sum up"
            " at edge_index[1], of a relation that reverse names in the manifest",
        )
    return edges.aggregate(src, kind, scope)


def _counted(edges: Edges, src: Any, into: bool) -> Any:
    """The sum of ones or of weights, which is a degree; None for other tensors."""
    if not isinstance(src, Traced):
        number = uniform(src)
        degree = None if number is None else edges.degree("in" if into else "out") * number
    elif is_weight(src.node) and src.numel() == len(src):
        degree = edges.degree("weight" if into else "out_weight", src)
    else:
        return None
    return degree if degree is None or src.dim() == 1 else degree.view(-1, *src.shape[1:])


def counts(edges: Mapping[str, Edges], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """``torch.bincount`` of the ends of edges; None for other numbers."""
    arguments = dict(zip(("input", "weights", "minlength"), args, strict=False)) | dict(kwargs)
    ends = ends_of(edges, arguments["input"])
    if ends is None:
        return None
    along, into = ends
    nodes = along.destinations if into else along.sources
    if arguments.get("minlength") != nodes:
        raise refuse(
            here(),
            "bincount does not know how many nodes there are, and takes the largest number among"
            " the edges; give it minlength=x.size(0)",
        )
    ones = torch.ones(1, dtype=torch.float64)
    weights = arguments.get("weights")
    return _counted(along, ones if weights is None else weights, into)


def _narrow(node: Node) -> Node:
    """The node before any repetitions in columns."""
    while (
        node.op in _WIDER
        and isinstance(node.args[0], Node)
        and len(node.value) == len(node.args[0].value)
    ):
        node = node.args[0]
    return node


def becomes(target: Tensor, value: Traced) -> Traced:
    """A tensor that was changed in place: the same name stands for the new value."""
    with torch._C.DisableTorchFunctionSubclass():
        target.data = value.data.detach()
    if not isinstance(target, Traced):
        target.__class__ = Traced
    traced: Any = target
    traced.node, traced.tape = value.node, value.tape
    return traced  # type: ignore[no-any-return]
