"""Multiplication of every row by a function of its in-degree (PNA, LEConv, FAConv)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from embertide.layouts import Shard
from embertide.primitives.graph import EdgeView, Loops
from embertide.steps.execution import Execution
from embertide.steps.nodewise import ElementStep
from embertide.steps.norms import zero_without
from embertide.steps.reference import ReferenceRun

DegreeFunction = Literal["degree", "any", "inverse_root", "inverse", "log", "inverse_log"]


@dataclass(frozen=True, kw_only=True)
class DegreeScale(ElementStep, kind="degree_scale"):
    """out[i] = f(d_i) * x[i], d_i the number of in-edges, or the sum of their weights:

    - ``degree``: value * d; ``inverse``: value / max(1, d);
    - ``any``: value where d > 0, else 0;
    - ``inverse_root``: value / sqrt(d), and 0 for 0;
    - ``log``: value * log(d + 1); ``inverse_log``: value / log(max(1, d) + 1).
    """

    function: DegreeFunction
    value: float = 1.0
    loops: Loops = "keep"
    edge_weight: bool = False

    def reference(self, run: ReferenceRun) -> Tensor:
        """Counted, or added up, in the edges as the step sees them."""
        edges = run.edges(self._view)
        return self._factors(edges.sum_at(edges.dst, edges.weight))[:, None] * run.tensors[self.x]

    def change(self, execution: Execution, x: Shard) -> Tensor:
        """In place."""
        graph = execution.graph(self._view)
        degree = graph.weighted_in_degree() if self.edge_weight else graph.in_degree()
        factors = self._factors(execution.of_ours(degree, x.layout))
        return x.data.mul_(factors.unsqueeze(1))

    @property
    def _view(self) -> EdgeView:
        """The layer graph whose in-edges count."""
        return EdgeView(self.layer, self.loops, 1.0, self.edge_weight)

    def _factors(self, degree: Tensor) -> Tensor:
        """f of degrees [n]."""
        match self.function:
            case "degree":
                return degree * self.value
            case "any":
                return (degree > 0).to(degree) * self.value
            case "inverse_root":
                return zero_without(degree.rsqrt()) * self.value
            case "inverse":
                return self.value / degree.clamp(min=1)
            case "log":
                return (degree + 1).log() * self.value
            case "inverse_log":
                return self.value / (degree.clamp(min=1) + 1).log()
