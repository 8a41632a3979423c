"""Softmax over the columns of each row: the classifier at the end of many models."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from embertide.steps.execution import Execution
from embertide.steps.nodewise import RowStep
from embertide.steps.reference import ReferenceRun
from embertide.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class RowSoftmax(RowStep, kind="row_softmax"):
    """out[n, c] = exp(x[n, c]) / sum over d of exp(x[n, d]), or its logarithm."""

    log: bool = False

    def width(self, shapes: Shapes) -> int:
        """That of ``x``."""
        return shapes.width(self.x)

    def reference(self, run: ReferenceRun) -> Tensor:
        """Shifted by the row's largest, as every softmax is."""
        x = run.tensors[self.x]
        shifted = x - x.amax(1, keepdim=True)
        total = shifted.exp().sum(1, keepdim=True)
        return shifted - total.log() if self.log else shifted.exp() / total

    def compute(self, _execution: Execution, x: Tensor) -> Tensor:
        """[n, D] -> [n, D]."""
        return torch.log_softmax(x, 1) if self.log else torch.softmax(x, 1)
