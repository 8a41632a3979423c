"""Recorded sums over edges as steps: with a step's own name where they have one, else as lines."""

from __future__ import annotations

from embertide.kernels.segments import Reduce
from embertide.tracing.attention import lower_attention, softmax_in
from embertide.tracing.lower import Lowering
from embertide.tracing.message_lines import lower_message
from embertide.tracing.roles import is_weight, shaped
from embertide.tracing.scopes import Called
from embertide.tracing.source import refuse
from embertide.tracing.tape import Node
from embertide.tracing.values import Rows


def lower_aggregate(
    low: Lowering, message: Node, reduce: Reduce, relation: str, scope: Called
) -> Rows:
    """A sum, mean or maximum of the sources' rows, weighted or not; or any of any message."""
    share = softmax_in(message)
    if share is not None:
        if reduce != "sum":
            raise refuse(
                message.where, f"a softmax over edges is reduced by {reduce}; known is a sum"
            )
        return lower_attention(low, message, share, relation, scope)
    found = _linear_message(message)
    if found is None or reduce in ("min", "var"):
        return lower_message(low, message, reduce, relation, scope)
    x, weighted = found
    name = low.name(low.rows(x, low.values.get(x)))
    low.begin(scope)
    with low.over(relation):
        out = low.b.aggregate(
            name,
            reduce="max" if reduce == "max" else "sum",
            norm="in" if reduce == "mean" else "none",
            edge_weight=weighted,
        )
    return Rows(out)


def lower_degree(low: Lowering, of: str, relation: str) -> Rows:
    """How many edges each node has, one column."""
    with low.over(relation):
        return Rows(low.b.degree("in" if of == "in" else "out"))


def _linear_message(node: Node) -> tuple[Node, bool] | None:
    """The tensor whose source rows a message is, and whether edge weights multiply them."""
    node = shaped(node)
    if node.op == "source":
        return node.args[0], False
    if node.op in ("mul", "__rmul__") and len(node.args) == 2:
        a, b = (shaped(one) if isinstance(one, Node) else None for one in node.args)
        for one, other in ((a, b), (b, a)):
            if one is not None and other is not None and is_weight(one) and other.op == "source":
                return other.args[0], True
    return None
