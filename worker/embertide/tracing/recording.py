"""What is shared by all that records one run of a module."""

from __future__ import annotations

from embertide.tracing.graphs import GraphTypes, RandomGraph
from embertide.tracing.messages import Edges
from embertide.tracing.scopes import Scopes
from embertide.tracing.tape import Tape, Traced


class Recording:
    """One run on one graph.

    Attributes:
        edges: relation -> takes tensors to its edges and back.
        x: node type -> its features.
        edge_index, edge_weight, index: relation -> its edges, their weights, their destinations.
        edge_features: relation -> features of its edges, of those that have some.
    """

    def __init__(self, graph: RandomGraph, scopes: Scopes) -> None:
        self.graph, self.scopes = graph, scopes
        self.tape = tape = Tape(scopes.names, graph.counts)
        self.edges = {relation: Edges(tape, graph, relation) for relation in graph.edges}
        self.x = {name: tape.input("x", x, name) for name, x in graph.x.items()}
        self.edge_index = self._of_edges("edge_index", "edge_index")
        self.edge_weight = self._of_edges("edge_weight", "weight")
        self.edge_features = self._of_edges("edge_features", "features")
        self.index = self._of_edges("index", "dst")

    @property
    def types(self) -> GraphTypes:
        """Of the graph."""
        return self.graph.types

    def _of_edges(self, role: str, attribute: str) -> dict[str, Traced]:
        return {
            relation: self.tape.input(role, getattr(edges, attribute), relation)
            for relation, edges in self.graph.edges.items()
            if getattr(edges, attribute) is not None
        }
