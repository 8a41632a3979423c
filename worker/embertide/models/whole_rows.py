"""Whether workers that all read each other's memory compute whole rows, whatever the grid slices.

Slices of columns would read every source row in M pieces and change layouts twice a layer, and a
product would go before a sum of the input features, to move less where nothing moves at all. So
each worker computes its sub-range of the rows with all columns, as on a grid of (P*M) x 1, in the
order of steps that is best where nothing moves.
"""

from __future__ import annotations

from dataclasses import replace

from embertide.footprint import GraphSize
from embertide.models.order import order_steps
from embertide.steps.moves import Conversion, HeadScores, LoadedRows, Statistics, TileRows
from embertide.steps.program import Program
from embertide.steps.walk import Walk


def computes_whole_rows(program: Program, size: GraphSize) -> bool:
    """Whether workers that all read each other's memory compute a program in whole rows.

    Not where it gains nothing: without slices only features that are summed where they were loaded
    gain, and sums one after the other stay in slices, whose layout need not change between them.
    Nor where the bits of a result depend on the slices: statistics over all nodes are joined slice
    by slice, and a head in several slices is summed in each.

    Args:
        size: of the job's grid.
    """
    walk = Walk(program, replace(size, in_place=False))
    walk.all()
    sums = sum(isinstance(move, TileRows) and move.primitive == "spmm" for move in walk.moves)
    changes = sum(isinstance(move, Conversion) for move in walk.moves)
    loaded = any(isinstance(move, LoadedRows) for move in walk.moves)
    if size.grid.feature > 1:
        gains = changes >= sums
    else:
        gains = loaded or in_order_of_one(program).steps != program.steps
    cut = any(
        isinstance(move, HeadScores) and move.heads % size.grid.feature > 0 for move in walk.moves
    )
    return gains and not cut and not any(isinstance(move, Statistics) for move in walk.moves)


def in_order_of_one(program: Program) -> Program:
    """A program as one worker would do it, since nothing moves."""
    return order_steps(program, 1)
