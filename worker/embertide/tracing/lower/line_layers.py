"""Products and norms within messages and rows, as lines."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from embertide.models.after import fold_batch_norm
from embertide.tracing.record.traced import Node
from embertide.tracing.record.user_code import refuse


class Writer(Protocol):
    """Where lines are written; `lines.Lines`."""

    def of(self, node: Node) -> str:
        """The name of a node's value."""

    def add(self, call: str) -> str:
        """One more line; returns its name."""

    def param(self, tensor: Tensor) -> str:
        """The name of a parameter that a constant becomes."""


def product(lines: Writer, node: Node) -> str:
    """Rows times a matrix of the module's, or of each row's own."""
    x, weight, *bias = node.args
    if not isinstance(x, Node):
        raise _unknown_product(node)
    if isinstance(weight, Node):
        return _of_matrices(lines, node, x, weight)
    if isinstance(weight, Tensor) and weight.dim() > 2 and weight.shape[:-2].numel() == 1:
        weight = weight.reshape(weight.shape[-2:])
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise _unknown_product(node)
    matrix = weight if node.op == "linear" else weight.t()
    last = bias[0] if bias else node.kwargs.get("bias")
    more = "" if last is None else f", {lines.param(last)}"
    return lines.add(f"linear({lines.of(x)}, {lines.param(matrix)}{more})")


def _of_matrices(lines: Writer, node: Node, x: Node, other: Node) -> str:
    """Matrix times matrix in every row: [E, ..., a, b] x [E, ..., b, c]."""
    shapes = x.value.shape, other.value.shape
    before = shapes[0][:-2]
    if not 1 <= len(before) <= len(_EACH) or before != shapes[1][:-2]:
        raise _unknown_product(node)
    each = _EACH[: len(before)]
    return lines.add(f"einsum('{each}ab,{each}bc->{each}ac', {lines.of(x)}, {lines.of(other)})")


_EACH = "nxyz"
"""Letters of the dimensions before the two of a matrix."""


def _unknown_product(node: Node) -> Exception:
    return refuse(
        node.where,
        "a product is known of rows with a matrix of the module's, from the right, and of the"
        " matrices [n, ..., a, b] and [n, ..., b, c] that each row has",
    )


def batch_norm(lines: Writer, node: Node) -> str:
    """BatchNorm in eval mode: a scale and a shift of each column."""
    arguments = _named(node, "x", "mean", "var", "weight", "bias", "training", "momentum", "eps")
    x, mean, var = arguments["x"], arguments.get("mean"), arguments.get("var")
    if arguments.get("training") or mean is None or var is None or x.value.dim() != 2:
        raise refuse(
            node.where,
            "a batch norm of edges is known with running statistics, over the columns of [E, D]",
        )
    parts = arguments.get("weight"), arguments.get("bias")
    scale, shift = fold_batch_norm(mean, var, arguments.get("eps", 1e-5), *parts)
    name = lines.add(f"mul({lines.of(x)}, {lines.param(scale)})")
    return lines.add(f"add({name}, {lines.param(shift)})")


def layer_norm(lines: Writer, node: Node) -> str:
    """LayerNorm over the last dimension."""
    arguments = _named(node, "x", "shape", "weight", "bias", "eps")
    x = arguments["x"]
    if list(arguments["shape"]) != list(x.value.shape[-1:]):
        raise refuse(node.where, "a layer norm is known over the last dimension of each row")
    more = [
        f"{name}={lines.param(arguments[name])}"
        for name in ("weight", "bias")
        if arguments.get(name) is not None
    ]
    more.append(f"eps={arguments.get('eps', 1e-5)!r}")
    return lines.add(f"layer_norm({', '.join([lines.of(x), *more])})")


def normalize(lines: Writer, node: Node) -> str:
    """Columns of a row divided by their length."""
    arguments = _named(node, "x", "p", "dim", "eps")
    x, dim = arguments["x"], arguments.get("dim", 1)
    if dim % x.value.dim() == 0:
        raise refuse(node.where, "normalize over all rows needs the whole graph at once")
    p, eps = float(arguments.get("p", 2.0)), arguments.get("eps", 1e-12)
    return lines.add(f"normalize({lines.of(x)}, {dim}, {p!r}, {eps!r})")


def _named(node: Node, *names: str) -> dict[str, Any]:
    """An operation's arguments by name."""
    rest = {
        ("x" if name == "input" else _SHORT.get(name, name)): v for name, v in node.kwargs.items()
    }
    return dict(zip(names, node.args, strict=False)) | rest


_SHORT = {"running_mean": "mean", "running_var": "var", "normalized_shape": "shape"}


LAYERS = {
    **dict.fromkeys(("linear", "matmul", "mm", "bmm", "__matmul__"), product),
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "normalize": normalize,
}
"""Functions by torch's short name."""
