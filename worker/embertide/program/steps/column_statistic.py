"""What each column comes to over all nodes, as a row for every node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from embertide.errors import ModelError
from embertide.graph.statistics import column_extremes, column_moments
from embertide.kernels.memory import empty_as
from embertide.layouts import Shard
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Read, Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Op, Reach
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes

Statistic = Literal["mean", "sum", "var", "std", "norm", "max", "min"]
Extreme = Literal["max", "min"]
_NOTHING = {"max": -torch.inf, "min": torch.inf}
"""The largest and the smallest of no values."""


@dataclass(frozen=True, kw_only=True)
class ColumnStatistic(Step, kind="column_statistic"):
    """out[i] = a statistic of each column of x over all nodes of the type, equal for every i.

    `of` says which: `mean`, `sum`, `var`, `std` (both divided by N - correction), `norm`, the root
    of the sum of squares, `max` or `min`. Statistics are summed up in float64; the largest and the
    smallest value are exact.

    For `max` and `min`, `count` may name one column: rows where it is 0 do not count, such as those
    of nodes without in-edges in a statistic over edges. The largest value of no rows is -inf, the
    smallest inf.
    """

    whole: ClassVar[bool] = True
    reads_rows: ClassVar[bool] = True
    reach: ClassVar[Reach] = Reach.GRAPH

    x: Read
    of: Statistic
    correction: int = 0
    count: Read | None = None

    def width(self, shapes: Shapes) -> int:
        """As many columns as ``x``."""
        if self.count is not None:
            if self.of not in _NOTHING:
                raise ModelError(f"count goes with of: max or min, not {self.of}")
            shapes.heads_of([self.count], 1)
        return shapes.width(self.x)

    def reference(self, run: ReferenceRun) -> Tensor:
        """As torch has it over dimension 0."""
        x = run.tensors[self.x]
        return self._reference_row(x, run).expand_as(x).clone()

    def _reference_row(self, x: Tensor, run: ReferenceRun) -> Tensor:
        match self.of:
            case "mean":
                return x.mean(0)
            case "sum":
                return x.sum(0)
            case "var":
                return x.var(0, correction=self.correction)
            case "std":
                return x.std(0, correction=self.correction)
            case "norm":
                return x.square().sum(0).sqrt()
            case "max" | "min":
                counted = x if self.count is None else x[run.tensors[self.count][:, 0] != 0]
                return _extreme(counted, self.of)

    def place(self, op: Op, at: Alive) -> Op:
        """In rows; ``x`` is changed into the result where no later step reads it."""
        return replace(super().place(op, at), reuses=at.last_free([self.x]))

    def lower(self, execution: Execution, op: Op) -> Shard:
        """In ``rows``. Collective: every rank must call."""
        x = execution.shard(self.x, "rows", self.layer)
        row = self._extremes(execution, x) if self.of in _NOTHING else self._moments(execution, x)
        out = x.data if op.reuses else empty_as(x.data, *x.data.shape)
        return Shard("rows", out.copy_(row.expand_as(out)), x.width)

    def _extremes(self, execution: Execution, x: Shard) -> Tensor:
        """[D] the largest or smallest values of the rows that count."""
        of: Extreme = "max" if self.of == "max" else "min"
        own = x.data
        if self.count is not None:
            own = own[execution.rows(self.count, self.layer)[:, 0] != 0]
        return column_extremes(execution.exchange, _extreme(own, of), of, self.layer)

    def _moments(self, execution: Execution, x: Shard) -> Tensor:
        """[D] float64."""
        moments = column_moments(execution.exchange, execution.ranges_of(self.x), x, self.layer)
        match self.of:
            case "mean":
                return moments.mean
            case "sum":
                return moments.mean * moments.count
            case "norm":
                return (moments.squares + moments.mean.square() * moments.count).sqrt()
        divisor = torch.full_like(moments.squares, moments.count - self.correction)
        variance = moments.squares / divisor
        return variance if self.of == "var" else variance.sqrt()


def _extreme(x: Tensor, of: Extreme) -> Tensor:
    """[D] the largest or smallest of the rows [n, D]."""
    if not len(x):
        return x.new_full(x.shape[1:], _NOTHING[of])
    return x.amax(0) if of == "max" else x.amin(0)
