"""Edges of all relations in one tensor, with relations as numbers, in code of any kind.

A module that reads ``edge_type`` has one message for all edges. It is recorded of all of them, and
then once more for each relation, along which all that depends on the number alone is a constant;
what arrives at a node is put together of what arrives along each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from embertide.kernels.segments import Reduce
from embertide.tracing.record.decomposed import as_numbers
from embertide.tracing.record.edges import Edges
from embertide.tracing.record.graphs import RandomEdges
from embertide.tracing.record.protocols import DegreeOf
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import ALL, is_of_several
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.self_loops import View
from embertide.tracing.record.traced import Node, Traced, is_truth, map_nodes, nodes_in, plain
from embertide.tracing.record.user_code import here, refuse
from embertide.tracing.typed.homogeneous import joined, parts_of
from embertide.tracing.typed.numbered import nothing


@dataclass(frozen=True)
class AllEdges(Edges):
    """The edges of all relations, or of some: takes tensors of all nodes to them and back.

    Attributes:
        recording: has the edges of each relation.
        relations: those whose edges they are.
        whole: the edges of all relations; None for these themselves.
        known: relation and node -> the same on the edges of that relation.
    """

    recording: Recording
    relations: tuple[str, ...]
    whole: AllEdges | None = None
    known: dict[tuple[str, Node], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, recording: Recording, edge_index: Traced, weight: Tensor) -> None:
        """Add the edges of all relations to what a recording knows."""
        src, dst = plain(edge_index)
        own = RandomEdges(src, dst, weight)
        view, relations = View(ALL), recording.types.relations
        edges = cls(recording.tape, recording.graph, view, own, recording, relations)
        edges._know(edge_index)

    def _know(self, edge_index: Traced) -> None:
        name, recording = self.view.name, self.recording
        recording.edges[name], recording.edge_index[name] = self, edge_index
        recording.index[name] = self.tape.input("index", self.own.dst, name)
        recording.origin[name] = self.tape.input("origin", self.own.src, name)

    @property
    def ends(self) -> tuple[str, str]:
        """The only node type, or all of them."""
        names = list(self.graph.counts)
        return (names[0], names[0]) if len(names) == 1 else (ALL, ALL)

    @property
    def sources(self) -> int:
        """Nodes of all types."""
        return sum(self.graph.counts.values())

    @property
    def destinations(self) -> int:
        """Nodes of all types."""
        return self.sources

    def aggregate(self, message: Any, reduce: Reduce, scope: Called | None) -> Traced:
        """[N, ...] what arrives at each node along all relations."""
        message = as_numbers(message)
        self._check(message)
        if reduce == "var":
            centred = message - self.target(self.aggregate(message, "mean", scope))
            return self.aggregate(centred * centred, "mean", scope)
        shape = plain(message).shape[1:]

        def along(relation: str, how: Reduce) -> Any:
            edges, own = self.recording.edges[relation], self.on(relation, message)
            if isinstance(own, Traced):
                return edges.aggregate(own, how, scope)
            degree = edges.degree("in").view(-1, *[1] * len(shape))
            return (degree if how == "sum" else torch.where(degree > 0, 1.0, 0.0)) * own

        def arriving(relations: list[str]) -> Any:
            if len(relations) == 1:
                return along(relations[0], reduce)
            each = [self.recording.edges[name].degree("in") for name in relations]
            degrees: list[Any] = [degree.view(-1, *[1] * len(shape)) for degree in each]
            if reduce in ("max", "min"):
                return _extreme([along(name, reduce) for name in relations], degrees, reduce)
            total = _sum([along(name, "sum") for name in relations])
            return total / _sum(degrees).clamp(min=1.0) if reduce == "mean" else total

        return self._of_types(arriving, shape, 1)

    def softmax(self, scores: Any) -> Traced:
        """[E, ...] scores as shares that add up to 1 over the in-edges of each node."""
        self._check(scores)
        scope = self.recording.scopes.current()
        top = self.aggregate(scores, "max", scope)
        raised = (scores - self.target(top)).exp()
        shares: Traced = raised / self.target(self.aggregate(raised, "sum", scope))
        return shares

    def degree(self, of: DegreeOf, weight: Any = None) -> Traced:
        """[N] how many edges each node has at one end, along all relations."""

        def counted(relations: list[str]) -> Any:
            each = [
                self.recording.edges[name].degree(
                    of, None if weight is None else self.on(name, weight)
                )
                for name in relations
            ]
            return _sum(each)

        return self._of_types(counted, (), int(of in ("in", "weight")))

    def _of_types(self, of_relations: Callable[[list[str]], Any], shape: Any, end: int) -> Traced:
        """What is made for each node type of the relations that have it at an end, together."""
        types, parts = self.graph.types, dict[str, Any]()
        for name in self.graph.counts:
            relations = [one for one in self.relations if types.ends(one)[end] == name]
            if relations:
                parts[name] = of_relations(relations)
            else:
                width = int(torch.Size(shape).numel())
                parts[name] = nothing(self.recording.x[name], width).view(-1, *shape)
        result: Traced = joined(self.recording, parts)
        return result

    def picked(self, x: Traced, key: Any) -> Any:
        """What stands at the edges of the relations that a mask keeps; None for other keys."""
        keys = key if isinstance(key, tuple) else (key,)
        place = 1 if x.node.op == "input" and x.node.args[0] == "edge_index" else 0
        mask = keys[place] if len(keys) == place + 1 else None
        if (
            not isinstance(mask, Traced)
            or mask.node.of != self.view.name
            or not is_truth(mask.node)
        ):
            return None
        kept = {name: self.on(name, mask) for name in self.relations}
        of_number = not any(isinstance(value, Traced) for value in kept.values())
        names = tuple(name for name, value in kept.items() if of_number and bool(value.all()))
        if not names:
            raise refuse(
                here(),
                "edges are picked by a mask that keeps none of the relations"
                f" {', '.join(kept)} as a whole; --graph names them in the order of their numbers;"
                " what depends on anything else is a weight of the edges: the mask as a number",
            )
        if len(names) == 1 and len(self.graph.counts) == 1:
            return self.on(names[0], x)
        some = self._some(names, plain(mask))
        if place:
            return self.recording.edge_index[some.view.name]
        role = x.node.args[0] if x.node.op == "input" else ""
        ends = {"index": self.recording.index, "origin": self.recording.origin}.get(role)
        if ends is not None:
            return ends[some.view.name]
        rows = plain(x)[plain(mask)]
        return self.tape.wrap(self.tape.add("picked", (x,), {}, rows, some.view.name))

    def _some(self, relations: tuple[str, ...], mask: Tensor) -> AllEdges:
        """The edges of some relations."""
        name = f"{ALL} {' '.join(relations)}"
        known = self.recording.edges.get(name)
        if isinstance(known, AllEdges):
            return known
        own = RandomEdges(*(part[mask] for part in (self.own.src, self.own.dst, self.own.weight)))
        whole = self.whole or self
        made = AllEdges(self.tape, self.graph, View(name), own, self.recording, relations, whole)
        made._know(self.tape.input("edge_index", own.edge_index, name))
        return made

    def on(self, relation: str, x: Traced) -> Any:
        """A tensor of all edges on those of a relation: traced, or [1, ...] the same for each."""
        value = self._on(relation, x.node)
        return self.tape.wrap(value) if isinstance(value, Node) else value

    def _on(self, relation: str, node: Node) -> Any:
        if not node.edges or not is_of_several(node):
            return node
        key = relation, node
        if key not in self.known:
            self.known[key] = self._again(relation, node)
        return self.known[key]

    def _again(self, relation: str, node: Node) -> Any:
        types, recording = self.graph.types, self.recording
        if node.of != self.view.name or node.op == "picked":
            (source,) = node.args if node.op == "picked" else (node,)
            edges: Any = recording.edges[source.of]
            return edges._on(relation, source)
        if node.op == "input":
            role = node.args[0]
            if role == "edge_type":
                return torch.tensor([types.relations.index(relation)])
            roles: dict[str, Any] = {
                "edge_index": recording.edge_index,
                "edge_weight": recording.edge_weight,
                "index": recording.index,
                "origin": recording.origin,
            }
            if role not in roles:
                raise refuse(node.where, f"{role} is known in RelGraphConv of DGL's")
            return roles[role][relation].node
        if node.op in ("source", "target"):
            end = types.ends(relation)[node.op == "target"]
            rows = parts_of(recording, self.tape.wrap(node.args[0]))[end]
            own = recording.edges[relation]
            return (own.target(rows) if node.op == "target" else own.source(rows)).node
        args, kwargs = (
            map_nodes(lambda one: self._on(relation, one), given)
            for given in (node.args, node.kwargs)
        )
        value = self._cut(relation, node)
        if not any(one.edges for one in nodes_in((args, tuple(kwargs.values())))):
            return _the_same(node, value)
        again = self.tape.add(node.op, args, kwargs, value, relation)
        again.where, again.edges = node.where, True
        return again

    def _cut(self, relation: str, node: Node) -> Any:
        """A relation's rows of what an operation gave."""
        counts = [len(self.graph.edges[name].src) for name in self.relations]
        at = self.relations.index(relation)
        start = sum(counts[:at])

        def cut(value: Any) -> Any:
            if isinstance(value, (tuple, list)):
                return tuple(map(cut, value))
            if not isinstance(value, Tensor) or value.shape[:1] != (sum(counts),):
                raise refuse(node.where, f"{node.op} mixes rows of edges; keep a row for each edge")
            return value[start : start + counts[at]]

        return cut(node.value)


def _the_same(node: Node, value: Any) -> Any:
    """What all edges of a relation have alike."""
    if isinstance(value, tuple):
        return tuple(_the_same(node, part) for part in value)
    if not len(value) or not torch.equal(value, value[:1].expand_as(value)):
        raise refuse(
            node.where,
            f"{node.op} of edge_type differs along one relation; let it depend on each edge's own",
        )
    return value[:1].contiguous()


def _sum(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _extreme(parts: list[Any], degrees: list[Any], reduce: Reduce) -> Any:
    """The largest or smallest of what arrives, zeros where nothing does."""
    none = -torch.inf if reduce == "max" else torch.inf
    both = torch.maximum if reduce == "max" else torch.minimum
    there = [torch.where(one > 0, part, none) for part, one in zip(parts, degrees, strict=True)]
    result = there[0]
    for part in there[1:]:
        result = both(result, part)
    return torch.where(_sum(degrees) > 0, result, 0.0)
