"""Several tensors become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from embertide.kernels.memory import copy_of, empty_as
from embertide.kernels.nodewise import add_times_
from embertide.layouts import Shard
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Norms, Read, Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.nodewise import place_together
from embertide.program.steps.op import Op
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class Combine(Step, kind="combine"):
    """out = alpha * a + beta * b (residual links, GIN's (1 + eps) * x + aggregate)."""

    a: Read
    b: Read
    alpha: float = 1.0
    beta: float = 1.0

    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """The width of both, which is the same."""
        return shapes.same([self.a, self.b])

    def reference(self, run: ReferenceRun) -> Tensor:
        """alpha * a + beta * b."""
        return self.alpha * run.tensors[self.a] + self.beta * run.tensors[self.b]

    def place(self, op: Op, at: Alive) -> Op:
        """In tiles if both are tiles already; else in rows."""
        return place_together(op, at, self.reads())

    def lower(self, execution: Execution, op: Op) -> Shard:
        """Collective: every rank must call."""
        a, b = (execution.shard(name, op.layout, self.layer) for name in (self.a, self.b))
        data = b.data if op.reuses else copy_of(b.data)
        if self.beta != 1.0:
            data.mul_(self.beta)
        return Shard(op.layout, add_times_(data, a.data, self.alpha), a.width)

    def gains(self, _norms: Norms) -> list[tuple[str, float]]:
        """The magnitudes of both factors."""
        return [(self.a, abs(self.alpha)), (self.b, abs(self.beta))]

    @property
    def summed(self) -> tuple[str, ...]:
        """Both, where neither has a factor."""
        return (self.a, self.b) if self.alpha == self.beta == 1.0 else ()


@dataclass(frozen=True, kw_only=True)
class Concat(Step, kind="concat"):
    """The columns of all ``inputs``, side by side in that order (JumpingKnowledge ``cat``)."""

    inputs: tuple[Read, ...]

    whole: ClassVar[bool] = True
    reads_rows: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """The sum of the widths of all inputs."""
        return sum(shapes.width(name) for name in self.inputs)

    def reference(self, run: ReferenceRun) -> Tensor:
        """Side by side."""
        return torch.cat([run.tensors[name] for name in self.inputs], dim=1)

    def gains(self, _norms: Norms) -> list[tuple[str, float]]:
        """One each."""
        return [(name, 1.0) for name in self.inputs]

    def lower(self, execution: Execution, _op: Op) -> Shard:
        """In rows: columns of a tile are cut by the width of the whole, not of its inputs.

        Collective: every rank must call.
        """
        parts = [execution.rows(name, self.layer) for name in self.inputs]
        out = empty_as(parts[0], parts[0].shape[0], sum(part.shape[1] for part in parts))
        data = torch.cat(parts, dim=1, out=out)
        return Shard("rows", data, data.shape[1])
