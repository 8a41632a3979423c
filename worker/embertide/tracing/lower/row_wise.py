"""Operations without their own step become a row-wise step: lines of torch's operations."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from embertide.tracing.lower.lines import Lines
from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.values import NodeRows, Pending, Pieces, Stack
from embertide.tracing.record.traced import Node, is_truth
from embertide.tracing.record.user_code import refuse


def lower_row_wise(low: Lowering, node: Node) -> Pending:
    """Add an operation on rows to those that wait to become one step with it.

    Raises:
        ModelError: no line can express the operation.
    """
    for source in node.sources():
        if source.edges:
            raise refuse(
                source.where,
                "a tensor of the edges is used among those of the nodes; sum it up first",
            )
    nodes = frozenset({node})
    for source in node.sources():
        if isinstance(low.values.get(source), Pieces):
            nodes |= {source}
            source = source.args[0]
        value = low.values.get(source)
        if isinstance(value, Pending):
            nodes |= value.nodes
        elif isinstance(value, Stack) and value.dim > 0:
            nodes |= {source}
        elif not isinstance(value, NodeRows):
            raise refuse(
                node.where,
                f"{node.op} of a stack is not known; reduce it first, or stack in dim=1, so that"
                " each node keeps its row",
            )
    pending = Pending(node, nodes)
    # Refused here, where nothing has been written yet.
    _write(low, pending, _Named())
    return pending


def emit(low: Lowering, pending: Pending) -> NodeRows:
    """The step of all that waits."""
    named = _Named()
    text = _write(low, pending, named)
    params = tuple(low.constant(tensor, "value") for tensor in named.params)
    inputs = tuple(low.name(rows) for rows in named.inputs)
    return NodeRows(low.b.row_wise(inputs, text, params, _width(pending.node)))


class _Named:
    """What the lines read: tensors of the program as ``x0``, ... and constants as ``p0``, ..."""

    def __init__(self) -> None:
        self.inputs: list[NodeRows] = []
        self.params: list[Tensor] = []

    def input(self, rows: NodeRows) -> str:
        if rows not in self.inputs:
            self.inputs.append(rows)
        return f"x{self.inputs.index(rows)}"

    def param(self, tensor: Tensor) -> str:
        places = [at for at, known in enumerate(self.params) if known is tensor]
        if not places:
            self.params.append(tensor)
        return f"p{places[0] if places else len(self.params) - 1}"


def _write(low: Lowering, pending: Pending, named: _Named) -> tuple[str, ...]:
    lines: Any = None

    def leaf(node: Node) -> str | None:
        value = low.values.get(node)
        if not isinstance(value, NodeRows):
            return None
        name, shape = named.input(value), list(node.value.shape[1:])
        name = name if len(shape) == 1 else str(lines.add(f"reshape({name}, {shape})"))
        return lines.truth(name) if is_truth(node) else name

    lines = Lines(leaf, named.param)
    name = lines.of(pending.node)
    lines.finish(lines.numbers(name) if is_truth(pending.node) else name, _width(pending.node))
    return tuple(lines.text)


def _width(node: Node) -> int:
    """Columns of a row with all its dimensions side by side."""
    return int(node.value[0].numel())
