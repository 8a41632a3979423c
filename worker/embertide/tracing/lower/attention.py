"""Sums over edges whose messages are multiplied by a softmax over each node's in-edges."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from torch import Tensor

from embertide.tracing.lower.lines import Lines
from embertide.tracing.lower.lowering import Lowering, along_edges
from embertide.tracing.lower.message_lines import Ends
from embertide.tracing.lower.values import NodeRows
from embertide.tracing.record.roles import SHAPING, filled_with, is_weight, shaped
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.self_loops import View
from embertide.tracing.record.traced import Node
from embertide.tracing.record.user_code import refuse

_MUL = ("mul", "multiply", "__mul__", "__rmul__")
_THROUGH = (*SHAPING, "dropout", "__getitem__")
_ADD = ("add", "__add__", "__radd__")
_SCORE = "score"


def softmax_in(message: Node) -> Node | None:
    """The softmax over edges that a message has; None without one.

    Raises:
        ModelError: it has several.
    """
    softmaxes = [node for node in along_edges(message) if node.op == "edge_softmax"]
    if len(softmaxes) > 1:
        raise refuse(
            softmaxes[-1].where,
            "a message has several softmaxes over edges; sum each of them up by itself",
        )
    return softmaxes[0] if softmaxes else None


def lower_attention(
    low: Lowering, message: Node, share: Node, view: View, scope: Called | None
) -> NodeRows:
    """The sum over in-edges of a softmax times the rest of a message."""
    factors = _factors(message, share)
    additive = _additive(factors, share)
    if additive is not None:
        return _attend(low, additive, view, scope)
    ends = Ends(low, (message,), view)
    name = _product(ends.lines, factors, message)
    return NodeRows(_step(ends, share.args[0], name, message, scope))


def _rows_of(low: Lowering, node: Node) -> str:
    return low.name(low.rows(node, low.values.get(node)))


def _step(ends: Ends, score: Node, name: str, message: Node, scope: Called | None) -> str:
    heads, width = int(score.value[0].numel()), int(message.value[0].numel())
    scores = ends.lines.of(score)
    ends.lines.finish(scores, heads, _SCORE)
    ends.lines.finish(name, width)
    return ends.step(scope, "softmax", width)


# What a softmax is multiplied by.


class _Factor(NamedTuple):
    """A factor of a product with a softmax.

    Attributes:
        shapes: of a row of each product that it is in, but for the last, and as that is a factor
            of the next.
    """

    value: Node | Tensor | float
    shapes: tuple[tuple[list[int], list[int]], ...] = ()


def _factors(node: Node, share: Node) -> list[_Factor]:
    """All that multiplies the softmax on the way to a message.

    Raises:
        ModelError: something else is done with it.
    """
    if node is share:
        return []
    if node.op in _THROUGH and isinstance(node.args[0], Node):
        return _factors(node.args[0], share)
    if node.op in _MUL:
        for factor, other in (node.args, node.args[::-1]):
            if isinstance(factor, Node) and share in along_edges(factor):
                if isinstance(other, Node) and share in along_edges(other):
                    break
                return [*_reshaped(_factors(factor, share), factor), _Factor(other)]
    raise refuse(
        node.where,
        f"{node.op} of a softmax over edges is not known here; multiply it with what it weighs, and"
        " sum that up",
    )


def _reshaped(factors: list[_Factor], product: Node) -> list[_Factor]:
    """Factors of a product that is a factor itself, perhaps in another shape."""
    last, inner = list(product.value.shape[1:]), product
    while factors and inner.op not in _MUL:
        inner = inner.args[0]
    first = list(inner.value.shape[1:])
    if first == last or prod(first) != prod(last):
        return factors
    return [factor._replace(shapes=(*factor.shapes, (first, last))) for factor in factors]


def _product(lines: Lines, factors: list[_Factor], message: Node) -> str:
    """The message without its softmax."""
    factors = sorted(factors, key=lambda factor: not isinstance(factor.value, Node))
    if not factors or not isinstance(factors[0].value, Node):
        raise refuse(message.where, "a softmax over edges is summed up, which is 1; leave it out")
    while message.op not in _MUL:
        message = message.args[0]
    total, *names = [_shaped_alike(lines, factor, message) for factor in factors]
    for name in names:
        total = lines.add(f"mul({total}, {name})")
    return lines.add(f"expand({total}, {list(message.value.shape[1:])})")


def _shaped_alike(lines: Lines, factor: _Factor, message: Node) -> str:
    """The name of a factor in the shape that its product has at last."""
    value = factor.value
    for first, last in factor.shapes:
        if isinstance(value, Tensor) and value.dim() <= 1 + len(first):
            value = value.expand(1, *first).reshape(1, *last)
    name = lines.argument(value, message)
    for first, last in factor.shapes if isinstance(value, Node) else ():
        name = lines.add(f"expand({name}, {first})")
        name = lines.add(f"reshape({name}, {last})")
    return name


# What has its own step.


class _Additive(NamedTuple):
    """GAT's attention: scores are leaky_relu(source + target)."""

    x: Node
    source: Node
    target: Node
    slope: float
    weighted: bool


def _additive(factors: list[_Factor], share: Node) -> _Additive | None:
    score = shaped(share.args[0])
    if score.op != "leaky_relu":
        return None
    total = shaped(score.args[0])
    if total.op not in _ADD or len(total.args) != 2 or total.kwargs:
        return None
    ends = {node.op: node.args[0] for node in map(_shaped, total.args) if node is not None}
    nodes = [_shaped(factor.value) for factor in factors]
    values = [node.args[0] for node in nodes if node is not None and node.op == "source"]
    weights = [node for node in nodes if node is not None and is_weight(node)]
    if set(ends) != {"source", "target"} or len(values) != 1:
        return None
    heads = {int(node.value[0].numel()) for node in (*ends.values(), share)}
    if len(heads) > 1 or len(weights) > 1 or len(nodes) != 1 + len(weights):
        return None
    if weights and filled_with(weights[0]) != 1.0:
        return None
    slope = score.kwargs.get("negative_slope", score.args[1] if len(score.args) > 1 else 0.01)
    return _Additive(values[0], ends["source"], ends["target"], float(slope), bool(weights))


def _shaped(value: Node | Tensor | float) -> Node | None:
    return shaped(value) if isinstance(value, Node) else None


def _attend(low: Lowering, additive: _Additive, view: View, scope: Called | None) -> NodeRows:
    x, source, target = (
        _rows_of(low, node) for node in (additive.x, additive.source, additive.target)
    )
    low.begin(scope)
    with low.over(view.relation):
        out = low.b.attend(
            x,
            source,
            target,
            low.b.widths[source],
            negative_slope=additive.slope,
            loops=view.loops_of(additive.weighted),
            edge_weight=additive.weighted,
        )
    return NodeRows(out)
