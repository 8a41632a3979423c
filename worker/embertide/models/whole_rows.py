"""Whether workers that all read each other's memory compute whole rows, whatever the grid slices.

They do it as on a grid of W x 1, and in the order of one worker; see
:mod:`embertide.stages.infer.whole_rows`.
"""

from __future__ import annotations

from dataclasses import replace

from embertide.footprint import GraphSize
from embertide.models.order import order_steps
from embertide.steps.moves import Conversion, HeadScores, LoadedRows, Move, Statistics, TileRows
from embertide.steps.program import Program
from embertide.steps.walk import Walk


def moves_of_slices(program: Program, size: GraphSize) -> list[Move] | None:
    """What a program moves on a grid, where its workers compute whole rows instead.

    Args:
        size: of a grid whose workers all read each other's memory.

    Returns:
        None where the program has moves that cannot be counted apart from it, or would gain
        nothing: without slices only features that are summed where they were loaded do, and sums
        one after the other stay in slices, whose layout need not change between them.
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
    countable = all(_is_countable(move, size.grid.feature) for move in walk.moves)
    return walk.moves if gains and countable else None


def in_order_of_one(program: Program) -> Program:
    """A program as one worker would do it, since nothing moves."""
    return order_steps(program, 1)


def _is_countable(move: Move, slices: int) -> bool:
    # Where a head lies in several slices, each of them has its scores.
    cut = isinstance(move, HeadScores) and move.heads % slices > 0
    return not cut and not isinstance(move, Statistics)
