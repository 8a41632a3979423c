"""Sums over edges that a module spells out itself: messages recorded, then said as steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from embertide.tracing.graphs import RandomGraph
from embertide.tracing.lower import Lowering
from embertide.tracing.message_lines import lower_message
from embertide.tracing.roles import is_weight, shaped
from embertide.tracing.source import here, refuse
from embertide.tracing.tape import Node, Tape, Traced, plain
from embertide.tracing.values import Rows

Reduce = Literal["sum", "mean", "max"]
REDUCES: dict[str, Reduce] = {"sum": "sum", "add": "sum", "mean": "mean", "max": "max"}


@dataclass(frozen=True)
class Edges:
    """The traced graph's edges: takes tensors to them and back."""

    tape: Tape
    graph: RandomGraph

    def source(self, x: Any) -> Any:
        """[E, ...] the rows of each edge's source."""
        return self._taken("source", x, self.graph.src)

    def target(self, x: Any) -> Any:
        """[E, ...] the rows of each edge's destination."""
        return self._taken("target", x, self.graph.dst)

    def _taken(self, op: str, x: Any, ends: Tensor) -> Any:
        if not isinstance(x, Traced) or x.node.edges:
            raise refuse(here(), "a message takes something else than a tensor of the nodes")
        return self.tape.wrap(self.tape.add(op, (x,), {}, plain(x)[ends]))

    def aggregate(self, message: Any, reduce: Reduce, scope: tuple[str, str, str]) -> Traced:
        """[N, ...] what arrives at each node; zeros where nothing does.

        Args:
            scope: of the module that does it: a name of the call, its path, its class.
        """
        if not isinstance(message, Traced) or not message.node.edges:
            raise refuse(here(), "the message does not depend on the edges' ends")
        value = reduced(plain(message), self.graph.dst, self.graph.nodes, reduce)
        return self.tape.wrap(self.tape.add("aggregate", (message, reduce, scope), {}, value))


def reduced(values: Tensor, ends: Tensor, nodes: int, reduce: Reduce) -> Tensor:
    """[N, ...] of values [E, ...]."""
    out = torch.zeros(nodes, *values.shape[1:], dtype=values.dtype)
    if reduce == "max":
        index = ends.reshape(-1, *[1] * (values.dim() - 1)).expand_as(values)
        return out.scatter_reduce(0, index, values, "amax", include_self=False)
    out.index_add_(0, ends, values)
    if reduce == "mean":
        degree = torch.bincount(ends, minlength=nodes).clamp(min=1)
        out = out / degree.reshape(-1, *[1] * (values.dim() - 1))
    return out


def lower_aggregate(
    low: Lowering, message: Node, reduce: Reduce, scope: tuple[str, str, str]
) -> Rows:
    """A sum, mean or maximum of the sources' rows, weighted or not; or of any message."""
    found = _linear_message(message)
    if found is None:
        return lower_message(low, message, reduce, scope)
    x, weighted = found
    name = low.name(low.rows(x, low.values.get(x)))
    low.begin_scope(*scope)
    out = low.b.aggregate(
        name,
        reduce="max" if reduce == "max" else "sum",
        norm="in" if reduce == "mean" else "none",
        edge_weight=weighted,
    )
    return Rows(out)


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
