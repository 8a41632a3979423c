"""Division by the number of in-edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from embertide.layouts import Shard
from embertide.steps.execution import Execution
from embertide.steps.nodewise import ElementStep
from embertide.steps.reference import ReferenceRun


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
