"""The largest tensors a program holds at a time, and how they move between workers."""

from __future__ import annotations

from embertide.footprint import Size
from embertide.steps.moves import Move
from embertide.steps.program import Program
from embertide.steps.walk import Walk


def tensor_moves(program: Program, size: Size) -> list[Move]:
    """What moves between several workers during the layers, in order."""
    walk = Walk(program, size)
    walk.all("loaded")
    return walk.moves


def tensor_peak(
    program: Program, size: Size, *, placed: bool, building: float, block: float
) -> float:
    """Bytes of the tensors alive in the fullest moment of the layers.

    Args:
        placed: the input is in order from the start.
        building: bytes that the layer graph takes while it is built, beyond what stays of it.
        block: bytes of the blocks of a sum over features where they were loaded.
    """
    walk = Walk(program, size, building, block)
    walk.all("rows" if placed else "loaded")
    return max(walk.peak, walk.held())
