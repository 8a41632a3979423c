"""Norms of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from embertide.program.steps.base import Param
from embertide.program.steps.execution import Execution
from embertide.program.steps.nodewise import RowStep
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class LayerNorm(RowStep, kind="layer_norm"):
    """Over each row's columns, with optional scale and shift."""

    scale: Param | None = None
    shift: Param | None = None
    eps: float = 1e-5

    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """The width of ``x``."""
        width = shapes.width(self.x)
        shapes.values(self.scale, width)
        shapes.values(self.shift, width)
        return width

    def reference(self, run: ReferenceRun) -> Tensor:
        """(x - mean) / sqrt(var + eps) * scale + shift."""
        x, scale, shift = run.tensors[self.x], run.param(self.scale), run.param(self.shift)
        return functional.layer_norm(x, x.shape[1:], scale, shift, self.eps)

    def compute(self, execution: Execution, x: Tensor) -> Tensor:
        """[n, D] -> [n, D]."""
        scale, shift = map(execution.tensors.param, (self.scale, self.shift))
        return functional.layer_norm(x, x.shape[1:], scale, shift, self.eps)


@dataclass(frozen=True, kw_only=True)
class RowNormalize(RowStep, kind="row_normalize"):
    """out = x / max(eps, ||x||_2) per row."""

    eps: float = 1e-12

    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """The width of ``x``."""
        return shapes.width(self.x)

    def reference(self, run: ReferenceRun) -> Tensor:
        """Rows of length one."""
        x = run.tensors[self.x]
        length: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return x / length.clamp(min=self.eps)

    def compute(self, _execution: Execution, x: Tensor) -> Tensor:
        """[n, D] -> [n, D]."""
        return functional.normalize(x, dim=1, eps=self.eps)
