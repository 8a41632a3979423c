"""Sizes of a run's parts, from which plans of memory and traffic are made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from embertide.spec.grid import GridShape
from embertide.spec.relations import Relation

FLOAT_BYTES = 4
"""A value of a dense tensor, an edge weight and a score: float32."""
ID_BYTES = 8
"""A dense id, a row offset, or a packed edge: int64."""
LOCATION_BYTES = 8
"""The rank and row that hold a node's features: two int32."""
_TOUCHED_ROW_BYTES = 8
"""A row in a remote group's block: its number and the end of its run, int32 each."""
_PACKED_BYTES = 2
"""A non-zero in a packed one: half of its row's number."""
FEW = 2
"""Remote non-zeros of a row of a group, of which fewer are packed: half the bytes or less."""


def mean_heads(heads: int, slices: int) -> float:
    """Heads that the columns of a slice belong to, on average."""
    return (heads + slices - math.gcd(heads, slices)) / slices


@dataclass(frozen=True, kw_only=True)
class Size:
    """What decides the memory of a relation: edges between the nodes of two types, or of one.

    Attributes:
        nodes: of the destination type, whose rows workers own.
        edges: of the relation.
        group_bytes: most bytes that a group of remote rows takes in its receive buffer.
        depth: messages in flight at a time.
        merged: most groups that travel in one message.
        origins: nodes of the source type, where that is another.
        in_place: workers share a host, and read each other's tensors where they stand.
        row_bytes: of a value of the rows that are read over edges and travel.
    """

    nodes: int
    edges: int
    grid: GridShape
    group_bytes: int
    depth: int
    merged: int = 1
    origins: int | None = None
    in_place: bool = False
    row_bytes: int = FLOAT_BYTES

    @property
    def graph(self) -> int:
        """P, the number of graph partitions."""
        return self.grid.graph

    @property
    def feature(self) -> int:
        """M, the number of feature slices."""
        return self.grid.feature

    @property
    def workers(self) -> int:
        """W = P * M, the number of workers."""
        return self.grid.workers

    @property
    def columns(self) -> int:
        """Nodes of the source type."""
        return self.nodes if self.origins is None else self.origins

    @property
    def index_bytes(self) -> int:
        """The source of an edge, and a row's number in a request."""
        return _index_bytes(self.columns)

    @property
    def end_bytes(self) -> int:
        """Both ends of an edge, before it is sorted."""
        return 2 * _index_bytes(max(self.nodes, self.columns))

    def group_rows(self, widest: int, slices: int) -> int:
        """Slots of a group of remote rows, of a model whose widest tensor has so many columns.

        As many whatever type rows have: groups of smaller ones take less.

        Args:
            slices: that the columns are cut into: M for tiles, 1 for whole rows.
        """
        return max(1, self.group_bytes // (FLOAT_BYTES * -(-widest // slices)))

    def tensor(self, width: int, value_bytes: int = FLOAT_BYTES) -> float:
        """Bytes of one worker's part of a dense tensor, in either layout."""
        return float(value_bytes) * self.nodes * width / self.workers

    def heads(self, heads: int) -> float:
        """H': heads that a worker's columns belong to, on average over the M slices."""
        return mean_heads(heads, self.feature)

    def unique(self, count: int | None = None) -> float:
        """Expected unique remote sources of one of ``count`` equal ranges of rows.

        By default of one of the P partitions; as :meth:`sources`.
        """
        count = count or self.graph
        return self.sources(count) * (count - 1) / count

    def sources(self, count: int) -> float:
        """Expected unique sources, our own rows too, of one of ``count`` equal ranges of rows.

        As if sources were drawn evenly and independently, which no other way of drawing them
        exceeds: hubs and neighbourhoods make fewer.
        """
        draws = self.edges / count
        return self.columns * -math.expm1(draws * math.log1p(-1.0 / (self.columns + 1)))

    def pattern(self, width: int) -> float:
        """Bytes of the remote blocks' rows: each group has its own list of those it touches."""
        if self.graph == 1 or self.in_place:
            return 0.0
        remote, groups, touched = self._grouped(width)
        # Of a group that is used the rows are unpacked.
        packed = _PACKED_BYTES * remote + _TOUCHED_ROW_BYTES * remote / groups
        return packed if remote < FEW * touched else _TOUCHED_ROW_BYTES * touched

    def touched(self, width: int, *, pairs: bool = False) -> float:
        """Bytes of the same where they are on disk; of ``pairs`` for the edges of a sub-range."""
        return _TOUCHED_ROW_BYTES * min(*self._grouped(width, pairs=pairs)[::2])

    def _grouped(self, width: int, *, pairs: bool = False) -> tuple[float, float, float]:
        """Remote non-zeros, groups, and the rows that each group touches, added up."""
        members, slices = (self.workers, 1) if pairs else (self.graph, self.feature)
        group_rows = max(1.0, self.group_bytes * slices / (FLOAT_BYTES * width))
        groups = max(1.0, self.unique(members) / group_rows)
        rows = self.nodes / members
        remote = self.edges / members * (members - 1) / members
        return remote, groups, groups * rows * -math.expm1(-remote / groups / rows)

    def in_flight(self, width: int, *, loaded: bool = False) -> float:
        """Bytes of the groups that are received, sent and computed at a time.

        Args:
            loaded: rows come from where they were read, always in groups.
        """
        if self.graph == 1 or (self.in_place and (self.feature == 1 or not loaded)):
            return 0.0
        return self._buffers(self.graph, self.unique() * width / self.feature)

    def whole_in_flight(self, width: int) -> float:
        """The same as :meth:`in_flight`, of rows with all columns for the edges of a sub-range."""
        if self.workers == 1 or self.in_place:
            return 0.0
        return self._buffers(self.workers, self.unique(self.workers) * width)

    def _buffers(self, members: int, values: float) -> float:
        """Bytes of messages to and from the members of an axis, of so many values in all."""
        received = self.row_bytes * values
        group = min(self.group_bytes * self.row_bytes / FLOAT_BYTES, received)
        # Rows of a group from several peers lie apart in a message of several groups.
        apart = group if self.merged > 1 and members > 2 else 0.0
        return 2 * min((self.depth + 1) * self.merged * group, received) + apart


@dataclass(frozen=True, kw_only=True)
class GraphSize:
    """The sizes of a graph, by the names that a program has for its node types and relations.

    Attributes:
        nodes: node type -> how many there are.
        edges: relation -> how many there are.
        group_bytes, depth, merged, in_place, row_bytes: as of :class:`Size`.
    """

    nodes: dict[str, int]
    edges: dict[str, int]
    grid: GridShape
    group_bytes: int
    depth: int
    merged: int = 1
    in_place: bool = False
    row_bytes: int = FLOAT_BYTES

    @property
    def workers(self) -> int:
        """W = P * M, the number of workers."""
        return self.grid.workers

    @property
    def reads_all(self) -> bool:
        """Whether a worker reads every row of a tensor, with all columns, where it stands."""
        return self.workers == 1 or (self.in_place and self.grid.feature == 1)

    def of_type(self, node_type: str) -> Size:
        """The nodes of a type, without edges."""
        return self._size(self.nodes[node_type], self.nodes[node_type], 0)

    def of_relation(self, relation: str, fanout: int | None = None) -> Size:
        """The edges of a relation, or those that are left with so many sampled for each node."""
        return self.of_relations((relation,), fanout)

    def of_relations(self, relations: Sequence[str], fanout: int | None = None) -> Size:
        """The edges of several relations from one node type, whose sources are found together.

        One that is named twice counts once. Its rows are those of the first.
        """
        edges = 0
        for name in dict.fromkeys(relations):
            _, targets = self._ends(name)
            most = self.edges[name] if fanout is None else targets * fanout
            edges += min(self.edges[name], most)
        origins, targets = self._ends(relations[0])
        return self._size(targets, origins, edges)

    def _ends(self, relation: str) -> tuple[int, int]:
        """Nodes of the source and the destination type; a program of one type names neither."""
        if not relation:
            return self.nodes[""], self.nodes[""]
        ends = Relation.parse(relation)
        return self.nodes[ends.source], self.nodes[ends.destination]

    def _size(self, nodes: int, origins: int, edges: int) -> Size:
        return Size(
            nodes=nodes,
            edges=edges,
            origins=origins,
            grid=self.grid,
            group_bytes=self.group_bytes,
            depth=self.depth,
            merged=self.merged,
            in_place=self.in_place,
            row_bytes=self.row_bytes,
        )


def _index_bytes(nodes: int) -> int:
    """The number of one of so many nodes."""
    return 4 if nodes < 2**31 else 8
