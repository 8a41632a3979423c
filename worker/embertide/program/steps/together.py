"""Steps over edges that make the results of all relations whose sources' rows travel once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from embertide.layouts import Shard
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Op


@dataclass(frozen=True, kw_only=True)
class TogetherStep(EdgeStep):
    """The first of a group makes the results of all its steps, which the others read."""

    @property
    def shares_rows(self) -> bool:
        """True: relations have different targets and read the same sources."""
        return True

    @abstractmethod
    def lower_all(self, execution: Execution, steps: Sequence[Self]) -> list[Shard]:
        """Our shards of the results of a group. Collective: every rank must call."""

    def lower(self, execution: Execution, op: Op) -> Shard:
        """Collective: every rank must call."""
        if op.brings:
            execution.tensors.add(op.brings, self.lower_all(execution, self._alike(op.brings)))
        return execution.tensors.take(self.out)

    def _alike(self, steps: Sequence[EdgeStep]) -> list[Self]:
        return [step for step in steps if isinstance(step, type(self))]
