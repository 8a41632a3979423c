"""Numbers of edges: as a tensor, and as what rows are divided by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from embertide.graph.views import EdgeView, Loops
from embertide.layouts import Shard
from embertide.program.steps.base import Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.nodewise import ElementStep
from embertide.program.steps.op import Op
from embertide.program.steps.reference import End, ReferenceRun
from embertide.program.steps.shapes import Shapes
from embertide.spec.relations import Relation


@dataclass(frozen=True, kw_only=True)
class DivideByDegree(ElementStep, kind="divide_by_degree"):
    """out[i] = x[i] / max(1, in-degree(i) + add): DGL's SAGE ``gcn`` aggregator (add=1)."""

    add: int = 0
    relation: str = ""

    exact: ClassVar[bool] = True

    def reference(self, run: ReferenceRun) -> Tensor:
        """Counted in the edges as they are stored."""
        edges = run.edges(self.own_edges)
        return run.tensors[self.x] / (edges.degree(edges.dst) + self.add).clamp(min=1)[:, None]

    @property
    def own_edges(self) -> EdgeView:
        """As they are stored."""
        return EdgeView(self.layer, relation=self.relation)

    @property
    def degrees_counted(self) -> set[tuple[End, bool]]:
        """In-degrees."""
        return {("in", False)}

    def change(self, execution: Execution, x: Shard) -> Tensor:
        """In place."""
        degree = execution.graphs(self.layer, self.relation).in_degree()
        degree = execution.of_ours(degree, x.layout, self.x)
        return x.data.div_((degree + self.add).clamp_(min=1).unsqueeze(1))


@dataclass(frozen=True, kw_only=True)
class Degree(Step, kind="degree"):
    """out[i] = how many edges node i has in the layer graph, one column.

    - ``in``, ``out``: edges into it, out of it, duplicates and loops too;
    - ``weight``, ``out_weight``: the sum of their weights, which count 1 where the graph has none.
    """

    of: Literal["in", "out", "weight", "out_weight"] = "in"
    loops: Loops = "keep"
    loop_weight: float = 1.0
    relation: str = ""

    sliced: ClassVar[bool] = False
    tiles: ClassVar[bool] = False
    exact: ClassVar[bool] = True

    @property
    def edges(self) -> EdgeView:
        """The layer graph as the step sees it."""
        counts = self.of in ("weight", "out_weight")
        return EdgeView(self.layer, self.loops, self.loop_weight, counts, self.relation)

    def node_type(self, _types: dict[str, str]) -> str:
        """The node type of the end at which edges are counted."""
        if not self.relation:
            return ""
        relation = Relation.parse(self.relation)
        return relation.source if self.of in ("out", "out_weight") else relation.destination

    def width(self, _shapes: Shapes) -> int:
        """One."""
        return 1

    @property
    def degrees_read(self) -> set[tuple[End, bool]]:
        """Out-degrees, where they are counted."""
        return {("out", self.of == "out_weight")} if self.of.startswith("out") else set()

    @property
    def degrees_counted(self) -> set[tuple[End, bool]]:
        """In-degrees, where they are counted."""
        return {("in", self.of == "weight")} if self.of in ("in", "weight") else set()

    def reference(self, run: ReferenceRun) -> Tensor:
        """Counted at one of the ends."""
        edges = run.edges(self.edges)
        ends = edges.dst if self.of in ("in", "weight") else edges.src
        if self.of in ("weight", "out_weight"):
            return edges.weighted_degree(ends)[:, None]
        return edges.degree(ends)[:, None]

    def lower(self, execution: Execution, _op: Op) -> Shard:
        """In ``rows``. Collective: every rank must call."""
        graph = execution.graph(self.edges)
        match self.of:
            case "in":
                degree = graph.in_degree()
            case "out":
                degree = graph.out_degree()
            case "weight":
                degree = graph.weighted_in_degree()
            case "out_weight":
                degree = graph.weighted_out_degree()
        own = execution.of_ours(degree, "rows", self.out)
        return Shard("rows", own.unsqueeze(1).clone(), 1)
