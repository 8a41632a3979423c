"""What a worker holds while rows are computed again."""

from __future__ import annotations

from embertide.footprint import FLOAT_BYTES
from embertide.program.selfcheck.draw import CAPTURED_VALUES

CHUNK_VALUES = 1 << 18
"""Values of sources that are computed with at a time, in float64; a row's are not divided."""
_COPIES = 3
"""How often captured rows are held: as peers sent them, in order, and in between."""
_CHUNKS = 5
"""How often a chunk is held in float64: sources, messages along edges, and what steps make."""


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
