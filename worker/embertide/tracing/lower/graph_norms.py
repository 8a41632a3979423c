"""Steps of norms and statistics over all nodes."""

from __future__ import annotations

from math import prod

from embertide.models.after import graph_norm, layer_norm
from embertide.models.norm_options import GraphNormOptions, LayerNormOptions
from embertide.models.weights import Scope
from embertide.program.steps import Statistic
from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.values import NodeRows
from embertide.tracing.record.traced import Node


def lower_graph_norm(
    low: Lowering,
    node: Node,
    path: str,
    name: str,
    options: GraphNormOptions | LayerNormOptions,
    source: Node,
) -> NodeRows:
    """The norm as ``model.yaml`` has it."""
    x = low.name(low.rows(node, low.values.get(source)))
    stored = Scope(low.weights, path, f"{path}, {name}", {})
    if isinstance(options, LayerNormOptions):
        return NodeRows(layer_norm(low.b, stored, options, x))
    return NodeRows(graph_norm(low.b, stored, options, x))


def lower_over_nodes(
    low: Lowering, node: Node, of: Statistic, correction: int, x: Node, count: Node | None = None
) -> NodeRows:
    """A statistic over all nodes as a row for each."""
    name = low.name(low.rows(node, low.values.get(x)))
    counted = None if count is None else low.name(low.rows(node, low.values.get(count)))
    out = low.b.column_statistic(name, of, correction, counted)
    if of == "mean":
        low.means[out] = name
    return NodeRows(out)


def lower_attend_all(low: Lowering, q: Node, k: Node, v: Node) -> NodeRows:
    """Linear attention over all nodes; heads are all dimensions but the last."""
    names = [low.name(low.rows(part, low.values.get(part))) for part in (q, k, v)]
    heads = prod(q.value.shape[1:-1])
    return NodeRows(low.b.linear_attend(names[0], names[1], names[2], heads))
