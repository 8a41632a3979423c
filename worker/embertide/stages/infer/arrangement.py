"""On which grid the layers are computed: the job's, or one whose workers have whole rows."""

from __future__ import annotations

from dataclasses import dataclass

from embertide.context import RunContext
from embertide.footprint import GraphSize
from embertide.grid import RowRanges
from embertide.layouts import ROW_TYPES
from embertide.models.whole_rows import computes_whole_rows, in_order_of_one
from embertide.primitives.exchange import Exchange
from embertide.steps.program import Program


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """What computes the layers, and in which order.

    Attributes:
        exchange: with the grid of the layers.
        program: its steps in the order in which they run.
        ranges: node type -> which worker owns which nodes, by that grid.
    """

    exchange: Exchange
    program: Program
    ranges: dict[str, RowRanges]

    def spread(self, ranges: RowRanges) -> RowRanges:
        """Ranges by the job's grid, as the grid of the layers has them: a worker's stay its own."""
        return ranges if ranges.feature == self.exchange.grid.feature else ranges.whole_rows()


def arrange(ctx: RunContext, program: Program, ranges: dict[str, RowRanges]) -> Arrangement:
    """Whole rows where all workers read each other's memory and the program gains, else slices.

    Layers with samples stay on the job's grid. The same on every rank.

    Args:
        ranges: node type -> which worker owns which nodes, by the job's grid.
    """
    inference, exchange = ctx.job.spec.inference, ctx.exchange
    size = GraphSize(
        nodes={name: of_type.nodes for name, of_type in ranges.items()},
        # What is decided does not depend on how many there are.
        edges=dict.fromkeys(program.relations, 0),
        grid=ctx.grid.shape,
        group_bytes=0,
        depth=1,
        row_bytes=ROW_TYPES[inference.rows].itemsize,
    )
    shared = exchange.channel("world", "features").in_place
    if not shared or inference.fanout != "full" or not computes_whole_rows(program, size):
        return Arrangement(exchange=exchange, program=program, ranges=ranges)
    return Arrangement(
        exchange=exchange.whole_rows(),
        program=in_order_of_one(program),
        ranges={name: of_type.whole_rows() for name, of_type in ranges.items()},
    )
