"""The P x M workers, their axes, and the ranges of rows and columns that each owns.

A worker's rank is ``p * M + m``: graph partition p, feature slice m. The *feature axis* is the
M workers of one partition; the *graph axis* the P workers of one column slice. Both degenerate
to a single worker without a special case. Section 3.3 of Deal.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from embertide.errors import GridError
from embertide.spec.grid import GridShape

AxisName = Literal["feature", "graph", "world"]


@dataclass(frozen=True)
class Axis:
    """Some workers that exchange data: their global ranks in order, and our index among them."""

    name: AxisName
    ranks: tuple[int, ...]
    index: int

    @property
    def size(self) -> int:
        """The number of workers on the axis."""
        return len(self.ranks)

    def others(self) -> list[int]:
        """Indices of the other members, nearest next member first (ring order)."""
        return [(self.index + step) % self.size for step in range(1, self.size)]


@dataclass(frozen=True)
class Grid:
    """The P x M grid seen from one worker.

    Raises:
        GridError: a rank outside the grid.
    """

    shape: GridShape
    rank: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise GridError(f"rank {self.rank} is outside a grid of {self.world} workers")

    @property
    def graph(self) -> int:
        """P, the number of graph partitions."""
        return self.shape.graph

    @property
    def feature(self) -> int:
        """M, the number of feature slices."""
        return self.shape.feature

    @property
    def world(self) -> int:
        """P * M, the number of workers."""
        return self.shape.workers

    @property
    def p(self) -> int:
        """Our graph partition."""
        return self.rank // self.feature

    @property
    def m(self) -> int:
        """Our feature slice."""
        return self.rank % self.feature

    def rank_of(self, p: int, m: int) -> int:
        """The rank at partition p, slice m."""
        return p * self.feature + m

    def axis(self, name: AxisName) -> Axis:
        """The axis of that name that this worker is on."""
        match name:
            case "feature":
                return self.feature_axis
            case "graph":
                return self.graph_axis
            case "world":
                return self.world_axis

    @cached_property
    def graph_axis(self) -> Axis:
        """The P workers that share our column slice."""
        return Axis("graph", tuple(self.rank_of(q, self.m) for q in range(self.graph)), self.p)

    @cached_property
    def feature_axis(self) -> Axis:
        """The M workers that share our partition."""
        return Axis("feature", tuple(self.rank_of(self.p, k) for k in range(self.feature)), self.m)

    @cached_property
    def world_axis(self) -> Axis:
        """The P * M workers of the grid, in rank order."""
        return Axis("world", tuple(range(self.world)), self.rank)


def even_bounds(total: int, count: int) -> list[int]:
    """``count + 1`` ascending bounds that split ``range(total)`` evenly ``count`` ways."""
    return [total * i // count for i in range(count + 1)]


@dataclass(frozen=True)
class RowRanges:
    """Which worker owns which nodes (dense ids).

    ``partitions`` holds P + 1 bounds, ``workers`` W + 1: each partition's rows split among its M
    workers, in rank order.

    Attributes:
        cuts: the W + 1 bounds; None: every partition is split evenly.
    """

    partitions: tuple[int, ...]
    feature: int
    cuts: tuple[int, ...] | None = None

    @classmethod
    def of_workers(cls, cuts: Sequence[int], feature: int) -> RowRanges:
        """From the W + 1 bounds of the workers' sub-ranges."""
        return cls(tuple(cuts[::feature]), feature, tuple(cuts) if feature > 1 else None)

    @cached_property
    def workers(self) -> tuple[int, ...]:
        """W + 1 bounds of the sub-ranges used by the ``rows`` layout."""
        if self.cuts is not None:
            return self.cuts
        bounds = [0]
        for start, stop in zip(self.partitions, self.partitions[1:], strict=False):
            bounds += [start + b for b in even_bounds(stop - start, self.feature)[1:]]
        return tuple(bounds)

    @property
    def nodes(self) -> int:
        """N, all nodes."""
        return self.partitions[-1]

    def partition(self, p: int) -> tuple[int, int]:
        """First and one-past-last node of partition p."""
        return self.partitions[p], self.partitions[p + 1]

    def worker(self, rank: int) -> tuple[int, int]:
        """First and one-past-last node of a worker's sub-range."""
        return self.workers[rank], self.workers[rank + 1]

    def within(self, rank: int) -> tuple[int, int]:
        """A worker's sub-range counted from its partition's first row."""
        start = self.partitions[rank // self.feature]
        return self.workers[rank] - start, self.workers[rank + 1] - start

    def whole_rows(self) -> RowRanges:
        """The sub-ranges as partitions of a grid with one slice."""
        return RowRanges(self.workers, 1)

    def partition_of(self, node: int) -> int:
        """The partition that owns a node."""
        return bisect.bisect_right(self.partitions, node) - 1


@dataclass(frozen=True)
class ColumnSlices:
    """The even split of ``width`` columns into ``count`` slices, one per rank of a feature axis."""

    width: int
    count: int

    def bounds(self, m: int) -> tuple[int, int]:
        """First and one-past-last column of slice m."""
        return self.width * m // self.count, self.width * (m + 1) // self.count

    def size(self, m: int) -> int:
        """Columns in slice m."""
        start, stop = self.bounds(m)
        return stop - start


def check_fits(grid: GridShape, nodes: int, widths: Mapping[str, int]) -> None:
    """Refuse a grid with more workers than nodes, or a feature axis wider than a tensor.

    Args:
        widths: tensor -> its columns, of those that the grid slices.

    Raises:
        GridError: says which axis is too long for what.
    """
    if grid.workers > nodes:
        raise GridError(
            f"grid {grid} has {grid.workers} workers but the graph has only {nodes} nodes;"
            f" use at most {nodes} workers"
        )
    name, narrowest = min(widths.items(), key=lambda tensor: tensor[1])
    if grid.feature > narrowest:
        columns = "1 column" if narrowest == 1 else f"{narrowest} columns"
        raise GridError(
            f"grid {grid}: the feature axis has {grid.feature} workers but the narrowest tensor"
            f" of the model, {name}, has {columns}; use a feature axis of at most {narrowest}."
            " embertide show MODEL --steps lists the tensors"
        )
