"""What edges and the graph take where they are on disk: memory, and bytes to the disk and back.

Edges are written as they are read, sorted by way of the disk into parts of consecutive rows, and
gone over part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from embertide.engine.planning.edge_memory import (
    SortingBytes,
    csr_bytes,
    edge_types,
    key_bytes_of,
    logged_bytes,
    logging_bytes,
    looping_bytes,
    relations,
    sending_bytes,
)
from embertide.engine.planning.graph import PlannedGraph, PlannedRelation
from embertide.footprint import ID_BYTES, Size
from embertide.graph.edge_log import log_bytes
from embertide.graph.views import EdgeView
from embertide.kernels.spilled_sort import READ_EDGES, part_edges
from embertide.program.steps.base import EdgeStep, Step
from embertide.program.steps.message import Message

_PARTS = 3
"""Parts that are in memory: what the kernels go over, the next one, and the one that is read."""
_BATCHES = 3
"""How often a batch of packed edges is in memory: as it comes, its buckets, and in their order."""


def spilled_sorting(graph: PlannedGraph, worker: int) -> SortingBytes:
    """Bytes in memory while edges are sorted by way of the disk, one relation after another; of
    those before, the ends of rows stay."""
    peak = kept = done = 0.0
    for relation, size in relations(graph):
        each = _sorting(relation, size, worker)
        peak, kept = max(peak, done + each.peak), max(kept, done + each.kept)
        done += csr_bytes(relation, size, spills=True)
    return SortingBytes(peak, kept)


def _sorting(relation: PlannedRelation, size: Size, worker: int) -> SortingBytes:
    index, carried = size.index_bytes, relation.carried_bytes
    edges, nodes = size.edges / size.workers, size.nodes / size.workers
    part = min(edges, float(part_edges(edges, relation.features)))
    batch = part / 2 * (ID_BYTES + carried)
    taking = _BATCHES * batch + logging_bytes(relation, size)
    keys = part * (key_bytes_of(relation, size) + carried)
    reading = min(float(READ_EDGES), part) * (ID_BYTES + carried)
    rows = _part_rows(relation, size)
    # Of features, those that stay are copied.
    removing = part * relation.feature_bytes * (relation.edge.duplicates == "remove")
    sorting = batch + keys + max(reading, part * index + removing) + ID_BYTES * rows
    if relation.edge.adds_loops:
        sorting = max(sorting, batch + looping_bytes(relation, size, part, rows))
    kept = max(taking, sorting) + ID_BYTES * nodes
    sending = taking + sending_bytes(relation, size, worker) + ID_BYTES * nodes
    return SortingBytes(max(kept, sending), kept)


def _part_rows(relation: PlannedRelation, size: Size) -> float:
    """Rows of a part; without edges all of a worker's are one."""
    edges, rows = size.edges / size.workers, size.nodes / size.workers
    return rows * min(1.0, part_edges(edges, relation.features) / edges) if edges else rows


@dataclass
class SpilledGraph:
    """The bytes that one worker moves for a graph on disk, as operations go over it.

    Attributes:
        graph: on the grid that computes the layers.
        fanout: in-edges that each layer samples of a node; None: all of them.
        building: bytes of files that are gone by then.
        read, written: bytes so far.
    """

    graph: PlannedGraph
    fanout: Sequence[int] | None = None
    building: float = 0.0
    read: float = 0.0
    written: float = 0.0
    _whole: float = 0.0
    _layers: dict[int, float] = field(default_factory=dict)
    _passes: set[tuple[object, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Count what it takes until the graph is there."""
        sorted_bytes = 0.0
        for relation, size in edge_types(self.graph):
            edges, edge_bytes = size.edges / size.workers, logged_bytes(relation, size)
            self.written += edges * edge_bytes
            self.building += log_bytes(edges, edge_bytes)
            if len(relation.edge.relations) > 1:
                # Sources are counted as destinations of the reverse.
                self.read += edges * size.end_bytes / 2
        for relation, size in relations(self.graph):
            edges = size.edges / size.workers
            ends = edges * logged_bytes(relation, size)
            keys = edges * (ID_BYTES + relation.carried_bytes)
            counted = edges * size.end_bytes / 2 if size.workers > 1 else 0.0
            loops = size.nodes / size.workers if relation.edge.adds_loops else 0.0
            csr = (edges + loops) * _column_bytes(relation, size)
            # All workers of a partition have its edges, of samples those alone.
            members = size.feature if self.fanout is None else 1
            self.read += ends + counted + keys + (csr if members > 1 else 0.0)
            self.written += keys + members * csr
            self._whole += members * csr
            sorted_bytes = max(sorted_bytes, keys)
        self.building += sorted_bytes

    @property
    def disk(self) -> float:
        """Bytes of its files while layers are computed; samples are those of two layers."""
        pairs = (own + self._layers.get(layer + 1, 0.0) for layer, own in self._layers.items())
        return self._whole + max(pairs, default=0.0)

    def _write(self, view: EdgeView, size_bytes: float) -> None:
        self.written += size_bytes
        layer = self._seen(view).layer
        self._layers[layer] = self._layers.get(layer, 0.0) + size_bytes

    @property
    def part(self) -> float:
        """Bytes of the edges that are in memory while a sum goes over them."""
        most = 0.0
        for relation, size in relations(self.graph):
            edges = size.edges / size.workers
            # Read in place, sources are rows of all workers' tensors.
            places = size.index_bytes if size.graph > 1 else 0
            longest = min(edges, float(part_edges(edges, relation.features)))
            one = longest * (_column_bytes(relation, size) + places)
            ends = min(_PARTS * _part_rows(relation, size), size.nodes / size.workers)
            most = max(most, _PARTS * one + ID_BYTES * ends)
        return most

    @property
    def gathering(self) -> float:
        """Bytes while workers of a partition get each other's parts, with the ends of all rows."""
        ends = sum(ID_BYTES * size.nodes / size.graph for _, size in relations(self.graph))
        return ends + self.part * (_PARTS + self.graph.size.grid.feature - 1) / _PARTS

    def go_over(self, steps: Sequence[EdgeStep], times: int) -> None:
        """Steps whose sources are found together are run so many times, each over its edges, after
        what it first needs of them."""
        for step in steps:
            self.read_degrees(step)
        self._find_sources([step.edges for step in steps], pairs=not steps[0].tiles)
        self.read += times * sum(step.passes * self._csr(step.edges) for step in steps)
        self._go_over_features(steps)

    def _go_over_features(self, steps: Sequence[EdgeStep]) -> None:
        """Steps that read features of edges, which have files of their own with other
        self-loops."""
        for step in steps:
            view, relation = step.edges, self.graph.relations[step.relation]
            if not isinstance(step, Message) or not step.edge_columns:
                continue
            features = self._edges(view) * relation.feature_bytes
            key = "features", self._seen(view), step.loop_features
            if view.loops != "keep" and key not in self._passes:
                self._passes.add(key)
                kept = view._replace(loops="keep")
                own = self._edges(kept) * relation.feature_bytes
                self.read += self._bytes(kept, weighted=False) + own
                self._write(view, features)
            self.read += features

    def read_degrees(self, step: Step) -> None:
        """A step reads degrees, which stay once they are known; in memory is where a row ends."""
        view = step.edges
        if view is None:
            return
        self._sample(view)
        if view.loops != "keep" and ("loops", self._seen(view)) not in self._passes:
            self._passes.add(("loops", self._seen(view)))
            self.read += self._bytes(view._replace(loops="keep"), weighted=view.edge_weight)
            self._write(view, self._csr(view))
        for end, by_weight in sorted(step.degrees_needed):
            weighted = by_weight and view.edge_weight and self._is_weighted(view)
            if end == "out":
                self._find_sources([view])
            if end == "out" or weighted:
                self._once([view], end, weighted)

    def _sample(self, view: EdgeView) -> None:
        """A layer's sample is drawn from all edges, once."""
        whole = EdgeView(view.layer, relation=view.relation)
        if self.fanout is None or ("sample", whole) in self._passes:
            return
        self._passes.add(("sample", whole))
        relation, size = self.graph.relations[view.relation], self.graph.size
        of_all = size.of_relation(view.relation)
        loops = of_all.nodes * relation.edge.adds_loops
        carried = _column_bytes(relation, of_all)
        self.read += (of_all.edges + loops) / of_all.workers * carried
        sample = self._edges(whole) * of_all.graph / of_all.workers
        self._write(whole, sample * carried)
        if of_all.feature > 1:
            columns = self._csr(whole)
            self.read += columns / of_all.feature
            self._write(whole, columns * (of_all.feature - 1) / of_all.feature)

    def _find_sources(self, views: Sequence[EdgeView], *, pairs: bool = False) -> None:
        """Workers that read in place count what they read of others, for each set of relations;
        once more where whole rows of sub-ranges are looked up (``pairs``)."""
        if self.graph.size.of_relation(views[0].relation).graph > 1:
            self._once(views, "pairs" if pairs else "places")

    def _once(self, views: Sequence[EdgeView], *what: object) -> None:
        """Go over the edges of some graphs, unless that was done."""
        key = (*what, *map(self._seen, views))
        if key not in self._passes:
            self._passes.add(key)
            self.read += sum(map(self._csr, views))

    def _is_weighted(self, view: EdgeView) -> bool:
        return self.graph.relations[view.relation].weight_bytes > 0

    def _csr(self, view: EdgeView) -> float:
        """Bytes of a worker's graph as a step sees it; other self-loops have files of their own,
        and weights there only where the step reads some."""
        return self._bytes(view, weighted=view.loops == "keep" or view.edge_weight)

    def _bytes(self, view: EdgeView, *, weighted: bool) -> float:
        relation = self.graph.relations[view.relation]
        index = self.graph.size.of_relation(view.relation).index_bytes
        return self._edges(view) * (index + (relation.weight_bytes if weighted else 0))

    def _edges(self, view: EdgeView) -> float:
        """A worker's edges as a step sees them."""
        relation = self.graph.relations[view.relation]
        size = self.graph.size.of_relation(view.relation)
        # Other self-loops take the place of those that the job adds, but for one more each.
        own = relation.edge.adds_loops and view.loops in ("keep", "more")
        edges = size.edges + size.nodes * own
        if self.fanout is not None:
            edges = min(edges, size.nodes * self.fanout[view.layer])
        return (edges + size.nodes * (view.loops in ("single", "replace", "more"))) / size.graph

    def _seen(self, view: EdgeView) -> EdgeView:
        """The same for all views that see the same graph, in all layers that have it."""
        layer = 0 if self.fanout is None else view.layer
        if view.loops == "keep":
            return EdgeView(layer, relation=view.relation)
        return view._replace(layer=layer)


def _column_bytes(relation: PlannedRelation, size: Size) -> int:
    """Bytes of an edge of the graph, with all that it carries."""
    return size.index_bytes + relation.carried_bytes


def spilled_graph(
    graph: PlannedGraph, fanout: Sequence[int] | None = None, *, spills: bool
) -> SpilledGraph | None:
    """What the graph takes on disk; None where it is in memory."""
    return SpilledGraph(graph, fanout) if spills else None
