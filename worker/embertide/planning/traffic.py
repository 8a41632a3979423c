"""Bytes and messages that every worker will send, by the formulas of ``docs/traffic.md``.

A mean over the workers, rounded up. What the graph decides is expected of edges whose ends are
drawn evenly; all else is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from embertide.footprint import FLOAT_BYTES, ID_BYTES, Size
from embertide.planning.inputs import Inputs
from embertide.planning.loads import Loads, loads_of
from embertide.planning.tensors import tensor_moves
from embertide.primitives.directory import LOCATED_ROWS
from embertide.primitives.gemm import BLOCK_ROWS
from embertide.primitives.graph import EdgeView
from embertide.primitives.sources import LOOK_UP_NODES
from embertide.spec.manifest import EmbeddingJob
from embertide.steps.moves import (
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
from embertide.steps.program import Program
from embertide.telemetry.report import PlannedTraffic


def planned_traffic(
    job: EmbeddingJob, inputs: Inputs, program: Program, size: Size
) -> list[PlannedTraffic]:
    """What one worker sends, per axis, primitive and layer; see ``docs/traffic.md``."""
    if size.workers == 1:
        return []
    plan = _Plan(job, program, size, loads_of(inputs, size))
    plan.before_layers()
    for move in tensor_moves(program, size):
        plan.move(move)
    return plan.found()


def _rounds(items: float, most: int) -> int:
    return math.ceil(items / most)


@dataclass
class _Plan:
    """Sums of what one worker sends.

    Attributes:
        size: with the edges of the layer graph that is read.
        sums: (axis, primitive, layer) -> bytes and messages.
        made: what is found once per layer graph, and has been.
    """

    job: EmbeddingJob
    program: Program
    size: Size
    loads: Loads
    sums: dict[tuple[str, str, int], tuple[float, float]] = field(default_factory=dict)
    made: set[tuple[object, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.edges, self.widest = self.size.edges, max(self.program.widths.values())

    def found(self) -> list[PlannedTraffic]:
        """What moves at all, rounded up."""
        return [
            PlannedTraffic(*key, *(math.ceil(round(value, 3)) for value in sums))
            for key, sums in self.sums.items()
            if sums[0]
        ]

    def add(self, axis: str, primitive: str, layer: int, sent: float, messages: float) -> None:
        """Count bytes and messages of a mean worker."""
        before = self.sums.get((axis, primitive, layer), (0.0, 0.0))
        self.sums[axis, primitive, layer] = before[0] + sent, before[1] + messages

    def once(self, *what: object) -> bool:
        """Whether something is asked for the first time."""
        new = what not in self.made
        self.made.add(what)
        return new

    # -- before the layers -----------------------------------------------------------------

    def before_layers(self) -> None:
        """Edges to owners, and where features are."""
        size, loads = self.size, self.loads
        peers, away = size.workers - 1, 1 - 1 / size.workers
        histogram = peers * (8 + 8 * loads.histogram)
        self.add("world", "histogram", -1, histogram, 2 * peers)
        edge = ID_BYTES + self._weight()
        rounds, mean = loads.edge_rounds()
        counts = 8 * peers * (rounds + loads.buckets)
        shuffled = edge * size.edges / size.workers * away + counts
        parts = 2 if self._weight() else 1
        self.add("world", "shuffle", -1, shuffled, peers * (1 + mean * parts))
        located = 2 * size.index_bytes * size.nodes / size.workers * away
        rounds, mean = loads.row_rounds(LOCATED_ROWS)
        self.add("world", "features", -1, located + 8 * peers * rounds, peers * (rounds + mean))
        if self.job.spec.inference.fanout == "full":
            self._layer_graph(0)

    def _weight(self) -> int:
        """Bytes of an edge's weight."""
        return FLOAT_BYTES if self.job.spec.input.edges[0].columns.weight is not None else 0

    # -- tensors ---------------------------------------------------------------------------

    def move(self, move: Move) -> None:
        """Something moves; what is not known yet of its layer graph is found first."""
        match move:
            case Landing():
                self._land(move)
            case Conversion():
                self._convert(move)
            case Degrees():
                self._degrees(move.view, move.weighted and self._weight() > 0)
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

    def _land(self, move: Landing) -> None:
        """Each value of a loaded row once, and a row number for each that holds a part of it."""
        size, peers = self.size, self.size.workers - 1
        widest = max(move.width, self.program.input_width)
        rounds, mean = self.loads.row_rounds(max(1, size.group_bytes // (FLOAT_BYTES * widest)))
        row = FLOAT_BYTES * move.width + ID_BYTES * move.copies
        landed = row * size.nodes / size.workers * (1 - 1 / size.workers)
        sent = landed + 8 * peers * rounds
        self.add("world", "features", move.layer, sent, peers * (rounds + 2 * mean))

    def _convert(self, move: Conversion) -> None:
        """Between tile and rows; scores of ends, which need whole rows too, count likewise."""
        size, others = self.size, self.size.feature - 1
        sent = size.tensor(move.width) * others / size.feature
        messages = others * _rounds(size.nodes / size.workers, BLOCK_ROWS)
        self.add("feature", move.primitive, move.layer, sent, messages)

    def _gather(self, move: Statistics) -> None:
        """A length, then the numbers."""
        members = {"feature": self.size.feature, "graph": self.size.graph}
        others = members.get(move.axis, self.size.workers) - 1
        sent = others * (8 + 8 * move.numbers)
        self.add(move.axis, "statistics", move.layer, sent, 2 * others)

    # -- steps over edges --------------------------------------------------------------------

    def _degrees(self, view: EdgeView, weighted: bool) -> None:
        """One number per unique remote row."""
        self._layer_graph(view.layer)
        self._find(view, "graph", self.size.graph, self.size.graph)
        if self.once("degrees", weighted, *self._variant(view)):
            others = self.size.graph - 1
            self.add("graph", "degrees", -1, 4 * self.size.unique(), others)

    def _layer_graph(self, layer: int) -> None:
        """The partition's CSR; with samples every layer has a graph of its own."""
        fanout, size = self.job.spec.inference.fanout, self.size
        if fanout != "full":
            self.size = size = replace(size, edges=min(self.edges, size.nodes * fanout[layer]))
        if not self.once("csr", self._graph_of(layer)):
            return
        edge, others = size.index_bytes + self._weight(), size.feature - 1
        rows = (ID_BYTES * size.nodes + edge * size.edges) / size.workers
        parts = 4 if self._weight() else 3
        self.add("feature", "csr", -1, others * (rows + 8), others * parts)

    def _graph_of(self, layer: int) -> int:
        return 0 if self.job.spec.inference.fanout == "full" else layer

    def _variant(self, view: EdgeView) -> tuple[object, ...]:
        """Names the layer graph as a step sees it."""
        loops = view[1:] if view.loops != "keep" else None
        return self._graph_of(view.layer), loops

    def _find(self, view: EdgeView, axis: str, ranges: int, members: int) -> None:
        """Which rows of others' ranges are needed: a list of them or bits, once per graph."""
        others = members - 1
        if others == 0 or not self.once("ids", axis, *self._variant(view)):
            return
        listed = self.size.index_bytes * self.size.unique(ranges)
        asked = min(listed, others * math.ceil(self.size.nodes / ranges / 8))
        self.add(axis, "ids", -1, 8 * members * others + asked, 2 * others)

    def _fetch(self, move: TileRows) -> None:
        """Unique rows of a tile, in groups."""
        self._layer_graph(move.view.layer)
        self._find(move.view, "graph", self.size.graph, self.size.graph)
        unique, row = self.size.unique(), FLOAT_BYTES * move.columns
        groups = _rounds(unique, self.size.group_rows(self.widest, self.size.feature))
        others = self.size.graph - 1
        self.add("graph", move.primitive, move.view.layer, row * unique, groups * others)

    def _scatter(self, move: HeadScores) -> None:
        """Scores of our sub-range to the others of the partition: a length, then the scores."""
        self._layer_graph(move.view.layer)
        size, others = self.size, self.size.feature - 1
        if others:
            items = size.edges if move.per_edge else size.nodes
            theirs = items / size.graph - items / size.workers
            sent = FLOAT_BYTES * size.heads(move.heads) * theirs
            self.add("feature", move.primitive, move.view.layer, sent + 8 * others, 2 * others)

    def _whole_rows(self, move: WholeRows) -> None:
        """Unique whole rows to where the edges of a sub-range are, in groups."""
        self._layer_graph(move.view.layer)
        size = self.size
        self._find(move.view, "world", size.workers, size.workers)
        unique, others = size.unique(size.workers), size.workers - 1
        groups = _rounds(unique, size.group_rows(self.widest, 1))
        sent = FLOAT_BYTES * move.width * unique
        self.add("world", "sddmm", move.view.layer, sent, groups * others)

    def _from_loaders(self, move: LoadedRows) -> None:
        """Where features are, which of them we need, and then their rows, in groups."""
        layer = move.view.layer
        self._layer_graph(layer)
        size, others = self.size, self.size.workers - 1
        away = 1 - 1 / size.workers
        if move.scaled:
            asked = size.nodes / size.workers * away
            self.add(
                "world", "features", layer,
                (ID_BYTES + FLOAT_BYTES) * asked + 16 * others, 4 * others,
            )  # fmt: skip
        sources, parts = size.sources(size.graph) * away, _rounds(size.nodes, LOOK_UP_NODES)
        look_up = (ID_BYTES + 2 * size.index_bytes) * sources + 16 * others * parts
        self.add("world", "features", layer, look_up, 4 * others * parts)
        ids = 8 * size.workers * others + size.index_bytes * sources
        _, readers = self.loads.row_rounds(size.nodes)
        self.add("world", "ids", -1, ids, others * (1 + readers))
        row = FLOAT_BYTES * move.width / size.feature
        groups = _rounds(sources, size.group_rows(self.widest, size.feature))
        self.add("world", "features", layer, row * sources, groups * others)
