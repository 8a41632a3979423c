"""Division by the number of in-edges."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from embertide.layouts import Shard
from embertide.primitives.graph import EdgeView
from embertide.steps.execution import Execution
from embertide.steps.nodewise import ElementStep
from embertide.steps.reference import ReferenceRun


@dataclass(frozen=True, kw_only=True)
class DivideByDegree(ElementStep, kind="divide_by_degree"):
    """out[i] = x[i] / max(1, in-degree(i) + add): DGL's SAGE ``gcn`` aggregator (add=1)."""

    add: int = 0
    relation: str = ""

    def reference(self, run: ReferenceRun) -> Tensor:
        """Counted in the edges as they are stored."""
        edges = run.edges(EdgeView(self.layer, relation=self.relation))
        return run.tensors[self.x] / (edges.degree(edges.dst) + self.add).clamp(min=1)[:, None]

    def change(self, execution: Execution, x: Shard) -> Tensor:
        """In place."""
        degree = execution.graphs(self.layer, self.relation).in_degree()
        degree = execution.of_ours(degree, x.layout, self.x)
        return x.data.div_((degree + self.add).clamp_(min=1).unsqueeze(1))
