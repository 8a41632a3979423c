"""Messages that a module spells out itself, as lines of torch's operations."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from embertide.errors import ModelError
from embertide.tracing.lower.lines import Lines
from embertide.tracing.lower.lowering import Lowering, along_edges
from embertide.tracing.lower.values import NodeRows
from embertide.tracing.record.roles import filled_with, is_features, is_weight, shaped
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.self_loops import View
from embertide.tracing.record.traced import Node, is_truth
from embertide.tracing.record.user_code import refuse


def lower_message(
    low: Lowering, message: Node, reduce: Any, view: View, scope: Called | None
) -> NodeRows:
    """Any message that lines can express; what it reads of an end is one tensor, side by side.

    Raises:
        ModelError: the message has an operation that no line can express.
    """
    ends = Ends(low, (message,), view)
    width = int(message.value[0].numel())
    ends.lines.finish(ends.lines.of(message), width)
    return NodeRows(ends.step(scope, reduce, width))


class Ends:
    """What lines of a message read: ``s``, ``t``, ``w``, ``e`` and parameters.

    Attributes:
        fills: what new self-loops have of ``w`` and ``e``.
    """

    def __init__(self, low: Lowering, messages: tuple[Node, ...], view: View) -> None:
        self.low, self.view = low, view
        self.fills: dict[str, Any] = {}
        self.lines = Lines(self.leaf, self.param)
        self.params: list[Tensor] = []
        self.weighted, self.features = False, 0
        self.tensors: dict[str, list[NodeRows]] = {"source": [], "target": []}
        for node in (node for message in messages for node in along_edges(message)):
            if node.op in self.tensors:
                rows = self._rows(node)
                if rows not in self.tensors[node.op]:
                    self.tensors[node.op].append(rows)

    def step(self, scope: Called | None, reduce: Any, width: int, *, log_sum: bool = False) -> str:
        """The step of the lines that were written; returns its tensor."""
        x, target = self._joined("source"), self._joined("target")
        params = tuple(self.low.constant(tensor, "value") for tensor in self.params)
        self.low.begin(scope)
        with self.low.over(self.view.relation):
            return self.low.b.message(
                x or self._any_source(),
                tuple(self.lines.text),
                width,
                reduce=reduce,
                target=target or None,
                params=params,
                loops=self.view.loops_of(self.weighted),
                loop_weight=self.fills.get("w", 1.0),
                edge_weight=self.weighted,
                log_sum=log_sum,
                edge_features=self.features,
                loop_features=self.fills.get("e", "mean"),
            )

    def _any_source(self) -> str:
        """One column of the source type, for a message that reads nothing of its source."""
        source = self.low.types.ends(self.view.relation)[0]
        rows = self.low.b.inputs.get(source)
        if rows is None:
            raise ModelError(
                f"a message along {self.view.relation} reads nothing of its source, and {source}"
                " has no features; give it one column of ones"
            )
        if self.low.b.widths[rows] == 1:
            return rows
        with self.low.b.of_type(source):
            return self.low.b.row_wise((rows,), ("out = narrow(x0, 1, 0, 1)",), (), 1)

    def leaf(self, node: Node) -> str | None:
        """What a line reads for a node that no line makes."""
        shape = list(node.value.shape[1:]) if isinstance(node.value, Tensor) else []
        if node.op in self.tensors:
            return self._end(node, shape)
        whole = _values(node) == _values(shaped(node))
        if is_weight(node) and whole:
            self.weighted = True
            self._fill("w", node)
            return self.lines.add(f"reshape(w, {shape})")
        if is_features(node) and whole:
            self.features = shaped(node).value.shape[1]
            self._fill("e", node)
            return "e" if shape == [self.features] else self.lines.add(f"reshape(e, {shape})")
        if not node.edges or node.op == "input":
            raise refuse(
                node.where,
                "a message reads something else than its edge's ends, weight and features",
            )
        return None

    def _fill(self, name: str, node: Node) -> None:
        """Note what new self-loops have."""
        if self.view.loops not in ("keep", "none"):
            fill = filled_with(node)
            if self.fills.setdefault(name, fill) != fill:
                raise refuse(
                    node.where,
                    f"new self-loops have {fill!r} here, and {self.fills[name]!r} elsewhere in the"
                    " same message; add them once",
                )

    def _end(self, node: Node, shape: list[int]) -> str:
        known, rows = self.tensors[node.op], self._rows(node)
        name, widths = node.op[0], [self.low.b.widths[read.name] for read in known]
        if len(known) > 1:
            at = known.index(rows)
            name = self.lines.add(f"narrow({name}, 1, {sum(widths[:at])}, {widths[at]})")
        name = name if len(shape) == 1 else self.lines.add(f"reshape({name}, {shape})")
        return self.lines.truth(name) if is_truth(node) else name

    def _rows(self, node: Node) -> NodeRows:
        x = node.args[0]
        rows = NodeRows(self.low.name(self.low.rows(x, self.low.values.get(x))))
        # Of one name, wherever else the message reads it.
        self.low.values[x] = rows
        return rows

    def _joined(self, end: str) -> str:
        """All that is read of one end, side by side; "" for nothing."""
        names = tuple(rows.name for rows in self.tensors[end])
        return self.low.b.concat(names) if len(names) > 1 else "".join(names)

    def param(self, tensor: Tensor) -> str:
        """A constant's name in lines."""
        self.params.append(tensor)
        return f"p{len(self.params) - 1}"


def _values(node: Node) -> int:
    """Numbers in a row; 0 for several results."""
    return int(node.value[:1].numel()) if isinstance(node.value, Tensor) else 0
