"""Several tensors of one width become one, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Literal

import torch
from torch import Tensor

from embertide.kernels.memory import copy_of
from embertide.layouts import Shard
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Norms, Read, Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.nodewise import place_together
from embertide.program.steps.op import Op
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes

ElementOp = Literal["sum", "mean", "max", "min", "product"]


@dataclass(frozen=True, kw_only=True)
class Elementwise(Step, kind="elementwise"):
    """out = sum, mean, maximum, minimum or product of all ``inputs``, element by element.

    JumpingKnowledge's ``max``, the sum or mean of several convolutions, gates.
    """

    inputs: tuple[Read, ...]
    op: ElementOp

    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """The width of all inputs, which is the same."""
        return shapes.same(self.reads())

    def reference(self, run: ReferenceRun) -> Tensor:
        """The operation over the stacked tensors."""
        stacked = torch.stack([run.tensors[name] for name in self.inputs])
        match self.op:
            case "sum":
                return stacked.sum(0)
            case "mean":
                return stacked.mean(0)
            case "max":
                return stacked.amax(0)
            case "min":
                return stacked.amin(0)
            case "product":
                return stacked.prod(0)

    def place(self, op: Op, at: Alive) -> Op:
        """In tiles if all are tiles already; else in rows."""
        return place_together(op, at, self.inputs)

    def lower(self, execution: Execution, op: Op) -> Shard:
        """Collective: every rank must call."""
        *others, last = (execution.shard(name, op.layout, self.layer) for name in self.inputs)
        owned = last.data if op.reuses else copy_of(last.data)
        out = reduce(self._into, [other.data for other in others], owned)
        if self.op == "mean":
            out.div_(len(self.inputs))
        return Shard(op.layout, out, last.width)

    def _into(self, out: Tensor, other: Tensor) -> Tensor:
        match self.op:
            case "sum" | "mean":
                return out.add_(other)
            case "max":
                return torch.maximum(out, other, out=out)
            case "min":
                return torch.minimum(out, other, out=out)
            case "product":
                return out.mul_(other)

    def gains(self, _norms: Norms) -> list[tuple[str, float]] | None:
        """One each, of a mean their share; of a product it is not known."""
        if self.op == "product":
            return None
        share = 1.0 / len(self.inputs) if self.op == "mean" else 1.0
        return [(name, share) for name in self.inputs]

    @property
    def summed(self) -> tuple[str, ...]:
        """All of them."""
        return self.inputs if self.op == "sum" else ()
