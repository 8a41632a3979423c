"""Columns of attention, where heads are computed apart: those of a head belong together, unless
its scores are there before its rows are read."""

from __future__ import annotations

from collections.abc import Mapping


def columns_together(width: int, heads: int, slices: int) -> int:
    """Columns of a head; 0 where a slice of the grid ends within one."""
    return width // heads if heads % slices == 0 else 0


def columns_of(name: str, out: str, heads: int, columns: slice, widths: Mapping[str, int]) -> slice:
    """The columns of a tensor for the heads that some columns of the result are, or are of."""
    head, per = widths[out] // heads, widths[name] // heads
    if per == head:
        return columns
    return slice(columns.start // head * per, -(-columns.stop // head) * per)


def heads_in(count: int, out: str, heads: int, widths: Mapping[str, int]) -> int:
    """Heads that so many columns of the result are, or are of."""
    return max(1, count * heads // widths[out])
