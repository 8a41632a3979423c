"""Where the rows are that a part begins with: in memory, or among those that a version has kept.

Rows that were put are newer, and stand in the place of these: those that earlier parts have
computed, or exact rows where dependents have seen others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch

from embertide.engine.stages.infer.excerpt import Excerpt
from embertide.engine.stages.infer.loop import Engine
from embertide.engine.stages.infer.moved import Beside
from embertide.engine.stages.infer.overlay import Overlay
from embertide.graph.graph import Degrees, LayerGraph
from embertide.graph.views import EdgeView
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.layouts import Loaded, Shard
from embertide.program.plans.boundaries import Part
from embertide.program.plans.flow import DegreeKind, kind_of
from embertide.program.steps.frontier import Rows
from embertide.program.steps.reference import End
from embertide.spec.relations import ends_of


@dataclass(frozen=True, kw_only=True)
class KeptRows:
    """What a version has kept, for a process that computes some nodes' rows over it.

    Attributes:
        basis: what its layers rest on, as their names have it.
        before: node type -> [N] int64, the dense id that each node had then; -1: it is new.
        degrees: kind -> [N] float32, the degrees that nodes had then; of new nodes they mean
            nothing.
        same: relations whose edges, and nodes, are those of the version: their graph has the
            in-edges of the nodes that are computed, and no other out-edges.
    """

    store: LayerStore
    basis: str
    before: Mapping[str, torch.Tensor]
    degrees: Mapping[DegreeKind, torch.Tensor]
    same: Collection[str] = ()


@dataclass(frozen=True)
class SomeFeatures:
    """The features of some nodes.

    Attributes:
        rows: [N] bool, these nodes.
        values: [k, D] float32, in the order of the dense ids.
    """

    rows: Rows
    values: torch.Tensor


@dataclass(frozen=True)
class DegreesThen:
    """Degrees of a graph: of the nodes that are computed now's, of others those that were kept.

    Attributes:
        now: the graph with the edges of the nodes that are computed.
        computed: [N] bool, of the destination type and of the source type: the nodes of which all
            in-edges, or all out-edges, are there.
    """

    now: LayerGraph
    view: EdgeView
    kept: Mapping[DegreeKind, torch.Tensor]
    computed: tuple[Rows, Rows]

    def variant(self, view: EdgeView) -> Degrees:
        """Those of the graph as a step sees it."""
        return replace(self, now=self.now.variant(view), view=view)

    def in_degree(self) -> torch.Tensor:
        """[N] in-edges."""
        return self._mixed(self.now.in_degree(), "in", weighted=False)

    def weighted_in_degree(self) -> torch.Tensor:
        """[N] sums of the weights of in-edges."""
        weighted = self.now.csr.weighted
        return self._mixed(self.now.weighted_in_degree(), "in", weighted=weighted)

    def out_degree(self) -> torch.Tensor:
        """[N] out-edges."""
        return self._mixed(self.now.out_degree(), "out", weighted=False)

    def weighted_out_degree(self) -> torch.Tensor:
        """[N] sums of the weights of out-edges."""
        weighted = self.now.csr.weighted
        return self._mixed(self.now.weighted_out_degree(), "out", weighted=weighted)

    def _mixed(self, now: torch.Tensor, end: End, *, weighted: bool) -> torch.Tensor:
        kept = self.kept.get(kind_of(self.view, end, weighted=weighted))
        if kept is None:
            # Only rows that are computed are multiplied by it.
            assert end == "in" or bool(self.computed[1].any()), "out-edges are not there"
            return now
        return torch.where(self.computed[0 if end == "in" else 1], now, kept)


class RowStore:
    """Rows of tensors; features stay as they are.

    Attributes:
        laid: tensors that were kept, with the rows that were computed over them.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.whole = engine, engine.whole
        self.laid = dict[str, Overlay]()
        self._newer = dict[str, Beside]()
        self._there = dict[str, Shard]()

    def over(self) -> RowStore:
        """The same rows, in the place of which others may be put."""
        store = RowStore(self.engine)
        store.laid = self.laid
        return store

    def lay(self, tensors: Mapping[str, Overlay], freed: Collection[str]) -> None:
        """Tensors that later parts read, and those that none does any more."""
        for name in freed:
            self.laid.pop(name, None)
        self.laid |= {name: rows for name, rows in tensors.items() if name not in freed}

    def take(self, shards: Mapping[str, Shard]) -> None:
        """What an excerpt has of tensors, in memory."""
        self._there = dict(shards)

    def put(self, name: str, rows: Beside) -> None:
        """Rows of our shard of a tensor, in place of those that are there."""
        self._newer[name] = rows

    def begin(self, part: Part) -> None:
        """What comes next is read for a part."""

    def get(self, excerpt: Excerpt, name: str) -> Shard:
        """Our rows of an excerpt of a tensor that a part begins with."""
        newer = self._newer.get(name)
        shard = self._older(excerpt, name, newer)
        if newer is not None:
            of_type = self.whole.program.types[name]
            newer.put_into(shard.data, excerpt.of_ours(self.whole, of_type, shard.layout))
        return shard

    def _older(self, excerpt: Excerpt, name: str, _newer: Beside | None) -> Shard:
        """The same of what is there, but for newer rows."""
        if name in self._there:
            return self._there[name]
        rows, of_type = self.laid[name], self.whole.program.types[name]
        numbers = excerpt.of_ours(self.whole, of_type, rows.layout)
        return Shard(rows.layout, rows.rows(numbers), rows.width)

    def features(self, part: Part, excerpt: Excerpt, node_type: str) -> Loaded:
        """The features of an excerpt's nodes, if an operation of a part or of later ones reads
        them; none else. Collective: every rank must call."""
        name, given = part.plan.program.inputs[node_type], self.engine.loaded[node_type]
        if part.plan.last_reads.get(name, -1) < part.first:
            return Loaded(given.ids[:0], given.data[:0], placed=True)
        channel = self.whole.exchange.channel("world", "features")
        return excerpt.features(self.whole, channel, node_type, given)

    def with_degrees(self, _graph: LayerGraph, own: LayerGraph) -> LayerGraph:
        """An excerpt's layer graph with the degrees of all nodes."""
        return own


class KeptStore(RowStore):
    """Rows and degrees of all nodes that a version has kept, for one process.

    Args:
        computed: node type -> [N] bool, the nodes whose rows are computed wherever they are read.
        seals: number of an operation -> the kept layer that a part begins with there.
    """

    def __init__(
        self,
        engine: Engine,
        kept: KeptRows,
        computed: Mapping[str, Rows],
        seals: Mapping[int, Seal],
    ) -> None:
        super().__init__(engine)
        self._kept, self._computed = kept, computed
        self._layers = {at: Kept(kept.store, seal) for at, seal in seals.items()}
        self._sealed: Kept | None = None
        self._read: Mapping[str, SomeFeatures] = {}

    def take_features(self, features: Mapping[str, SomeFeatures]) -> None:
        """The features of all nodes that parts need these of, by node type."""
        self._read = features

    def begin(self, part: Part) -> None:
        """See :class:`RowStore`."""
        self._sealed = self._layers.get(part.first)

    def _older(self, excerpt: Excerpt, name: str, newer: Beside | None) -> Shard:
        """The rows that were kept.

        Raises:
            Damaged: they are not what was written.
        """
        rows, of_type = self._kept_rows(name), self.whole.program.types[name]
        if newer is not None:
            rows.put(newer.rows, newer.values)
        # A new node that no row needs is only there to fill an excerpt.
        numbers = excerpt.of_ours(self.whole, of_type, rows.layout)
        return Shard(rows.layout, rows.read(numbers), rows.width)

    def features(self, part: Part, excerpt: Excerpt, node_type: str) -> Loaded:
        """The features of an excerpt's nodes, if an operation of a part or of later ones reads
        them."""
        plan, name = part.plan, part.plan.program.inputs[node_type]
        rows = excerpt.rows[node_type]
        if plan.last_reads.get(name, -1) < part.first:
            rows = torch.zeros_like(rows)
        there = rows.nonzero().squeeze(1)
        # Of a node that is only there to fill an excerpt they may not have been read.
        data = torch.zeros(len(there), plan.program.widths[name])
        if (read := self._read.get(node_type)) is not None:
            data[read.rows[there]] = read.values[rows[read.rows]]
        return Loaded(torch.empty(0, dtype=torch.int64), data, placed=True)

    def _kept_rows(self, name: str) -> Overlay:
        """A tensor of the kept layer, as this run would keep it.

        Raises:
            Damaged: it is not there, or of another form.
        """
        uri = self._kept.store.uri
        if self._sealed is None:
            raise Damaged(f"{uri}: {name} was not kept")
        tensor = self._sealed.tensor(name)
        if tensor.scaled != (name in self.whole.scaled):
            raise Damaged(f"{uri}: {name} was kept in another way")
        return Overlay(self.whole, self._sealed, self._kept.before, tensor)

    def with_degrees(self, graph: LayerGraph, own: LayerGraph) -> LayerGraph:
        """Those of nodes that are computed are the graph's, of others those that they had then."""
        source, destination = ends_of(graph.relation)
        by_source = self._computed[source]
        if graph.relation in self._kept.same:
            by_source = torch.zeros_like(by_source)
        then = DegreesThen(
            graph,
            EdgeView(0, edge_weight=True, relation=graph.relation),
            self._kept.degrees,
            (self._computed[destination], by_source),
        )
        return replace(own, whole=then, _variants={}, _patterns={}, _features={})
