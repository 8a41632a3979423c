"""Sums over edges that a module spells out itself, as it runs: messages recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from embertide.kernels.segments import Reduce
from embertide.tracing.record.decomposed import as_numbers
from embertide.tracing.record.graphs import RandomEdges, RandomGraph
from embertide.tracing.record.protocols import DegreeOf
from embertide.tracing.record.roles import filled_with, is_weight
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.self_loops import View
from embertide.tracing.record.tape import Tape
from embertide.tracing.record.traced import Traced, plain
from embertide.tracing.record.user_code import here, refuse


@dataclass(frozen=True)
class Edges:
    """The edges of one relation of the traced graph: takes tensors to them and back.

    Attributes:
        view: the relation and its self-loops.
        own: the edges so seen.
    """

    tape: Tape
    graph: RandomGraph
    view: View
    own: RandomEdges

    @property
    def ends(self) -> tuple[str, str]:
        """The node types of sources and destinations."""
        return self.graph.types.ends(self.view.relation)

    @property
    def sources(self) -> int:
        """Nodes of the source type."""
        return self.graph.counts[self.ends[0]]

    @property
    def destinations(self) -> int:
        """Nodes of the destination type."""
        return self.graph.counts[self.ends[1]]

    def source(self, x: Any) -> Any:
        """[E, ...] the rows of each edge's source."""
        return self._taken("source", x, self.own.src, self.ends[0])

    def target(self, x: Any) -> Any:
        """[E, ...] the rows of each edge's destination."""
        return self._taken("target", x, self.own.dst, self.ends[1])

    def _taken(self, op: str, x: Any, ends: Tensor, node_type: str) -> Any:
        nodes = self.sources if op == "source" else self.destinations
        if type(x) in (Tensor, Parameter) and x.shape[:1] == (nodes,):
            raise refuse(
                here(),
                "rows of a parameter with one for each node are taken to edges; it is an embedding"
                " table, which --table names in place of features",
            )
        if not isinstance(x, Traced) or x.node.edges:
            raise refuse(here(), "a message takes something else than a tensor of the nodes")
        if x.node.of != node_type:
            raise refuse(
                here(),
                f"the {op}s of {self.view.relation} are nodes of {node_type}, but what is read of"
                f" them is a tensor of {x.node.of}; give it the other one",
            )
        return self.tape.wrap(self.tape.add(op, (x,), {}, plain(x)[ends], self.view.name))

    def aggregate(self, message: Any, reduce: Reduce, scope: Called | None) -> Traced:
        """[N, ...] what arrives at each node; zeros where nothing does.

        Args:
            scope: of the module that does it; None for a part of a statistic over all edges, which
                is no layer.
        """
        message = as_numbers(message)
        self._check(message)
        value = reduced(plain(message), self.own.dst, self.destinations, reduce)
        args = (message, reduce, self.view, scope)
        return self.tape.wrap(self.tape.add("aggregate", args, {}, value, self.ends[1]))

    def softmax(self, scores: Any) -> Traced:
        """[E, ...] scores as shares that add up to 1 over the in-edges of each node."""
        self._check(scores)
        value = shares(plain(scores), self.own.dst, self.destinations)
        return self.tape.wrap(self.tape.add("edge_softmax", (scores,), {}, value))

    def degree(self, of: DegreeOf, weight: Any = None) -> Traced:
        """[N] how many edges each node has, as float64, at one end of the relation.

        Args:
            weight: [E] what each edge counts, for the sums of weights.
        """
        at = int(of in ("in", "weight"))
        ends, nodes = (self.own.src, self.own.dst)[at], (self.sources, self.destinations)[at]
        each = torch.ones(len(ends), dtype=torch.float64) if weight is None else plain(weight)
        value = reduced(each.flatten(), ends, nodes, "sum")
        args = (of, self.view, 1.0 if weight is None else filled_with(weight.node))
        return self.tape.wrap(self.tape.add("degree", args, {}, value, self.ends[at]))

    def total(self, values: Any) -> Traced:
        """[N, ...] the sums of values [E, ...] at their destinations, as a part of a statistic."""
        if is_weight(values.node) and values.numel() == len(values):
            degrees: Any = self.degree("weight", values)
            return degrees.view(-1, 1)  # type: ignore[no-any-return]
        return self.aggregate(values, "sum", None)

    def picked(self, x: Traced, key: Any) -> Any:
        """What stands at the edges that a mask keeps; None, as it is known of all relations'."""
        del x, key
        return None

    def _check(self, message: Any) -> None:
        if not isinstance(message, Traced) or not message.node.edges:
            raise refuse(here(), "the message does not depend on the edges' ends")
        if message.node.of != self.view.name:
            raise refuse(
                here(),
                f"a message along {message.node.of or 'the edges'} is summed over"
                f" {self.view.name or 'the edges'}",
            )


def reduced(values: Tensor, ends: Tensor, nodes: int, reduce: Reduce) -> Tensor:
    """[N, ...] of values [E, ...]."""
    out = torch.zeros(nodes, *values.shape[1:], dtype=values.dtype)
    if reduce == "var":
        mean = reduced(values, ends, nodes, "mean")
        return reduced((values - mean[ends]).square(), ends, nodes, "mean")
    if reduce in ("max", "min"):
        index = ends.reshape(-1, *[1] * (values.dim() - 1)).expand_as(values)
        return out.scatter_reduce(0, index, values, f"a{reduce}", include_self=False)
    out.index_add_(0, ends, values)
    if reduce == "mean":
        degree = torch.bincount(ends, minlength=nodes).clamp(min=1)
        out = out / degree.reshape(-1, *[1] * (values.dim() - 1))
    return out


def shares(scores: Tensor, ends: Tensor, nodes: int) -> Tensor:
    """[E, ...] the softmax of scores over the edges with the same end."""
    top = reduced(scores, ends, nodes, "max")
    raised = (scores - top[ends]).exp()
    return raised / reduced(raised, ends, nodes, "sum")[ends]
