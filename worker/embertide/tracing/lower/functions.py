"""What each function of torch is as steps, with torch's own arguments.

A handler gets the node that called the function and its arguments, in which nodes stand as the
values that they have in the program.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor

from embertide.errors import ModelError
from embertide.tracing.lower import arithmetic as do
from embertide.tracing.lower import layers
from embertide.tracing.lower.convs import lower_conv
from embertide.tracing.lower.edge_sums import lower_aggregate, lower_degree
from embertide.tracing.lower.graph_norms import (
    lower_attend_all,
    lower_graph_norm,
    lower_over_nodes,
)
from embertide.tracing.lower.line_names import BINARY, REFLECTED, UNARY
from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.merged_softmax import lower_merged
from embertide.tracing.lower.row_wise import lower_row_wise
from embertide.tracing.lower.unsupported import unsupported
from embertide.tracing.lower.values import NodeRows, Pending, Pieces, Stack, Value
from embertide.tracing.lower.whole_layers import lower_jumping, lower_layer
from embertide.tracing.record.traced import Node, is_truth
from embertide.tracing.record.user_code import refuse

Handler = Callable[..., Any]


def lower_function(low: Lowering, node: Node) -> Any:
    """The value of one node.

    Raises:
        ModelError: the function is not known, or not with these arguments.
    """
    if node.op == "aggregate":
        return lower_aggregate(low, *node.args)
    if node.op == "merge":
        return lower_merged(low, *node.args)
    if node.op == "degree":
        return lower_degree(low, *node.args)
    if node.op == "conv":
        return lower_conv(low, node, *node.args)
    if node.op == "layer":
        return lower_layer(low, node, *node.args)
    if node.op == "jumping":
        return lower_jumping(low, node, *node.args)
    if node.op == "graph_norm":
        return lower_graph_norm(low, node, *node.args)
    if node.op == "over_nodes":
        return lower_over_nodes(low, node, *node.args)
    if node.op == "attend_all":
        return lower_attend_all(low, *node.args)
    if node.op == "item":
        return _item(low, node)
    if node.op in ("chunk", "split"):
        return Pieces()
    try:
        of_lines = _is_column(node) or is_truth(node) or any(map(is_truth, node.sources()))
        return lower_row_wise(low, node) if of_lines else _native(low, node)
    except ModelError:
        # The function has no step, or none for these arguments.
        several = isinstance(node.value, tuple)
        try:
            result = lower_row_wise(low, node) if not several else Pieces()
        except ModelError as error:
            other = error
        else:
            return result
        if node.op not in HANDLERS:
            raise other from None
        raise


def _is_column(node: Node) -> bool:
    """Whether a function makes one number for each row, from tensors like degrees that have one.

    These are row-wise steps, which no grid cuts into slices of columns.
    """
    values = [node.value, *(source.value for source in node.sources())]
    known = node.op in BINARY or node.op in REFLECTED or node.op in UNARY
    return known and all(
        isinstance(value, Tensor) and value.dim() > 0 and value.numel() == len(value)
        for value in values
    )


def _native(low: Lowering, node: Node) -> Any:
    """The value of a function that has its own step."""
    handler = HANDLERS.get(node.op)
    if handler is None or _is_over_nodes(low, node):
        raise unsupported(node)
    args = [_value(low, arg) for arg in node.args]
    kwargs = {name: _value(low, arg) for name, arg in node.kwargs.items()}
    try:
        bound = inspect.signature(handler).bind(low, node, *args, **kwargs)
    except TypeError:
        raise refuse(
            node.where, f"{node.op} with these arguments is not known; use its simplest form"
        ) from None
    return handler(*bound.args, **bound.kwargs)


def _value(low: Lowering, argument: Any) -> Any:
    if isinstance(argument, Node):
        if argument.edges:
            raise refuse(
                argument.where,
                "a tensor of the edges is used among those of the nodes; sum it up first",
            )
        value = low.values[argument]
        return low.rows(argument, value) if isinstance(value, Pending) else value
    if type(argument) in (tuple, list):
        return [_value(low, item) for item in argument]
    return argument


def _is_over_nodes(low: Lowering, node: Node) -> bool:
    """Whether a reduction runs over the nodes, and so needs all of them at once."""
    if node.op not in ("mean", "sum", "max", "amax", "min", "amin"):
        return False
    x = node.args[0]
    if not isinstance(x, Node) or isinstance(low.values.get(x), Stack):
        return False
    over = isinstance(node.value, Tensor) and node.value.shape[:1] != x.value.shape[:1]
    if over:
        raise refuse(
            node.where,
            f"{node.op} over all nodes needs the whole graph at once; known are mean, sum, max,"
            " min, var, std and norm, and PyG's norms over all nodes (GraphNorm, PairNorm, ...)",
        )
    return False


def _item(low: Lowering, node: Node) -> Any:
    whole, place = node.args
    values = low.values[whole]
    if isinstance(values, list) and place < len(values):
        return values[place]
    return lower_row_wise(low, node)


# What leaves the numbers of a row as they are.


def _same(_l: Lowering, node: Node, x: Value, *_args: Any, **_kwargs: Any) -> Value:
    if node.value.is_floating_point() != node.args[0].value.is_floating_point():
        raise refuse(node.where, f"{node.op} to whole numbers is known of categories")
    return x


def _reshape(low: Lowering, node: Node, x: Value, *_args: Any, **_kwargs: Any) -> Value:
    rows = low.rows(node, x)
    if (
        node.value.shape[:1] != node.args[0].value.shape[:1]
        or node.value.numel() != node.args[0].value.numel()
    ):
        raise refuse(
            node.where,
            f"{node.op} gives {list(node.value.shape)}, which mixes the rows of nodes; keep the"
            " nodes in the first dimension (no attention and no sequence over all nodes)",
        )
    return rows


def _dropout(
    _l: Lowering, node: Node, x: Value, p: float = 0.5, training: bool = True, *_more: Any
) -> Value:
    if training and p > 0:
        raise refuse(
            node.where,
            "dropout stays active in eval mode: functional.dropout drops by default;"
            " write functional.dropout(x, p, training=self.training)",
        )
    return x


def _getitem(low: Lowering, node: Node, x: Value, key: Any) -> Value:
    rows, shape = low.rows(node, x), node.args[0].value.shape
    keys = key if isinstance(key, list) else [key]
    first = keys[0] if keys else slice(None)
    whole = isinstance(first, slice) and first.indices(shape[0]) == (0, shape[0], 1)
    if whole and node.value.shape == shape:
        return rows
    if first is Ellipsis or whole:
        raise refuse(
            node.where, "columns are cut out of a tensor; use two Linear layers, or torch.chunk"
        )
    raise refuse(
        node.where,
        "rows are picked out by number, which are other nodes in another graph; return all rows",
    )


# Several tensors.


def _cat(low: Lowering, node: Node, tensors: Sequence[Any], dim: int = 0) -> NodeRows:
    if dim % node.value.dim() != 1:
        raise refuse(node.where, f"cat over dimension {dim}; columns (dim=1) can be joined")
    whole = _whole_input(low, node)
    if whole is not None:
        return whole
    return NodeRows(low.b.concat(tuple(low.name(low.rows(node, tensor)) for tensor in tensors)))


def _whole_input(low: Lowering, node: Node) -> NodeRows | None:
    """The input whose parts are joined in their own order; None for other tensors."""
    joined = node.args[0] if node.args else node.kwargs["tensors"]
    parts = [part for part in joined if isinstance(part, Node) and part.op == "columns"]
    if len(parts) < len(joined) or len({part.args[0] for part in parts}) > 1:
        return None
    x, starts = parts[0].args[0], [0, *(part.args[2] for part in parts)]
    stops = [*(part.args[1] for part in parts), x.value.shape[1]]
    value = low.values.get(x)
    return value if starts == stops and isinstance(value, NodeRows) else None


def _stack(low: Lowering, node: Node, tensors: Sequence[Any], dim: int = 0) -> Stack:
    parts = tuple(low.rows(node, tensor) for tensor in tensors)
    return Stack(parts, dim % node.value.dim())


def _reduced(node: Node, x: Value, dim: Any) -> tuple[Value, bool]:
    """The value, and whether ``dim`` is a stack's own dimension."""
    if isinstance(dim, list) and len(dim) == 1:
        dim = dim[0]
    if not isinstance(dim, int):
        raise refuse(node.where, f"{node.op} over dim={dim}; give one dimension")
    place = dim % node.args[0].value.dim()
    if isinstance(x, Stack):
        if place != x.dim:
            raise refuse(node.where, f"{node.op} of a stack is known over the stacked dimension")
        return x, True
    if place != 1 or node.args[0].value.dim() != 3:
        raise refuse(
            node.where, f"{node.op} within the columns of a node is not known here, but over heads"
        )
    return x, False


def _mean(low: Lowering, node: Node, x: Value, dim: Any = None, **_keepdim: Any) -> NodeRows:
    value, stacked = _reduced(node, x, dim)
    if stacked:
        assert isinstance(value, Stack)
        total = do.total(low, node, value.parts)
        return NodeRows(total.name, total.factor / len(value.parts))
    rows = low.rows(node, value)
    return NodeRows(low.b.head_mean(rows.name, node.args[0].value.shape[1]), rows.factor)


def _sum(low: Lowering, node: Node, x: Value, dim: Any = None, **_keepdim: Any) -> NodeRows:
    mean = _mean(low, node, x, dim)
    count = len(x.parts) if isinstance(x, Stack) else node.args[0].value.shape[1]
    return NodeRows(mean.name, mean.factor * count)


def _extreme(op: Literal["max", "min"]) -> Handler:
    """The largest or smallest values of a stack, or of two tensors."""

    def lower(low: Lowering, node: Node, x: Value, dim: Any = None, **_keepdim: Any) -> Any:
        if isinstance(dim, NodeRows):
            parts: tuple[NodeRows, ...] = (low.rows(node, x), dim)
        else:
            value, stacked = _reduced(node, x, dim)
            if not stacked:
                raise refuse(node.where, f"{node.op} over heads is not known here; mean is")
            assert isinstance(value, Stack)
            parts = value.parts
        out = NodeRows(low.b.elementwise(tuple(low.name(part) for part in parts), op))
        # With dim, max and min also return the places.
        return [out] if isinstance(node.value, tuple) else out

    return lower


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(
        ("contiguous", "clone", "detach", "data", "to", "float", "double", "cpu", "type_as"),
        _same,
    ),
    **dict.fromkeys(("view", "reshape", "flatten", "squeeze", "unsqueeze"), _reshape),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _dropout),
    "__getitem__": _getitem,
    "linear": layers.linear,
    **dict.fromkeys(("matmul", "mm", "__matmul__", "__rmatmul__"), layers.matmul),
    "batch_norm": layers.batch_norm,
    "layer_norm": layers.layer_norm,
    "normalize": layers.normalize,
    "relu": layers.activation("relu"),
    "silu": layers.activation("silu"),
    "tanh": layers.activation("tanh"),
    "sigmoid": layers.activation("sigmoid"),
    "elu": layers.elu,
    "leaky_relu": layers.leaky_relu,
    "prelu": layers.prelu,
    "gelu": layers.gelu,
    "softplus": layers.softplus,
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "stack": _stack,
    "mean": _mean,
    "sum": _sum,
    **dict.fromkeys(("max", "amax", "maximum"), _extreme("max")),
    **dict.fromkeys(("min", "amin", "minimum"), _extreme("min")),
    **dict.fromkeys(("add", "__add__", "__radd__"), do.add),
    **dict.fromkeys(("sub", "subtract", "__sub__"), do.sub),
    **dict.fromkeys(("rsub", "__rsub__"), do.rsub),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), do.mul),
    **dict.fromkeys(("div", "divide", "true_divide", "__truediv__"), do.div),
    "neg": do.neg,
}
"""Handlers by torch's short name."""
