"""Steps over the heads of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from embertide.kernels import nodewise
from embertide.steps.base import Param
from embertide.steps.execution import Execution
from embertide.steps.nodewise import RowStep
from embertide.steps.reference import ReferenceRun
from embertide.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class HeadDot(RowStep, kind="head_dot"):
    """out[n, h] = sum_f x[n, h*F + f] * params[vector][h, f]; out is [N, H]."""

    vector: Param
    heads: int

    sliced: ClassVar[bool] = False

    def width(self, shapes: Shapes) -> int:
        """H."""
        shapes.per_head(self.x, self.heads)
        shapes.values(self.vector, shapes.width(self.x))
        return self.heads

    def reference(self, run: ReferenceRun) -> Tensor:
        """A dot product per head."""
        vector = run.params[self.vector].reshape(self.heads, -1)
        return (run.heads(self.x, self.heads) * vector).sum(2)

    def compute(self, execution: Execution, x: Tensor) -> Tensor:
        """[n, H*F] -> [n, H]."""
        return nodewise.head_dot(x, execution.param(self.vector).reshape(self.heads, -1))


@dataclass(frozen=True, kw_only=True)
class HeadMean(RowStep, kind="head_mean"):
    """[N, H*F] -> [N, F]: the mean over heads."""

    heads: int

    def width(self, shapes: Shapes) -> int:
        """F."""
        return shapes.per_head(self.x, self.heads)

    def reference(self, run: ReferenceRun) -> Tensor:
        """The mean over heads."""
        return run.heads(self.x, self.heads).mean(1)

    def compute(self, _execution: Execution, x: Tensor) -> Tensor:
        """[n, H*F] -> [n, F]."""
        return x.reshape(len(x), self.heads, -1).mean(1)
