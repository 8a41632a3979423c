"""How much each worker reads, which decides in how many rounds it is sent on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from embertide.footprint import Size
from embertide.kernels.csr import column_bits
from embertide.kernels.edge_sort import bucket_count
from embertide.planning.inputs import Inputs
from embertide.primitives.shuffle import HISTOGRAM_BITS, round_edges
from embertide.readers.splits import Split, assign_splits


@dataclass(frozen=True, kw_only=True)
class Loads:
    """What the workers read.

    Attributes:
        rows: feature rows of each.
        edges: of each, about.
        round_edges: that each sends at a time.
        histogram: buckets of destinations.
        buckets: of rows of a sub-range, by which edges are sorted.
    """

    rows: list[int]
    edges: list[float]
    round_edges: int
    histogram: int
    buckets: int

    def row_rounds(self, most: int) -> tuple[int, float]:
        """Rounds of at most ``most`` rows: of the worker with the most rows, and on average."""
        return _rounds(self.rows, most)

    def edge_rounds(self) -> tuple[int, float]:
        """The same of edges."""
        return _rounds(self.edges, self.round_edges)


def _rounds(items: Sequence[float], most: int) -> tuple[int, float]:
    each = [math.ceil(count / most) for count in items]
    return max(each), sum(each) / len(each)


def loads_of(inputs: Inputs, size: Size) -> Loads:
    """What the workers of a run read of its inputs."""
    world = size.workers
    read = [_rows(splits) for splits in assign_splits(inputs.edges, world)]
    total = max(1, sum(read))
    shift = max(0, column_bits(size.nodes) - HISTOGRAM_BITS)
    return Loads(
        rows=[_rows(splits) for splits in assign_splits(inputs.features, world)],
        # Of text, `read` counts bytes; undirected edges are two each.
        edges=[size.edges * part / total for part in read],
        round_edges=round_edges(world),
        histogram=((size.nodes - 1) >> shift) + 1,
        buckets=bucket_count(-(-size.nodes // world)),
    )


def _rows(splits: Sequence[Split]) -> int:
    return sum(split.stop - split.start for split in splits)
