"""Layers that were recorded as a whole, as ``model.yaml`` would give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from embertide.models.convs.jumping_knowledge import weigh_by_lstm
from embertide.models.node_types import NodeTypes
from embertide.models.typed_layer import SeveralTypes
from embertide.models.weights import Scope
from embertide.spec.relations import Relation
from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.values import NodeRows
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.traced import Node

_UNREAD = "unread "
_INPUTS = 4
"""Where the arguments of a node have the rows of each node type."""


def lower_layer(
    low: Lowering,
    _node: Node,
    scope: Called,
    module: nn.Module,
    layer: SeveralTypes,
    relations: Sequence[str],
    _x: Mapping[str, Node | int],
    node_type: str,
) -> NodeRows:
    """The rows of one node type; the first one that is asked for writes the steps of all."""
    call = scope.name, id(module)
    if call not in low.calls:
        nodes = [other for other in low.nodes if other.op == "layer" and _call(other) == call]
        names = _inputs(low, nodes)
        low.begin(scope)
        stored = _stored(low, module)
        types = NodeTypes(
            relations=tuple(map(Relation.parse, relations)),
            given=tuple(low.types.nodes),
            features=None,
            outputs=(),
            every=True,
        )
        with low.keeping_read({other.args[-1] for other in nodes}) as results:
            results |= layer.steps_by_type(low.b, stored, names, types)
        for name in names.values():
            if name.startswith(_UNREAD):
                del low.b.widths[name]
        low.calls[call] = results
    return NodeRows(low.calls[call][node_type])


def lower_jumping(low: Lowering, node: Node, module: nn.Module, layers: Sequence[Node]) -> NodeRows:
    """JumpingKnowledge by an LSTM over the results of several layers."""
    names = tuple(low.name(low.rows(node, low.values.get(layer))) for layer in layers)
    return NodeRows(weigh_by_lstm(low.b, _stored(low, module), names))


def _stored(low: Lowering, module: nn.Module) -> Scope:
    """The parameters of a module."""
    path = next(path for path, part in low.module.named_modules() if part is module)
    return Scope(low.weights, path, f"{path}, {type(module).__name__}", {})


def _call(node: Node) -> tuple[str, int]:
    return node.args[0].name, id(node.args[1])


def _inputs(low: Lowering, nodes: Sequence[Node]) -> dict[str, str]:
    """Node type -> its tensor; of a type that no needed result reads a name without a tensor.

    Steps that read such a name lead to no result, so they are dropped.
    """
    names = {}
    for node in nodes:
        for name, rows in node.args[_INPUTS].items():
            if isinstance(rows, Node):
                names[name] = low.name(low.rows(node, low.values.get(rows)))
            elif name not in names:
                names[name] = _UNREAD + name
                low.b.widths[names[name]] = rows
    return names
