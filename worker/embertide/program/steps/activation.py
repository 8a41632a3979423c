"""Element-wise functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from embertide.errors import ModelError
from embertide.kernels import nodewise
from embertide.kernels.epilogue import is_fusible
from embertide.layouts import Shard
from embertide.program.steps.base import Norms, Param
from embertide.program.steps.execution import Execution
from embertide.program.steps.nodewise import ElementStep
from embertide.program.steps.op import RowActivation
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes

_NO_FARTHER = ("relu", "leaky_relu", "tanh", "sigmoid")
"""Values that they make are no farther apart than those they read, but for a steeper slope."""
ActivationKind = Literal[
    "relu", "elu", "leaky_relu", "prelu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "softplus"
]

_ROUNDED_OTHERWISE = ("elu",)
"""What the kernels of sums apply in another way than torch, which does so after sums of several
groups: some rows alone may take fewer groups."""


@dataclass(frozen=True, kw_only=True)
class Activation(ElementStep, kind="activation"):
    """Element-wise; ``slope`` is leaky_relu's negative slope or elu's alpha; ``weight`` prelu's."""

    kind: ActivationKind
    slope: float = 0.01
    weight: Param | None = None

    @property
    def exact_alone(self) -> bool:
        """Where a value has the same bits in whichever rows and groups it is computed."""
        return self.kind not in _ROUNDED_OTHERWISE

    def width(self, shapes: Shapes) -> int:
        """The width of ``x``."""
        if (self.kind == "prelu") != (self.weight is not None):
            has = "needs" if self.weight is None else "takes no"
            raise ModelError(f"{self.kind} {has} weight")
        width = shapes.width(self.x)
        shapes.values(self.weight, 1, width)
        return width

    def reference(self, run: ReferenceRun) -> Tensor:
        """The function of torch."""
        x = run.tensors[self.x]
        match self.kind:
            case "leaky_relu":
                return functional.leaky_relu(x, self.slope)
            case "elu":
                return functional.elu(x, self.slope)
            case "prelu":
                assert self.weight is not None
                return functional.prelu(x, run.params[self.weight])
            case "gelu_tanh":
                return functional.gelu(x, approximate="tanh")
            case "relu" | "gelu" | "silu" | "softplus":
                return getattr(functional, self.kind)(x)  # type: ignore[no-any-return]
            case "tanh" | "sigmoid":
                return getattr(torch, self.kind)(x)  # type: ignore[no-any-return]

    def change(self, execution: Execution, x: Shard) -> Tensor:
        """In place where torch can."""
        weight = execution.tensors.param(self.weight)
        if weight is not None and weight.numel() > 1:
            weight = execution.tensors.columns(self.weight, x)
        return nodewise.activate_(x.data, self.kind, self.slope, weight)

    def gains(self, _norms: Norms) -> list[tuple[str, float]] | None:
        """One, or the slope where that is more; of other functions it is not known."""
        slope = abs(self.slope) if self.kind == "leaky_relu" else 0.0
        return [(self.x, max(1.0, slope))] if self.kind in _NO_FARTHER else None

    @property
    def row_activation(self) -> RowActivation | None:
        """Where an epilogue can apply it."""
        return RowActivation(self.kind, self.slope) if is_fusible(self.kind) else None
