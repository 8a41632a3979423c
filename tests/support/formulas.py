"""The formulas of ``docs/traffic.md``, from the whole graph: who sends whom how many bytes.

Nothing here comes from the engine but the row ranges; each method is one row of that page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import permutations

import numpy as np

from embertide.facts.telemetry.recorder import Label
from embertide.grid import ColumnSlices, Grid, RowRanges
from tests.support.world import Graph, loaded_rows, read_edges_of

Bytes = dict[Label, tuple[int, int]]
"""Label -> bytes sent and received; labels that moved nothing are left out."""


class Formulas:
    """Adds up the traffic of all ranks, primitive by primitive.

    Args:
        value: bytes of a value of the rows that are read over edges or change their layout.
    """

    def __init__(
        self, grid: Grid, ranges: RowRanges, graph: Graph, group_bytes: int, value: int = 4
    ) -> None:
        self.grid, self.ranges, self.graph, self.group_bytes = grid, ranges, graph, group_bytes
        self.value = value
        self.world = range(grid.world)
        self.sent = [Counter[Label]() for _ in self.world]
        self.received = [Counter[Label]() for _ in self.world]

    def bytes_of(self, rank: int) -> Bytes:
        """What a rank sends and receives in all."""
        labels = self.sent[rank].keys() | self.received[rank].keys()
        return {at: (self.sent[rank][at], self.received[rank][at]) for at in labels}

    # -- who holds and needs what ----------------------------------------------------------

    def rows(self, rank: int) -> int:
        """N/(PM) of a rank."""
        start, stop = self.ranges.worker(rank)
        return stop - start

    def columns(self, rank: int, width: int) -> int:
        """D/M of a rank."""
        return ColumnSlices(width, self.grid.feature).size(rank % self.grid.feature)

    def owner(self, node: int) -> int:
        """The rank whose sub-range a node is in."""
        return int(np.searchsorted(self.ranges.workers, node, side="right")) - 1

    def needs(self, start: int, stop: int) -> list[int]:
        """Unique sources of the in-edges of nodes start..stop."""
        into = (self.graph.dst >= start) & (self.graph.dst < stop)
        return np.unique(self.graph.src[into]).tolist()

    def edges(self, rank: int) -> int:
        """E/(PM) of a rank."""
        start, stop = self.ranges.worker(rank)
        return int(((self.graph.dst >= start) & (self.graph.dst < stop)).sum())

    def feature_axes(self) -> list[list[int]]:
        """The ranks of every partition."""
        m = self.grid.feature
        return [[p * m + k for k in range(m)] for p in range(self.grid.graph)]

    def graph_axes(self) -> list[list[int]]:
        """The ranks of every column slice."""
        return [list(axis) for axis in zip(*self.feature_axes(), strict=True)]

    # -- pieces ------------------------------------------------------------------------------

    def move(self, label: Label, sender: int, receiver: int, size: int) -> None:
        """``size`` bytes from one rank to another; nothing moves to oneself."""
        if sender != receiver and size:
            self.sent[sender][label] += size
            self.received[receiver][label] += size

    def heads(self, rank: int, heads: int, width: int) -> int:
        """Heads that a rank's columns belong to."""
        start, stop = ColumnSlices(width, self.grid.feature).bounds(rank % self.grid.feature)
        return len({column * heads // width for column in range(start, stop)})

    def all_pairs(self, label: Label, axes: Iterable[Iterable[int]], size: int) -> None:
        """``size`` bytes from every member of an axis to every other."""
        for axis in axes:
            for sender, receiver in permutations(axis, 2):
                self.move(label, sender, receiver, size)

    def gather(self, label: Label, size: Callable[[int], int]) -> None:
        """Each rank's tensor to the others of its partition: a length, then the tensor."""
        self.all_pairs(label, self.feature_axes(), 8)
        for axis in self.feature_axes():
            for sender, receiver in permutations(axis, 2):
                self.move(label, sender, receiver, size(sender))

    def scatter_heads(
        self, label: Label, count: Callable[[int], int], heads: int, width: int
    ) -> None:
        """As ``gather``: ``count`` of the sender's numbers for each head of the receiver."""
        if self.grid.feature == 1:
            return
        self.all_pairs(label, self.feature_axes(), 8)
        for axis in self.feature_axes():
            for sender, receiver in permutations(axis, 2):
                size = 4 * count(sender) * self.heads(receiver, heads, width)
                self.move(label, sender, receiver, size)

    # -- before the layers ---------------------------------------------------------------------

    def histogram(self, buckets: int) -> None:
        self.all_pairs(Label("world", "histogram"), [self.world], 8 + 8 * buckets)

    def shuffle(self, weighted: bool) -> None:
        """8 bytes per edge, 4 for its weight and 4 for each feature; counts of the one round and of
        all buckets."""
        features = 0 if self.graph.features is None else self.graph.features.shape[1]
        edge_bytes = 8 + 4 * weighted + 4 * features
        label = Label("world", "shuffle")
        chunks = [read_edges_of(self.graph, rank, len(self.world)) for rank in self.world]
        buckets = max(map(self.rows, self.world))
        self.all_pairs(label, [self.world], 8 * (1 + buckets))
        for rank, parts in enumerate(chunks):
            for edge in np.concatenate(parts).tolist():
                self.move(label, rank, self.owner(self.graph.dst[edge]), edge_bytes)

    def csr(self, weighted: bool) -> None:
        """Row ends (8 a row), columns (4 an edge) and weights (4 an edge) of each sub-range."""
        label = Label("feature", "csr")
        for axis in self.feature_axes():
            for sender, receiver in permutations(axis, 2):
                edges = (4 + 4 * weighted) * self.edges(sender)
                self.move(label, sender, receiver, 8 + 8 * self.rows(sender) + edges)

    def locate(self) -> None:
        """8 bytes per feature row, to the owner of its node."""
        label = Label("world", "features")
        self.all_pairs(label, [self.world], 8)
        for rank in self.world:
            for node in self.loaded(rank):
                self.move(label, rank, self.owner(node), 8)

    def loaded(self, rank: int) -> list[int]:
        """Nodes whose features a rank read."""
        return loaded_rows(rank, len(self.world), self.graph.nodes).tolist()

    # -- GEMM --------------------------------------------------------------------------------

    def ring(self, layer: int, width: int) -> None:
        """Tile -> rows: in step s our columns of the rows of the s-th next slice."""
        for axis, at, step in self._steps():
            label = Label("feature", "gemm", layer, step)
            target = axis[(at + step) % len(axis)]
            size = self.value * self.rows(target) * self.columns(axis[at], width)
            self.move(label, axis[at], target, size)

    def back(self, layer: int, width: int) -> None:
        """Rows -> tile: in step s the s-th slice before us gets its columns of our rows."""
        for axis, at, step in self._steps():
            label = Label("feature", "gemm", layer, step)
            target = axis[(at - step) % len(axis)]
            size = self.value * self.rows(axis[at]) * self.columns(target, width)
            self.move(label, axis[at], target, size)

    def _steps(self) -> Iterable[tuple[list[int], int, int]]:
        for axis in self.feature_axes():
            for at in range(len(axis)):
                for step in range(1, len(axis)):
                    yield axis, at, step

    def land(
        self, layer: int, width: int, *, tile: bool, input_width: int, held: int | None = None
    ) -> None:
        """A product of loaded rows to whoever holds the row: values once, a row number each.

        Args:
            held: bytes of a value of the product, if it is not only read over edges.
        """
        value = held or self.value
        label = Label("world", "features", layer)
        batch = max(1, self.group_bytes // (4 * max(width, input_width)))
        rounds = -(-max(len(self.loaded(rank)) for rank in self.world) // batch)
        self.all_pairs(label, [self.world], 8 * rounds)
        for rank in self.world:
            for node in self.loaded(rank):
                owner = self.owner(node)
                if not tile:
                    self.move(label, rank, owner, 8 + value * width)
                    continue
                for holder in self.feature_axes()[owner // self.grid.feature]:
                    self.move(label, rank, holder, 8 + value * self.columns(holder, width))

    # -- SPMM and what is like it --------------------------------------------------------------

    def tile_sources(self) -> Sources:
        """Partitions' unique sources, on the graph axis."""
        m = self.grid.feature
        need = {
            rank: (self.needs(*self.ranges.partition(rank // m)), self._tile_holder(rank))
            for rank in self.world
        }
        return Sources(self, self.graph_axes(), need, self._partition_rows)

    def _tile_holder(self, rank: int) -> Callable[[int], int]:
        m = self.grid.feature
        return lambda node: self.ranges.partition_of(node) * m + rank % m

    def _partition_rows(self, rank: int) -> int:
        start, stop = self.ranges.partition(rank // self.grid.feature)
        return stop - start

    def row_sources(self) -> Sources:
        """Sub-ranges' unique sources, over all ranks."""
        need = {rank: (self.needs(*self.ranges.worker(rank)), self.owner) for rank in self.world}
        return Sources(self, [list(self.world)], need, self.rows)

    def loaded_sources(self) -> Sources:
        """Partitions' unique sources, over the ranks that loaded them."""
        loader = {node: rank for rank in self.world for node in self.loaded(rank)}
        need = {
            rank: (
                self.needs(*self.ranges.partition(rank // self.grid.feature)),
                loader.__getitem__,
            )
            for rank in self.world
        }
        return Sources(self, [list(self.world)], need, None)

    def look_up(self, label: Label, asked: Callable[[int], list[int]], size: int) -> None:
        """4 bytes per node to its owner, ``size`` back."""
        self.all_pairs(label, [self.world], 16)
        for rank in self.world:
            for node in asked(rank):
                self.move(label, rank, self.owner(node), 4)
                self.move(label, self.owner(node), rank, size)


class Sources:
    """Who needs how many unique rows of whom, and in which rounds they arrive."""

    def __init__(
        self,
        formulas: Formulas,
        axes: list[list[int]],
        need: dict[int, tuple[list[int], Callable[[int], int]]],
        held_rows: Callable[[int], int] | None,
    ) -> None:
        self.formulas, self.axes, self.held_rows = formulas, axes, held_rows
        self.held = {rank: Counter(map(holder, nodes)) for rank, (nodes, holder) in need.items()}

    def _pairs(self) -> Iterable[tuple[int, int, int]]:
        """Rank, holder, and how many unique rows the rank needs of it."""
        for axis in self.axes:
            for rank, holder in permutations(axis, 2):
                yield rank, holder, self.held[rank][holder]

    def ids(self, label: Label) -> None:
        """A number per member to every member; per pair 4 per unique row, or a bit per row that
        the holder has, where it has a range; once per layer graph."""
        if len(self.axes[0]) == 1:
            return
        self.formulas.all_pairs(label, self.axes, 8 * len(self.axes[0]))
        for rank, holder, count in self._pairs():
            size = 4 * count
            if self.held_rows is not None:
                size = min(size, -(-self.held_rows(holder) // 8))
            self.formulas.move(label, rank, holder, size)

    def degrees(self) -> None:
        """4 bytes per unique row, to its holder."""
        for rank, holder, count in self._pairs():
            self.formulas.move(Label("graph", "degrees"), rank, holder, 4 * count)

    def values(
        self, axis: str, primitive: str, layer: int, group_rows: int, size: Callable[[int], int]
    ) -> None:
        """Each unique row once, ``size`` bytes each, every peer's share in every round."""
        for ranks in self.axes:
            for at, rank in enumerate(ranks):
                peers = ranks[at + 1 :] + ranks[:at]
                left = [self.held[rank][peer] for peer in peers]
                group = 0
                while any(left):
                    group += 1
                    label = Label(axis, primitive, layer, group)
                    shares = share(left, group_rows)
                    for peer, count in zip(peers, shares, strict=True):
                        self.formulas.move(label, peer, rank, count * size(rank))
                    left = [a - b for a, b in zip(left, shares, strict=True)]


def share(left: list[int], group_rows: int) -> list[int]:
    """A round's rows in proportion to what is left, the rest one each to the first with more."""
    room = min(group_rows, sum(left))
    shares = [rows * room // sum(left) for rows in left]
    rest = room - sum(shares)
    for i, rows in enumerate(left):
        if rest and shares[i] < rows:
            shares[i] += 1
            rest -= 1
    return shares
