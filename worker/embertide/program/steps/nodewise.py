"""The common base of steps that compute each node's row from that node alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from embertide.kernels.memory import copy_of
from embertide.layouts import Layout, Shard
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Read, Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Input, Op
from embertide.program.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class RowStep(Step):
    """A function of whole rows, in the ``rows`` layout."""

    reads_rows: ClassVar[bool] = True

    x: Read

    @abstractmethod
    def compute(self, execution: Execution, x: Tensor) -> Tensor:
        """[n, D] -> [n, D'], a new tensor."""

    def lower(self, execution: Execution, _op: Op) -> Shard:
        """Collective: every rank must call."""
        data = self.compute(execution, execution.rows(self.x, self.layer))
        return Shard("rows", data, data.shape[1])


@dataclass(frozen=True, kw_only=True)
class ElementStep(Step):
    """Element by element, in the layout that ``x`` has; in place where no later step reads it."""

    x: Read

    @abstractmethod
    def change(self, execution: Execution, x: Shard) -> Tensor:
        """The result, which may be ``x.data`` itself."""

    def width(self, shapes: Shapes) -> int:
        """The width of ``x``."""
        return shapes.width(self.x)

    def place(self, op: Op, at: Alive) -> Op:
        """A copy where a later step reads ``x``."""
        layout = at.any(self.x)
        return op.placed([Input(self.x, layout)], layout, reuses=at.last_free([self.x]))

    def lower(self, execution: Execution, op: Op) -> Shard:
        """Collective: every rank must call."""
        x = execution.shard(self.x, op.layout, self.layer)
        if op.reuses is None:
            x = replace(x, data=copy_of(x.data))
        return Shard(op.layout, self.change(execution, x), x.width)


def place_together(op: Op, at: Alive, names: Sequence[str]) -> Op:
    """Element by element of several: in tiles if all are tiles already; else in rows.

    The last one is changed into the result where no later step reads it.
    """
    layout: Layout = "tile" if all(at.has(name, "tile") for name in names) else "rows"
    return op.placed([Input(name, layout) for name in names], layout, reuses=at.last_free(names))
