"""A plan on the workers: which of them own what on the grid that computes the layers."""

from __future__ import annotations

from dataclasses import dataclass

from embertide.context import RunContext
from embertide.graph.exchange import Exchange
from embertide.grid import RowRanges
from embertide.program.plans.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """What computes the layers.

    Attributes:
        exchange: with the grid of the layers.
        ranges: node type -> which worker owns which nodes, by that grid.
    """

    plan: Plan
    exchange: Exchange
    ranges: dict[str, RowRanges]

    def spread(self, ranges: RowRanges) -> RowRanges:
        """Ranges by the job's grid, as the grid of the layers has them: a worker's stay its own."""
        return ranges.whole_rows() if self.plan.whole_rows else ranges


def arrange(ctx: RunContext, plan: Plan, ranges: dict[str, RowRanges]) -> Arrangement:
    """The workers of a run on the grid of a plan's layers.

    Args:
        ranges: node type -> which worker owns which nodes, by the job's grid.
    """
    if not plan.whole_rows:
        return Arrangement(plan=plan, exchange=ctx.exchange, ranges=ranges)
    whole = {name: of_type.whole_rows() for name, of_type in ranges.items()}
    return Arrangement(plan=plan, exchange=ctx.exchange.whole_rows(), ranges=whole)
