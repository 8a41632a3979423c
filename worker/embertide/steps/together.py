"""Steps over edges that make the results of all relations whose sources' rows travel once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from embertide.layouts import Layout, Shard
from embertide.spec.grid import GridShape
from embertide.steps.base import EdgeStep
from embertide.steps.execution import Execution
from embertide.steps.program import Program
from embertide.steps.walk import Walk


@dataclass(frozen=True, kw_only=True)
class TogetherStep(EdgeStep):
    """The first of a group makes the results of all its steps; the others find theirs made."""

    @abstractmethod
    def moves_rows(self, grid: GridShape) -> bool:
        """Whether rows of sources travel on a grid; where none does, each step runs alone."""

    @abstractmethod
    def lower_all(self, execution: Execution, steps: Sequence[Self]) -> list[Shard]:
        """Our shards of the results of a group. Collective: every rank must call."""

    @abstractmethod
    def walk_all(self, walk: Walk, steps: Sequence[Self]) -> None:
        """Tell a walk what :meth:`lower_all` holds and moves."""

    @abstractmethod
    def layout(self) -> Layout:
        """Of the result."""

    def lower(self, execution: Execution) -> Shard:
        """As made by the first of the group. Collective: every rank must call."""
        if self.out not in execution.ahead:
            steps = self._group(execution.program, execution.grid.shape)
            found = self.lower_all(execution, steps)
            execution.ahead.update(zip((step.out for step in steps), found, strict=True))
        return execution.ahead.pop(self.out)

    def walk(self, walk: Walk) -> Layout:
        """As :meth:`lower` does."""
        if self.out not in walk.ahead:
            steps = self._group(walk.program, walk.grid)
            self.walk_all(walk, steps)
            walk.ahead |= {step.out: walk.whole(step.out) for step in steps}
        del walk.ahead[self.out]
        return self.layout()

    def _group(self, program: Program, grid: GridShape) -> list[Self]:
        if not self.moves_rows(grid):
            return [self]
        return [step for step in program.groups[self.out] if isinstance(step, type(self))]
