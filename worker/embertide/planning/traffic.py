"""Bytes and messages that every worker will send, by the formulas of ``docs/traffic.md``.

A mean over the workers, rounded up. What the graph decides is expected of edges whose ends are
drawn evenly; all else is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from embertide.models import program as steps
from embertide.models.program import EdgeStep, Program
from embertide.planning.footprint import FLOAT_BYTES, ID_BYTES, Size
from embertide.planning.inputs import Inputs
from embertide.planning.loads import Loads, loads_of
from embertide.planning.tensors import Conversion, Gathering, Landing, tensor_moves
from embertide.primitives.directory import LOCATED_ROWS
from embertide.primitives.gemm import BLOCK_ROWS
from embertide.primitives.sources import LOOK_UP_NODES
from embertide.spec.manifest import EmbeddingJob
from embertide.telemetry.report import PlannedTraffic

_SCALED = ("out", "both", "sym_in", "sym_in_weighted")
"""Norms with factors of sources."""
_COUNTED_OUT = ("out", "both")
"""Norms that need out-degrees."""


def planned_traffic(
    job: EmbeddingJob, inputs: Inputs, program: Program, size: Size
) -> list[PlannedTraffic]:
    """What one worker sends, per axis, primitive and layer; see ``docs/traffic.md``."""
    if size.workers == 1:
        return []
    plan = _Plan(job, program, size, loads_of(inputs, size))
    plan.before_layers()
    for move in tensor_moves(program, size):
        match move:
            case Landing():
                plan.land(move)
            case Conversion():
                plan.convert(move)
            case Gathering():
                plan.gather(move)
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

    def land(self, move: Landing) -> None:
        """Each value of a loaded row once, and a row number for each that holds a part of it."""
        size, peers = self.size, self.size.workers - 1
        widest = max(move.width, self.program.input_width)
        rounds, mean = self.loads.row_rounds(max(1, size.group_bytes // (FLOAT_BYTES * widest)))
        row = FLOAT_BYTES * move.width + ID_BYTES * move.copies
        landed = row * size.nodes / size.workers * (1 - 1 / size.workers)
        sent = landed + 8 * peers * rounds
        self.add("world", "features", move.layer, sent, peers * (rounds + 2 * mean))

    def convert(self, move: Conversion) -> None:
        """Between tile and rows; scores of ends, which need whole rows too, count likewise."""
        size, others = self.size, self.size.feature - 1
        sent = size.tensor(move.width) * others / size.feature
        messages = others * _rounds(size.nodes / size.workers, BLOCK_ROWS)
        self.add("feature", move.primitive, move.layer, sent, messages)

    # -- steps over edges --------------------------------------------------------------------

    def gather(self, move: Gathering) -> None:
        """Scores, then rows of neighbours; patterns and degrees where they are not known yet."""
        step = move.step
        self._layer_graph(step.layer)
        if isinstance(step, steps.PairAttend):
            self._score_pairs(step)
        elif isinstance(step, steps.Attend):
            heads = FLOAT_BYTES * self.size.heads(step.heads)
            rows = self.size.nodes / self.size.graph - self.size.nodes / self.size.workers
            for _end in ("source", "target"):
                self._scatter(step, "scalars", heads * rows)
        norm = step.norm if isinstance(step, steps.Aggregate) else "none"
        if not move.loaded or norm in _COUNTED_OUT:
            self._find(step, "graph", self.size.graph, self.size.graph)
        if norm in _COUNTED_OUT and self.once("degrees", *self._variant(step)):
            others = self.size.graph - 1
            self.add("graph", "degrees", -1, 4 * self.size.unique(), others)
        if move.loaded:
            self._from_loaders(step, scaled=norm in _SCALED)
            return
        if isinstance(step, steps.Attend):
            self._fetch("graph", "scalars", step, FLOAT_BYTES * self.size.heads(step.heads))
        width = self.program.widths[step.x] / self.size.feature
        self._fetch("graph", "spmm", step, FLOAT_BYTES * width)

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

    def _variant(self, step: EdgeStep) -> tuple[object, ...]:
        """Names the layer graph as a step sees it."""
        loops = (step.loop_weight, step.edge_weight) if step.loops == "single" else None
        return self._graph_of(step.layer), loops

    def _find(self, step: EdgeStep, axis: str, ranges: int, members: int) -> None:
        """Which rows of others' ranges are needed: a list of them or bits, once per graph."""
        others = members - 1
        if others == 0 or not self.once("ids", axis, *self._variant(step)):
            return
        listed = self.size.index_bytes * self.size.unique(ranges)
        asked = min(listed, others * math.ceil(self.size.nodes / ranges / 8))
        self.add(axis, "ids", -1, 8 * members * others + asked, 2 * others)

    def _fetch(self, axis: str, primitive: str, step: EdgeStep, row: float) -> None:
        """Unique rows of a tile, of so many bytes each, in groups."""
        unique = self.size.unique()
        groups = _rounds(unique, self.size.group_rows(self.widest, self.size.feature))
        others = self.size.graph - 1
        self.add(axis, primitive, step.layer, row * unique, groups * others)

    def _scatter(self, step: EdgeStep, primitive: str, sent: float) -> None:
        """Scores of our sub-range to the others of the partition: a length, then the scores."""
        others = self.size.feature - 1
        if others:
            self.add("feature", primitive, step.layer, sent + 8 * others, 2 * others)

    def _score_pairs(self, step: steps.PairAttend) -> None:
        """Whole rows of keys to where the edges are scored, and the scores to the partition."""
        size, width = self.size, self.program.widths[step.key]
        self._find(step, "world", size.workers, size.workers)
        unique, others = size.unique(size.workers), size.workers - 1
        groups = _rounds(unique, size.group_rows(self.widest, 1))
        self.add("world", "sddmm", step.layer, FLOAT_BYTES * width * unique, groups * others)
        heads = FLOAT_BYTES * size.heads(step.heads)
        self._scatter(step, "sddmm", heads * (size.edges / size.graph - size.edges / size.workers))

    def _from_loaders(self, step: EdgeStep, *, scaled: bool) -> None:
        """Where features are, which of them we need, and then their rows, in groups."""
        size, others = self.size, self.size.workers - 1
        away = 1 - 1 / size.workers
        if scaled:
            asked = size.nodes / size.workers * away
            self.add(
                "world", "features", step.layer,
                (ID_BYTES + FLOAT_BYTES) * asked + 16 * others, 4 * others,
            )  # fmt: skip
        sources, parts = size.sources(size.graph) * away, _rounds(size.nodes, LOOK_UP_NODES)
        look_up = (ID_BYTES + 2 * size.index_bytes) * sources + 16 * others * parts
        self.add("world", "features", step.layer, look_up, 4 * others * parts)
        ids = 8 * size.workers * others + size.index_bytes * sources
        _, readers = self.loads.row_rounds(size.nodes)
        self.add("world", "ids", -1, ids, others * (1 + readers))
        row = FLOAT_BYTES * self.program.widths[step.x] / size.feature
        groups = _rounds(sources, size.group_rows(self.widest, size.feature))
        self.add("world", "features", step.layer, row * sources, groups * others)
