"""What is kept of a relation's graph: tensors of words, by row, by edge and by bucket of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.facts.telemetry.omissions import DroppedEdges
from embertide.graph.shuffle import Edges
from embertide.io.versions.layers.seals import KeptTensor

PRIMITIVE = "refresh"
"""Under which the transfers are counted."""
LENGTHS, SOURCES, WEIGHTS, FEATURES, BUCKETS = (
    "lengths", "sources", "weights", "features", "buckets",
)  # fmt: skip
"""In-edges of each row; the source of each edge, its weight, its features, row by row; and of each
bucket of the histogram the edges that were read into it, and those of the graph before it."""
BUCKET_WORDS = 4
Words32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class ReadEdges:
    """What is known of the edges of a relation since they were read, beside their graph.

    Attributes:
        histogram: our share of their destinations, see :class:`embertide.graph.shuffle.Edges`.
        rows: our share of the rows of the input of their edge type.
        dropped: those that were left out, of all ranks.
        loops: our nodes of whose self-loops ``selfLoops`` has left one, and the first of them.
    """

    histogram: npt.NDArray[np.int64]
    rows: int
    dropped: DroppedEdges | None
    loops: tuple[int, int] | None = None

    @classmethod
    def of(cls, edges: Edges, own: Edges) -> ReadEdges:
        """What is known of a relation's edges.

        Args:
            own: the edges of its edge type as they are in the files.
        """
        return cls(edges.histogram, own.rows, own.dropped)


def words_of(values: npt.NDArray[Any], *, width: int = 1) -> Words32:
    """[n, words] values of 4 or 8 bytes, ``width`` of each row, as words in the same memory."""
    rows = np.ascontiguousarray(values).reshape(len(values), width)
    return rows.view(np.int32)


def source_words(kind: torch.dtype) -> int:
    """Words of the source of an edge."""
    return 1 if kind is torch.int32 else 2


def kept_words(name: str, rows: int, width: int) -> KeptTensor:
    """A tensor of words, without blocks."""
    return KeptTensor(
        name=name, rows=rows, width=width, dtype="int32", layout="rows", scaled=False, blocks=()
    )
