"""Products, norms and activations as steps, with torch's own arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from embertide.models.after import fold_batch_norm
from embertide.program.steps import ActivationKind
from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.values import NodeRows, Value
from embertide.tracing.record.traced import Node
from embertide.tracing.record.user_code import refuse

Handler = Callable[..., Any]


# Products and norms.


def linear(low: Lowering, node: Node, x: Value, weight: Any, bias: Any = None) -> NodeRows:
    """x @ weight.T + bias, of whole rows."""
    name = low.name(low.rows(node, x))
    if not isinstance(weight, Tensor):
        raise refuse(node.where, "a product of two tensors of nodes is not known here")
    if weight.dim() != 2 or weight.shape[1] != low.b.widths[name]:
        raise refuse(
            node.where,
            f"a product of [{', '.join(map(str, node.args[0].value.shape))}] with a weight"
            f" {list(weight.shape)} acts on a part of each row; flatten the rows first",
        )
    b = None if bias is None else low.constant(bias, "bias")
    return NodeRows(low.b.linear(name, low.constant(weight, "weight"), len(weight), b))


def matmul(low: Lowering, node: Node, a: Any, b: Any) -> NodeRows:
    """A product with a weight on either side of ``@``."""
    if isinstance(a, Tensor):
        raise refuse(
            node.where,
            "a matrix is multiplied from the left, so its size is the number of nodes; a sum over"
            " edges is a convolution or propagate",
        )
    if not isinstance(b, Tensor):
        raise refuse(node.where, "a product of two tensors of nodes is not known here")
    if b.dim() == 1:
        b = b[:, None]
    return linear(low, node, a, b.t())


def batch_norm(
    low: Lowering,
    node: Node,
    x: Value,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    eps: float = 1e-5,
    **_momentum: Any,
) -> NodeRows:
    """BatchNorm in eval mode: a scale and a shift; over all nodes without running statistics."""
    if training or running_mean is None:
        name = low.name(low.rows(node, x))
        w = None if weight is None else low.constant(weight, "scale")
        b = None if bias is None else low.constant(bias, "shift")
        return NodeRows(low.b.graph_norm(name, "columns", scale=w, shift=b, eps=eps))
    scale, shift = fold_batch_norm(running_mean, running_var, eps, weight, bias)
    name = low.name(low.rows(node, x))
    return NodeRows(low.affine(name, low.derived("scale", scale), low.derived("shift", shift)))


def layer_norm(
    low: Lowering,
    node: Node,
    x: Value,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> NodeRows:
    """LayerNorm over a row's columns."""
    name = low.name(low.rows(node, x))
    if list(normalized_shape) != [low.b.widths[name]]:
        raise refuse(node.where, "a layer norm over a part of each row is not known here")
    w = None if weight is None else low.constant(weight, "scale")
    b = None if bias is None else low.constant(bias, "shift")
    return NodeRows(low.b.layer_norm(name, w, b, eps))


def normalize(
    low: Lowering, node: Node, x: Value, p: float = 2.0, dim: int = 1, eps: float = 1e-12
) -> NodeRows:
    """Rows divided by their length, or columns by theirs."""
    if p != 2.0 or node.value.dim() != 2:
        raise refuse(node.where, "normalize is known for p=2 over a dimension of [N, D]")
    rows = low.rows(node, x)
    if dim in (0, -2):
        name = low.name(rows)
        lines = (f"least = clamp(x1, {eps!r})", "out = div(x0, least)")
        both = name, low.b.column_statistic(name, "norm")
        return NodeRows(low.b.row_wise(both, lines, (), low.b.widths[name]))
    return NodeRows(low.b.row_normalize(low.name(rows), eps))


# Activations.


def activation(kind: ActivationKind) -> Handler:
    """The handler of an activation without options."""

    def lower(low: Lowering, node: Node, x: Value) -> NodeRows:
        return NodeRows(low.b.activation(low.name(low.rows(node, x)), kind))

    return lower


def elu(low: Lowering, node: Node, x: Value, alpha: float = 1.0) -> NodeRows:
    """ELU with its alpha."""
    return NodeRows(low.b.activation(low.name(low.rows(node, x)), "elu", float(alpha)))


def leaky_relu(low: Lowering, node: Node, x: Value, negative_slope: float = 0.01) -> NodeRows:
    """Leaky ReLU with its slope."""
    return NodeRows(
        low.b.activation(low.name(low.rows(node, x)), "leaky_relu", float(negative_slope))
    )


def prelu(low: Lowering, node: Node, x: Value, weight: Tensor) -> NodeRows:
    """PReLU, whose slopes are parameters."""
    name = low.name(low.rows(node, x))
    return NodeRows(low.b.activation(name, "prelu", weight=low.constant(weight, "slope")))


def gelu(low: Lowering, node: Node, x: Value, approximate: str = "none") -> NodeRows:
    """GELU, exact or by tanh."""
    kind: ActivationKind = "gelu_tanh" if approximate == "tanh" else "gelu"
    return NodeRows(low.b.activation(low.name(low.rows(node, x)), kind))


def softplus(
    low: Lowering, node: Node, x: Value, beta: float = 1, threshold: float = 20
) -> NodeRows:
    """An activation with torch's default options."""
    if (beta, threshold) != (1, 20):
        raise refuse(node.where, "softplus is known with its default beta and threshold")
    return NodeRows(low.b.activation(low.name(low.rows(node, x)), "softplus"))
