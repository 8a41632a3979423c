"""What each column comes to over all nodes, as a row for every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from embertide.layouts import Shard
from embertide.primitives.statistics import axis_of, column_moments
from embertide.steps.costs import Costs
from embertide.steps.execution import Execution
from embertide.steps.moves import Statistics
from embertide.steps.nodewise import ElementStep
from embertide.steps.reach import Reach
from embertide.steps.reference import ReferenceRun
from embertide.steps.run import Run

Statistic = Literal["mean", "sum", "var", "std", "norm"]


@dataclass(frozen=True, kw_only=True)
class ColumnStatistic(ElementStep, kind="column_statistic"):
    """out[i] = a statistic of each column of x over all nodes of the type, equal for every i.

    `of` says which: `mean`, `sum`, `var`, `std` (both divided by N - correction), or `norm`, the
    root of the sum of squares. Statistics are summed up in float64.
    """

    reach: ClassVar[Reach] = Reach.GRAPH

    of: Statistic
    correction: int = 0

    def reference(self, run: ReferenceRun) -> Tensor:
        """As torch has it over dimension 0."""
        x = run.tensors[self.x]
        found = {
            "mean": lambda: x.mean(0),
            "sum": lambda: x.sum(0),
            "var": lambda: x.var(0, correction=self.correction),
            "std": lambda: x.std(0, correction=self.correction),
            "norm": lambda: x.square().sum(0).sqrt(),
        }[self.of]()
        return found.expand_as(x).clone()

    def change(self, execution: Execution, x: Shard) -> Tensor:
        """In place."""
        found = column_moments(execution.exchange, execution.ranges_of(self.x), x, self.layer)
        count = found.count
        match self.of:
            case "mean":
                value = found.mean
            case "sum":
                value = found.mean * count
            case "norm":
                value = (found.squares + found.mean.square() * count).sqrt()
            case "var" | "std":
                value = found.squares / torch.full_like(found.squares, count - self.correction)
                value = value if self.of == "var" else value.sqrt()
        return x.data.copy_(value.expand_as(x.data))

    def cost(self, costs: Costs, op: Run) -> None:
        """Two numbers per column and worker move."""
        costs.make(op)
        columns, axis = costs.columns(op), axis_of(op.layout, costs.grid.feature)
        costs.moves.append(Statistics(self.layer, axis, 2 * columns))
