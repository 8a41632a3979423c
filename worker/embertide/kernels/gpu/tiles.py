"""How a result is cut among the programs of a GPU."""

from __future__ import annotations

_PROGRAMS_OF_COLUMNS = 128
_EDGES = 8

TILES = 8
"""Tiles of a row that are summed in float32; their sums are added up in float64."""


def tile(width: int) -> tuple[int, int, int]:
    """The tile of so many columns: programs for a row, columns of each, rows at a time."""
    columns = 16
    while columns < min(width, _PROGRAMS_OF_COLUMNS):
        columns *= 2
    return -(-width // columns), columns, _EDGES * _PROGRAMS_OF_COLUMNS // columns
