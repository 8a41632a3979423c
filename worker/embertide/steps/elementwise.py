"""Several tensors of one width become one, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
from torch import Tensor

from embertide.kernels.memory import copy_of
from embertide.layouts import Layout, Shard
from embertide.steps.base import Read, Step
from embertide.steps.execution import Execution
from embertide.steps.reference import ReferenceRun
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk

ElementOp = Literal["sum", "mean", "max", "min", "product"]


@dataclass(frozen=True, kw_only=True)
class Elementwise(Step, kind="elementwise"):
    """out = sum, mean, maximum, minimum or product of all ``inputs``, element by element.

    JumpingKnowledge's ``max``, the sum or mean of several convolutions, gates.
    """

    inputs: tuple[Read, ...]
    op: ElementOp

    def width(self, shapes: Shapes) -> int:
        """That of all."""
        return shapes.same(self.reads())

    def reference(self, run: ReferenceRun) -> Tensor:
        """Of the stacked tensors."""
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

    def lower(self, execution: Execution) -> Shard:
        """In tiles if all are tiles already; else in rows. Collective: every rank must call."""
        tensors, channel = execution.tensors, execution.channel(self.layer)
        tiles = all(tensors.has(name, "tile") for name in self.inputs)
        layout: Layout = "tile" if tiles else "rows"
        *others, last = (tensors.get(name, layout, channel) for name in self.inputs)
        fresh = tensors.dies(self.inputs[-1]) and self.inputs.count(self.inputs[-1]) == 1
        out = reduce(self._into, [one.data for one in others], _owned(last.data, fresh))
        if self.op == "mean":
            out.div_(len(self.inputs))
        return Shard(layout, out, last.width)

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

    def walk(self, walk: Walk) -> Layout:
        """The last one is changed where no later step reads it."""
        return walk.together(self.reads(), self.out, in_place=True)

    @property
    def summed(self) -> tuple[str, ...]:
        """All of them."""
        return self.inputs if self.op == "sum" else ()


def _owned(data: Tensor, fresh: bool) -> Tensor:
    return data if fresh else copy_of(data)
