"""Bytes and messages that every worker will send, by the formulas of ``docs/traffic.md``.

A mean over the workers, rounded up. What the graph decides is expected of edges whose ends are
drawn evenly; all else is exact.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from embertide.engine.planning.graph import (
    NodeLoads,
    PlannedGraph,
    edge_loads,
    node_loads,
    of_layers,
)
from embertide.engine.planning.memory import TABLE_CHUNK_BYTES
from embertide.engine.planning.model_tables import TableSplit
from embertide.facts.telemetry.recorder import Key, RelationLabels
from embertide.facts.telemetry.report import PlannedTraffic
from embertide.footprint import FLOAT_BYTES, ID_BYTES, GraphSize, Size
from embertide.graph.directory import LOCATED_ROWS
from embertide.graph.gemm import round_rows
from embertide.graph.merging import numbers_tried
from embertide.graph.moves import (
    Conversion,
    Degrees,
    HeadScores,
    Landing,
    LoadedRows,
    Move,
    Statistics,
    TileRows,
    WholeRows,
)
from embertide.graph.sources import LOOK_UP_NODES
from embertide.graph.views import EdgeView
from embertide.kernels.spilled_sort import part_edges
from embertide.program.plans.plan import Plan
from embertide.program.steps.dry_run import DryRun
from embertide.program.steps.program import Program

Fanout = Sequence[int] | None
"""In-edges that each layer samples of a node; None: all of them."""


def planned_traffic(graph: PlannedGraph, plan: Plan, fanout: Fanout) -> list[PlannedTraffic]:
    """What one worker sends, per axis, primitive and layer; see ``docs/traffic.md``.

    Where workers read each other's tensors in place, that is what is not read so.
    """
    if graph.size.workers == 1:
        return []
    graph = of_layers(graph, plan)
    traffic = _Traffic(graph, plan.program, fanout, spills=plan.target.spills_graph)
    traffic.before_layers()
    for move in tensor_moves(plan, graph.size):
        traffic.move(move)
    return traffic.sums.traffic()


def tensor_moves(plan: Plan, size: GraphSize) -> list[Move]:
    """What moves between several workers during the layers, in order."""
    return DryRun(plan.program, size).to_results(plan.ops).moves


def _rounds(items: float, most: int) -> int:
    return math.ceil(items / most)


class _Sums:
    """Bytes and messages of a mean worker."""

    def __init__(self) -> None:
        self._sums: dict[Key, tuple[float, float, float]] = {}
        self._labels = RelationLabels()

    def add(
        self,
        axis: str,
        primitive: str,
        layer: int,
        sent: float,
        messages: float,
        *relations: str,
        fewest: float | None = None,
    ) -> None:
        """Count bytes and messages, for some relations.

        Args:
            fewest: messages where as many groups as may be travel in one.
        """
        key = axis, primitive, layer, self._labels.of(*(relations or ("",)))
        more = sent, messages, messages if fewest is None else fewest
        before = self._sums.get(key, (0.0, 0.0, 0.0))
        self._sums[key] = before[0] + more[0], before[1] + more[1], before[2] + more[2]

    def traffic(self) -> list[PlannedTraffic]:
        """All that moves, rounded up; nothing that is zero."""
        return [
            PlannedTraffic(
                axis,
                primitive,
                layer,
                _whole(sent),
                _whole(messages),
                relation,
                _whole(fewest) if fewest < messages else None,
            )
            for (axis, primitive, layer, relation), (sent, messages, fewest) in self._sums.items()
            if sent
        ]


@dataclass
class _Traffic:
    """Sums of what one worker sends.

    Attributes:
        spills: the graph is on disk, of which a part travels at a time.
        counted: exchanges that happen once per layer graph, and were counted.
        uses: (axis, primitive) -> how often rows have come in groups.
    """

    graph: PlannedGraph
    program: Program
    fanout: Fanout
    spills: bool = False
    sums: _Sums = field(default_factory=_Sums)
    counted: set[tuple[object, ...]] = field(default_factory=set)
    uses: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.size: GraphSize = self.graph.size
        self.grid, self.workers = self.size.grid, self.size.workers
        self.widest = max(self.program.widths.values())
        self.loads: dict[str, NodeLoads] = {
            name: node_loads(of_type, self.workers) for name, of_type in self.graph.types.items()
        }

    def once(self, *what: object) -> bool:
        """Whether something is asked for the first time."""
        new = what not in self.counted
        self.counted.add(what)
        return new

    # -- before the layers -----------------------------------------------------------------

    def before_layers(self) -> None:
        """Edges to owners, and where features are."""
        peers = self.workers - 1
        for loads in self.loads.values():
            self.sums.add("world", "histogram", -1, peers * (8 + 8 * loads.histogram), 2 * peers)
        for name in self.graph.relations:
            self._shuffle(name)
        for name, of_type in self.graph.types.items():
            if of_type.node.features is not None:
                self._locate(name)
        if self.fanout is None:
            for name in self.program.relations:
                self._layer_graph(EdgeView(0, relation=name))

    def _shuffle(self, name: str) -> None:
        """A relation's edges, in rounds."""
        size, relation = self.size.of_relation(name), self.graph.relations[name]
        peers, away = self.workers - 1, 1 - 1 / self.workers
        loads = edge_loads(relation, size)
        rounds, mean = loads.rounds()
        counts = 8 * peers * (rounds + loads.buckets)
        edge = ID_BYTES + relation.carried_bytes
        parts = 1 + (relation.weight_bytes > 0) + (relation.features > 0)
        shuffled = edge * size.edges / self.workers * away + counts
        label = str(relation.relation) if self.graph.several else ""
        self.sums.add("world", "shuffle", -1, shuffled, peers * (1 + mean * parts), label)

    def _locate(self, name: str) -> None:
        """Where the features of a type are."""
        size, peers = self.size.of_type(name), self.workers - 1
        located = 2 * size.index_bytes * size.nodes / self.workers * (1 - 1 / self.workers)
        rounds, mean = self.loads[name].rounds(LOCATED_ROWS)
        sent = located + 8 * peers * rounds
        self.sums.add("world", "features", -1, sent, peers * (rounds + mean))
        for table in self.graph.types[name].splits.tables:
            self._read_table(name, table)

    def _read_table(self, name: str, table: TableSplit) -> None:
        """Rows of a model's table to the workers that loaded the features of their nodes."""
        size, peers = self.size.of_type(name), self.workers - 1
        away = (1 - 1 / self.workers) / self.workers
        rows = TABLE_CHUNK_BYTES // (FLOAT_BYTES * table.columns * self.workers)
        rounds = _rounds(table.rows / self.workers, max(1, rows))
        sent = (4 + FLOAT_BYTES * table.columns) * size.nodes * away + 16 * peers * rounds
        messages = 4 * rounds
        if table.split.ids_uri is not None:
            sent += 16 * table.rows * away + (size.index_bytes + 8) * size.nodes * away + 24 * peers
            messages += 6
        self.sums.add("world", "features", -1, sent, peers * messages)

    # -- tensors ---------------------------------------------------------------------------

    def move(self, move: Move) -> None:
        """Something moves, or is read in place; its layer graph comes first."""
        if self._is_read_in_place(move):
            self._gather_graphs(move)
            return
        match move:
            case Landing():
                self._land(move)
            case Conversion():
                self._convert(move)
            case Degrees():
                weighs = move.weighted and self._weight(move.view) > 0
                self._degrees(move.view, weighs)
            case TileRows():
                self._fetch(move)
            case LoadedRows():
                self._from_loaders(move)
            case WholeRows():
                self._whole_rows(move)
            case HeadScores():
                self._scatter(move)
            case Statistics():
                self._gather(move)

    def _is_read_in_place(self, move: Move) -> bool:
        """Whether workers of one host read it where it stands, so that nothing moves."""
        if isinstance(move, HeadScores | Statistics):
            return False
        # Slices of features that were loaded elsewhere are sent.
        sliced = isinstance(move, LoadedRows) and self.grid.feature > 1
        return self.size.in_place and not sliced

    def _gather_graphs(self, move: Move) -> None:
        """The layer graphs that something is read for are gathered."""
        if isinstance(move, Degrees):
            self._layer_graph(move.view)
        elif isinstance(move, TileRows | WholeRows | LoadedRows):
            self._union(move.view, move.together)

    def _land(self, move: Landing) -> None:
        """Each value of a loaded row once, and a row number for each that holds a part of it."""
        size, peers = self._of(move.x), self.workers - 1
        widest = max(move.width, self.program.widths[move.x])
        rows = max(1, size.group_bytes // (FLOAT_BYTES * widest))
        rounds, mean = self._loads_of(move.x).rounds(rows)
        row = move.value_bytes * move.width + ID_BYTES * move.copies
        landed = row * size.nodes / size.workers * (1 - 1 / size.workers)
        sent = landed + 8 * peers * rounds
        self.sums.add("world", "features", move.layer, sent, peers * (1 + 2 * mean))

    def _convert(self, move: Conversion) -> None:
        """Between tile and rows; scores of ends, which need whole rows too, count likewise."""
        size, others = self.size.of_type(move.node_type), self.grid.feature - 1
        value = size.row_bytes if move.primitive == "gemm" else FLOAT_BYTES
        sent = size.tensor(move.width, value) * others / size.feature
        messages = others * _rounds(size.nodes / size.workers, round_rows(move.width))
        self.sums.add("feature", move.primitive, move.layer, sent, messages)

    def _gather(self, move: Statistics) -> None:
        """A length, then the numbers."""
        members = {"feature": self.grid.feature, "graph": self.grid.graph, "world": self.workers}
        others = members[move.axis] - 1
        sent = others * (8 + 8 * move.numbers)
        self.sums.add(move.axis, "statistics", move.layer, sent, 2 * others)

    def _of(self, name: str) -> Size:
        """The nodes that a tensor is of."""
        return self.size.of_type(self.program.types[name])

    def _loads_of(self, name: str) -> NodeLoads:
        """What is read of these nodes."""
        return self.loads[self.program.types[name]]

    # -- steps over edges --------------------------------------------------------------------

    def _degrees(self, view: EdgeView, weighted: bool) -> None:
        """One number per unique remote row."""
        size = self._layer_graph(view)
        self._find(view, (view.relation,), "graph", self.grid.graph)
        if self.once("degrees", weighted, *self._variant(view)):
            self.sums.add("graph", "degrees", -1, 4 * size.unique(), size.graph - 1, view.relation)

    def _layer_graph(self, view: EdgeView) -> Size:
        """The partition's CSR; with samples every layer has a graph of its own."""
        size = self._over(view.layer, (view.relation,))
        if self.once("csr", self._graph_of(view.layer), view.relation):
            weight, others = self._weight(view), size.feature - 1
            edge = size.index_bytes + weight
            rows = (ID_BYTES * size.nodes + edge * size.edges) / size.workers
            parts = self._parts(size, view.relation)
            sent, messages = others * (rows + 8), others * (2 + parts * (2 if weight else 1))
            self.sums.add("feature", "csr", -1, sent, messages, view.relation)
        return size

    def _parts(self, size: Size, relation: str) -> int:
        """Parts of a sub-range that travel one at a time."""
        edges, features = size.edges / size.workers, self.graph.relations[relation].features
        return _rounds(edges, part_edges(edges, features)) if self.spills else 1

    def _union(self, view: EdgeView, together: tuple[str, ...]) -> Size:
        """The edges of relations whose sources' rows travel once for all, in a layer."""
        for name in together:
            self._layer_graph(view._replace(relation=name))
        return self._over(view.layer, together)

    def _over(self, layer: int, relations: Sequence[str]) -> Size:
        """The edges of relations in a layer."""
        fanout = None if self.fanout is None else self.fanout[layer]
        return self.size.of_relations(relations, fanout)

    def _weight(self, view: EdgeView) -> int:
        """Bytes of an edge's weight."""
        return self.graph.relations[view.relation].weight_bytes

    def _graph_of(self, layer: int) -> int:
        return 0 if self.fanout is None else layer

    def _variant(self, view: EdgeView) -> tuple[object, ...]:
        """Names the layer graph as a step sees it."""
        loops = view[1:4] if view.loops != "keep" else None
        return self._graph_of(view.layer), view.relation, loops

    def _find(self, view: EdgeView, together: tuple[str, ...], axis: str, members: int) -> None:
        """Which rows of others' ranges are needed: a list of them or bits, once per graph.

        Args:
            together: the relations whose sources are looked up together.
        """
        others = members - 1
        if others == 0 or not self.once("ids", axis, together, *self._variant(view)):
            return
        size = self._over(view.layer, together)
        listed = size.index_bytes * size.unique(members)
        asked = min(listed, others * math.ceil(size.columns / members / 8))
        self.sums.add(axis, "ids", -1, 8 * members * others + asked, 2 * others, *together)

    def _fetch(self, move: TileRows) -> None:
        """Unique rows of a tile, in groups."""
        view, together = move.view, move.together
        size = self._union(view, together)
        self._find(view, together, "graph", self.grid.graph)
        value = size.row_bytes if move.primitive == "spmm" else FLOAT_BYTES
        where = "graph", move.primitive, view.layer
        self._groups(size, where, together, size.unique(), value * move.columns)

    def _groups(
        self,
        size: Size,
        where: tuple[str, str, int],
        names: tuple[str, ...],
        unique: float,
        row: float,
    ) -> None:
        """Rows in groups, of which several may travel in one message where workers are apart."""
        axis, primitive, layer = where
        pairs, members = primitive == "sddmm", self.grid.graph if axis == "graph" else self.workers
        groups = _rounds(unique, size.group_rows(self.widest, 1 if pairs else size.feature))
        merged = size.merged
        most, fewest = ((members - 1) * count for count in (groups, _rounds(groups, merged)))
        self.sums.add(*where, row * unique, most, *names, fewest=fewest)
        self.uses[axis, primitive] += 1
        if merged > 1 and self.uses[axis, primitive] == 2:
            sent = 8 + 16 * len(numbers_tried(merged))
            self.sums.add(axis, "tuning", layer, sent * (members - 1), 2 * (members - 1), *names)

    def _scatter(self, move: HeadScores) -> None:
        """Scores of our sub-range to the others of the partition: a length, then the scores."""
        layer, relation, others = move.layer, move.relation, self.grid.feature - 1
        size = self._layer_graph(EdgeView(layer, relation=relation))
        if others:
            items = {"edge": size.edges, "source": size.columns, "target": size.nodes}[move.of]
            theirs = items / size.graph - items / size.workers
            parts = self._parts(size, relation) if move.of == "edge" else 1
            sent = FLOAT_BYTES * size.heads(move.heads) * theirs + 8 * others * parts
            self.sums.add("feature", move.primitive, layer, sent, 2 * others * parts, relation)

    def _whole_rows(self, move: WholeRows) -> None:
        """Unique whole rows to where the edges of a sub-range are, in groups."""
        size = self._union(move.view, move.together)
        self._find(move.view, move.together, "world", size.workers)
        where, unique = ("world", "sddmm", move.view.layer), size.unique(size.workers)
        self._groups(size, where, move.together, unique, size.row_bytes * move.width)

    def _from_loaders(self, move: LoadedRows) -> None:
        """Where features are, which of them we need, and then their rows, in groups."""
        size, loads = self._union(move.view, move.together), self._loads_of(move.x)
        layer, names = move.view.layer, move.together
        others, away = size.workers - 1, 1 - 1 / size.workers
        if move.scaled:
            asked = size.columns / size.workers * away
            scaled = (size.index_bytes + FLOAT_BYTES) * asked + 16 * others
            self.sums.add("world", "features", layer, scaled, 4 * others, *names)
        sources, parts = size.sources(size.graph) * away, _rounds(size.columns, LOOK_UP_NODES)
        look_up = 3 * size.index_bytes * sources + 16 * others * parts
        self.sums.add("world", "features", layer, look_up, 4 * others * parts, *names)
        ids = 8 * size.workers * others + size.index_bytes * sources
        _, readers = loads.rounds(size.columns)
        self.sums.add("world", "ids", -1, ids, others * (1 + readers), *names)
        row = size.row_bytes * move.width / size.feature
        self._groups(size, ("world", "features", layer), names, sources, row)


def _whole(value: float) -> int:
    return math.ceil(round(value, 3))
