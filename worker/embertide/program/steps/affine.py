"""A scale and a shift per column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from embertide.kernels import nodewise
from embertide.layouts import Shard
from embertide.program.steps.base import Norms, Param
from embertide.program.steps.execution import Execution
from embertide.program.steps.nodewise import ElementStep
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class Affine(ElementStep, kind="affine"):
    """out = x * params[scale] + params[shift], per column: a bias, or batch norm in eval mode.

    Batch norm's statistics are folded into scale and shift (in float64) when the model is read.
    """

    scale: Param | None = None
    shift: Param | None = None

    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """The width of ``x``."""
        width = shapes.width(self.x)
        shapes.values(self.scale, width)
        shapes.values(self.shift, width)
        return width

    def reference(self, run: ReferenceRun) -> Tensor:
        """x * scale + shift."""
        out = run.tensors[self.x]
        scale, shift = run.param(self.scale), run.param(self.shift)
        out = out if scale is None else out * scale
        return out if shift is None else out + shift

    def change(self, execution: Execution, x: Shard) -> Tensor:
        """In place."""
        scale, shift = (execution.tensors.columns(name, x) for name in (self.scale, self.shift))
        return nodewise.affine_(x.data, scale, shift)

    def gains(self, norms: Norms) -> list[tuple[str, float]]:
        """The largest scale."""
        return [(self.x, 1.0 if self.scale is None else norms(self.scale))]

    @property
    def added(self) -> str | None:
        """The shift, where there is no scale."""
        return self.shift if self.scale is None else None
