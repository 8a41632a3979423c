"""What is shared by all that records one run of a module."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from embertide.tracing.record.edge_ends import EdgeEnds
from embertide.tracing.record.edges import Edges
from embertide.tracing.record.graphs import GraphTypes, RandomGraph, as_passed
from embertide.tracing.record.scopes import Scopes
from embertide.tracing.record.self_loops import View
from embertide.tracing.record.tables import Beside, Tables, parts_of_input
from embertide.tracing.record.tape import Tape
from embertide.tracing.record.traced import Node, Traced


class Recording:
    """One run on one graph.

    Attributes:
        edges: relation -> takes tensors to its edges and back; also by the names of changed ones.
        x: node type -> its input: its features, then the rows of its tables.
        features: node type -> what ``forward`` is passed for its nodes: features, or the nodes'
            own numbers where a table takes the features' place.
        numbers: node type with tables -> the nodes' own numbers.
        edge_index, index, origin: relation -> its edges, their destinations and their sources.
        edge_weight: relation -> weights of its edges.
        edge_features: relation -> features of its edges, of those that have some.
        loop_weights: weights of edges that are no self-loops -> [N] that of each node's own.
    """

    def __init__(self, graph: RandomGraph, scopes: Scopes, tables: Tables | None = None) -> None:
        self.graph, self.scopes = graph, scopes
        self.loop_weights: dict[Node, Any] = {}
        self.edges: dict[str, Edges] = {}
        self.edge_index: dict[str, Traced] = {}
        self.index: dict[str, Traced] = {}
        self.origin: dict[str, Traced] = {}
        ends = EdgeEnds(self.edges, self.origin, self.index, scopes.current)
        self.tape = Tape(scopes.names, graph.counts, ends, beside=Beside(tables or {}))
        self.x = {name: self.tape.input("x", x, name) for name, x in graph.x.items()}
        self.numbers = {
            name: self.tape.input("numbers", graph.numbers(name), name) for name in tables or {}
        }
        self.features: dict[str, Any] = self.x | self.numbers
        for name, of_type in (tables or {}).items():
            features: Any = parts_of_input(self.x[name], of_type)[0]
            if features is not None:
                self.features[name] = features
        for name, categories in graph.types.categories.items():
            passed: Any = as_passed(self.features[name], categories)
            self.features[name] = passed
        for relation in graph.edges:
            self._add(View(relation))
        self.edge_weight = {
            relation: weight
            for relation, weight in self._of_edges("edge_weight", "weight").items()
            if self.types.weighs(relation)
        }
        self.edge_features: dict[str, Any] = self._of_edges("edge_features", "features")
        for relation, categories in graph.types.edge_categories.items():
            of_edges: Any = as_passed(self.edge_features[relation], categories)
            self.edge_features[relation] = of_edges

    @property
    def types(self) -> GraphTypes:
        """The types of the graph."""
        return self.graph.types

    def seen(self, view: View) -> Edges:
        """The edges of a relation with other self-loops."""
        if view.name not in self.edges:
            self._add(view)
        return self.edges[view.name]

    def of_loops(self, role: str, view: View, value: Tensor, fill: Any) -> Traced:
        """Weights or features of edges with other self-loops.

        Args:
            fill: what new self-loops have.
        """
        return self.tape.wrap(self.tape.add("input", (role, view.name, fill), {}, value, view.name))

    def _add(self, view: View) -> None:
        own = self.graph.edges[view.relation]
        if view.loops != "keep":
            own = view.of(own, self.graph.counts[self.types.ends(view.relation)[0]])
        name, of_edges = view.name, self.tape.input
        self.edges[name] = Edges(self.tape, self.graph, view, own)
        self.edge_index[name] = of_edges("edge_index", own.edge_index, name)
        self.index[name] = of_edges("index", own.dst, name)
        self.origin[name] = of_edges("origin", own.src, name)

    def _of_edges(self, role: str, attribute: str) -> dict[str, Traced]:
        return {
            relation: self.tape.input(role, getattr(edges, attribute), relation)
            for relation, edges in self.graph.edges.items()
            if getattr(edges, attribute) is not None
        }
