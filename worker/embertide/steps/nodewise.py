"""What steps have in common that touch each node alone."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from embertide.layouts import Layout, Shard
from embertide.steps.base import Read, Step
from embertide.steps.execution import Execution
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk


@dataclass(frozen=True, kw_only=True)
class RowStep(Step):
    """A function of whole rows, in the ``rows`` layout."""

    x: Read

    @abstractmethod
    def compute(self, execution: Execution, x: Tensor) -> Tensor:
        """[n, D] -> [n, D'], a new tensor."""

    def lower(self, execution: Execution) -> Shard:
        """Collective: every rank must call."""
        data = self.compute(execution, execution.rows(self.x, self.layer))
        return Shard("rows", data, data.shape[1])

    def wants_rows(self, _name: str) -> bool:
        """It does."""
        return True

    def walk(self, walk: Walk) -> Layout:
        """The result beside what is read."""
        return walk.whole_rows([self.x], self.out)


@dataclass(frozen=True, kw_only=True)
class ElementStep(Step):
    """Element by element, in the layout that ``x`` has; in place where no later step reads it."""

    x: Read

    @abstractmethod
    def change(self, execution: Execution, x: Shard) -> Tensor:
        """The result, which may be ``x.data`` itself."""

    def width(self, shapes: Shapes) -> int:
        """That of ``x``."""
        return shapes.width(self.x)

    def lower(self, execution: Execution) -> Shard:
        """Collective: every rank must call."""
        x = execution.tensors.own(self.x, execution.channel(self.layer))
        return Shard(x.layout, self.change(execution, x), x.width)

    def walk(self, walk: Walk) -> Layout:
        """A copy at most."""
        return walk.in_place(self.x, self.out)
