"""Recorded sums over edges as steps: with a step's own name where they have one, else as lines."""

from __future__ import annotations

from embertide.kernels.segments import Reduce
from embertide.tracing.lower.attention import lower_attention, softmax_in
from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.message_lines import lower_message
from embertide.tracing.lower.products import Product, lower_product, product_of
from embertide.tracing.lower.values import NodeRows
from embertide.tracing.record.protocols import DegreeOf
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.self_loops import View
from embertide.tracing.record.traced import Node
from embertide.tracing.record.user_code import refuse


def lower_aggregate(
    low: Lowering, message: Node, reduce: Reduce, view: View, scope: Called
) -> NodeRows:
    """A sum, mean or maximum of the sources' rows, weighted or not; or any of any message."""
    share = softmax_in(message)
    if share is not None:
        if reduce != "sum":
            raise refuse(
                message.where, f"a softmax over edges is reduced by {reduce}; known is a sum"
            )
        return lower_attention(low, message, share, view, scope)
    product = product_of(message)
    if product is not None and reduce in ("sum", "mean"):
        return lower_product(low, product, reduce == "mean", view, scope)
    if product is not None and reduce == "max" and _is_plain(product):
        return _lower_max(low, product, view, scope)
    return lower_message(low, message, reduce, view, scope)


def lower_degree(low: Lowering, of: DegreeOf, view: View, loop_weight: float) -> NodeRows:
    """How many edges each node has, or the sum of their weights, one column."""
    with low.over(view.relation):
        loops = view.loops_of(of in ("weight", "out_weight"))
        return NodeRows(low.b.degree(of, loops=loops, loop_weight=loop_weight))


def _is_plain(product: Product) -> bool:
    """Whether a product is a row of the source, weighted or not."""
    return len(product.sources) == 1 and not product.targets and product.factor == 1.0


def _lower_max(low: Lowering, product: Product, view: View, scope: Called | None) -> NodeRows:
    (x,) = product.sources
    name = low.name(low.rows(x, low.values.get(x)))
    low.begin(scope)
    with low.over(view.relation):
        out = low.b.aggregate(
            name,
            reduce="max",
            loops=view.loops_of(product.weighted),
            loop_weight=product.loop_weight,
            edge_weight=product.weighted,
        )
    return NodeRows(out)
