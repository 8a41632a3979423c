"""Which rows are computed again: by a hash, the same on every grid; and what they take."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from embertide.footprint import FLOAT_BYTES
from embertide.grid import RowRanges
from embertide.kernels.hashing import random_words

Nodes = npt.NDArray[np.int64]
"""[n] dense ids."""

FEWEST_ROWS, MOST_ROWS = 256, 4096
"""Rows of a node type in each phase, where a job does not set them: 0.1 % of the nodes, within."""

MOST_IN_EDGES = 4096
"""In-edges of a row that is computed again: hubs with more are left out."""

CAPTURED_VALUES = 1 << 22
"""The most values of sources that a worker captures for a phase: it checks fewer rows beyond."""
CHUNK_VALUES = 1 << 18
"""Values of sources that are computed with at a time, in float64; a row's are not divided."""
_COPIES = 3
"""How often captured rows are held: as peers sent them, in order, and in between."""
_CHUNKS = 5
"""How often a chunk is held in float64: sources, messages along edges, and what steps make."""


def rows_to_check(wanted: int | None, nodes: int) -> int:
    """How many rows of a node type are drawn in each phase.

    Args:
        wanted: the manifest's ``inference.checkedRows``.
    """
    usual = min(MOST_ROWS, max(FEWEST_ROWS, nodes // 1000))
    return min(nodes, usual if wanted is None else wanted)


def draw(count: int, nodes: int, seed: int, phase: int) -> Nodes:
    """Up to ``count`` different nodes in the order in which they are drawn, each equally likely."""
    if count >= nodes:
        return np.arange(nodes, dtype=np.int64)
    words = random_words(seed, phase, np.arange(count, dtype=np.uint64), 0)
    drawn = (words % np.uint64(nodes)).astype(np.int64)
    _, first = np.unique(drawn, return_index=True)
    return drawn[np.sort(first)]


def own_rows(drawn: Nodes, ranges: RowRanges, rank: int) -> Nodes:
    """The drawn nodes of our sub-range, after its first and its last row."""
    first, last = ranges.worker(rank)
    if first == last:
        return np.empty(0, np.int64)
    ours = drawn[(drawn >= first) & (drawn < last)]
    return np.fromiter(dict.fromkeys([first, last - 1, *ours.tolist()]), np.int64)


def checking_bytes(rows: float, edges: float, hub: float, width: int) -> float:
    """Bytes of one worker beside the layers.

    Args:
        rows: of ours that are computed again in a phase.
        edges: into them.
        hub: the most in-edges of one of them.
        width: of the widest tensor, of which two are read at their sources.
    """
    values = min(float(CAPTURED_VALUES), (rows + edges) * 2 * width)
    chunk = min(CHUNK_VALUES, values) + hub * width
    return _COPIES * FLOAT_BYTES * values + _CHUNKS * 2 * FLOAT_BYTES * chunk
