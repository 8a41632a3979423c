"""How much of the other nodes a step needs for a row of its result."""

from __future__ import annotations

from enum import IntEnum


class Reach(IntEnum):
    """From the least that is needed to the most; of several steps the most counts."""

    ROW = 0
    """The same row of what it reads, and numbers of the row's own edges."""
    NEIGHBOURS = 1
    """Rows at the other end of the row's edges."""
    GRAPH = 2
    """A statistic over all rows."""
