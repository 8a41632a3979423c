"""Several tensors become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from embertide.kernels.memory import copy_of, empty_as
from embertide.layouts import Layout, Shard
from embertide.steps.base import Read, Step
from embertide.steps.execution import Execution
from embertide.steps.reference import ReferenceRun
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk


@dataclass(frozen=True, kw_only=True)
class Combine(Step, kind="combine"):
    """out = alpha * a + beta * b (residual links, GIN's (1 + eps) * x + aggregate)."""

    a: Read
    b: Read
    alpha: float = 1.0
    beta: float = 1.0

    def width(self, shapes: Shapes) -> int:
        """That of both."""
        return shapes.same([self.a, self.b])

    def reference(self, run: ReferenceRun) -> Tensor:
        """alpha * a + beta * b."""
        return self.alpha * run.tensors[self.a] + self.beta * run.tensors[self.b]

    def lower(self, execution: Execution) -> Shard:
        """In tiles if both are tiles already; else in rows. Collective: every rank must call."""
        tensors, channel = execution.tensors, execution.channel(self.layer)
        tiles = all(tensors.has(name, "tile") for name in (self.a, self.b))
        layout: Layout = "tile" if tiles or execution.grid.feature == 1 else "rows"
        a = tensors.get(self.a, layout, channel)
        b = tensors.get(self.b, layout, channel)
        fresh = tensors.dies(self.b) and self.a != self.b
        data = b.data if fresh else copy_of(b.data)
        if self.beta != 1.0:
            data.mul_(self.beta)
        return Shard(layout, data.add_(a.data, alpha=self.alpha), a.width)

    def walk(self, walk: Walk) -> Layout:
        """``b`` is changed where no later step reads it."""
        return walk.together([self.a, self.b], self.out, in_place=True)

    @property
    def summed(self) -> tuple[str, ...]:
        """Both, where neither has a factor."""
        return (self.a, self.b) if self.alpha == self.beta == 1.0 else ()


@dataclass(frozen=True, kw_only=True)
class Concat(Step, kind="concat"):
    """The columns of all ``inputs``, side by side in that order (JumpingKnowledge ``cat``)."""

    inputs: tuple[Read, ...]

    whole: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """The sum of theirs."""
        return sum(shapes.width(name) for name in self.inputs)

    def reference(self, run: ReferenceRun) -> Tensor:
        """Side by side."""
        return torch.cat([run.tensors[name] for name in self.inputs], dim=1)

    def lower(self, execution: Execution) -> Shard:
        """In rows: columns of a tile are cut by the width of the whole, not of its inputs.

        Collective: every rank must call.
        """
        parts = [execution.rows(name, self.layer) for name in self.inputs]
        out = empty_as(parts[0], len(parts[0]), sum(part.shape[1] for part in parts))
        data = torch.cat(parts, dim=1, out=out)
        return Shard("rows", data, data.shape[1])

    def wants_rows(self, _name: str) -> bool:
        """It does."""
        return True

    def walk(self, walk: Walk) -> Layout:
        """The result beside what is read."""
        return walk.whole_rows(self.reads(), self.out)
