"""What functions that are recorded as others need of the record, and of the edges of a relation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from embertide.kernels.segments import Reduce
from embertide.tracing.record.graphs import RandomEdges
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.traced import Node, Traced

DegreeOf = Literal["in", "out", "weight", "out_weight"]
"""Edges into a node or out of it; or the sum of their weights."""


class EdgeSums(Protocol):
    """The edges of one relation; `edges.Edges`."""

    @property
    def own(self) -> RandomEdges:
        """The edges, as a module has changed them."""

    @property
    def ends(self) -> tuple[str, str]:
        """The node types of sources and destinations."""

    def source(self, x: Any) -> Any:
        """[E, ...] the rows of each edge's source."""

    def target(self, x: Any) -> Any:
        """[E, ...] the rows of each edge's destination."""

    def aggregate(self, message: Any, reduce: Reduce, scope: Called | None) -> Traced:
        """[N, ...] what arrives at each node."""

    def total(self, values: Any) -> Traced:
        """[N, ...] the sums of values at their destinations, as a part of a statistic."""

    def degree(self, of: DegreeOf, weight: Any = None) -> Traced:
        """[N] how many edges each node has at one end."""


class EndsOfEdges(Protocol):
    """What knows the ends of edges; `edge_ends.EdgeEnds`."""

    def call(self, op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What a function of torch gives of them; None for other calls."""

    def lengths(self) -> set[int]:
        """How many edges relations have."""

    def of_relation(self, name: str) -> EdgeSums | None:
        """The edges whose tensors are of a name."""


class Recorder(Protocol):
    """The record of one run; `tape.Tape`."""

    counts: Mapping[str, int]
    in_statistic: bool

    def add(
        self,
        op: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        value: Any,
        of: str | None = None,
    ) -> Node:
        """Record an operation."""

    def wrap(self, node: Node) -> Traced:
        """The tensor that a node made."""

    def edges_of(self, x: Traced) -> EdgeSums | None:
        """The edges that a tensor has a row for each of."""
