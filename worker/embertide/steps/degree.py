"""Numbers of edges: as a tensor, and as what rows are divided by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from embertide.layouts import Layout, Shard
from embertide.primitives.graph import EdgeView, Loops
from embertide.steps.base import Step
from embertide.steps.execution import Execution
from embertide.steps.nodewise import ElementStep
from embertide.steps.reference import ReferenceRun
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk


@dataclass(frozen=True, kw_only=True)
class DivideByDegree(ElementStep, kind="divide_by_degree"):
    """out[i] = x[i] / max(1, in-degree(i) + add): DGL's SAGE ``gcn`` aggregator (add=1)."""

    add: int = 0

    def reference(self, run: ReferenceRun) -> Tensor:
        """Counted in the edges as they are stored."""
        degree = torch.bincount(run.graphs[self.layer][1], minlength=run.nodes)
        return run.tensors[self.x] / (degree + self.add).clamp(min=1)[:, None]

    def change(self, execution: Execution, x: Shard) -> Tensor:
        """In place."""
        degree = execution.of_ours(execution.graphs(self.layer).in_degree(), x.layout)
        return x.data.div_((degree + self.add).clamp_(min=1).unsqueeze(1))


@dataclass(frozen=True, kw_only=True)
class Degree(Step, kind="degree"):
    """out[i] = how many edges node i has in the layer graph, one column.

    - ``in``, ``out``: edges into it, out of it, duplicates and loops too;
    - ``weight``: the sum of its in-edges' weights, which count 1 where the graph has none.
    """

    of: Literal["in", "out", "weight"] = "in"
    loops: Loops = "keep"
    loop_weight: float = 1.0

    sliced: ClassVar[bool] = False
    tiles: ClassVar[bool] = False

    @property
    def edges(self) -> EdgeView:
        """The layer graph as the step sees it."""
        return EdgeView(self.layer, self.loops, self.loop_weight, self.of == "weight")

    def width(self, _shapes: Shapes) -> int:
        """One."""
        return 1

    def reference(self, run: ReferenceRun) -> Tensor:
        """Counted at one of the ends."""
        edges = run.edges(self.edges)
        if self.of == "weight":
            return edges.sum_at(edges.dst, edges.weight)[:, None]
        return edges.degree(edges.dst if self.of == "in" else edges.src)[:, None]

    def lower(self, execution: Execution) -> Shard:
        """In ``rows``. Collective: every rank must call."""
        graph = execution.graph(self.edges)
        match self.of:
            case "in":
                degree = graph.in_degree()
            case "out":
                degree = graph.out_degree()
            case "weight":
                degree = graph.weighted_in_degree()
        return Shard("rows", execution.of_ours(degree, "rows").unsqueeze(1).clone(), 1)

    def walk(self, walk: Walk) -> Layout:
        """A number a row; those of sources are counted together."""
        walk.build()
        if self.of == "out":
            walk.degrees(self.edges)
        walk.need(walk.tensor(self.out))
        return "rows"
