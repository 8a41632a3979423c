"""Excerpts of the graphs in which other nodes have the rows and degrees that a version has kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch

from embertide.engine.stages.infer.excerpt import Excerpt, Excerpts
from embertide.engine.stages.infer.loop import Engine
from embertide.engine.stages.infer.restoring import as_array
from embertide.graph.graph import Degrees, LayerGraph
from embertide.graph.views import EdgeView
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged, KeptTensor, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.memory import empty
from embertide.layouts import ROW_TYPES, Loaded, Shard
from embertide.program.plans.boundaries import Part
from embertide.program.plans.degrees import DegreeKind, kind_of
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


class KeptExcerpts(Excerpts):
    """Runs operations for some nodes of one process; other rows are those that were kept.

    Args:
        computed: node type -> [N] bool, the nodes whose rows are computed wherever they are read.
    """

    def __init__(
        self,
        engine: Engine,
        kept: KeptRows,
        computed: Mapping[str, Rows],
    ) -> None:
        super().__init__(engine)
        self._kept, self._computed = kept, computed
        self._layers: Mapping[int, Kept] = {}
        self._sealed: Kept | None = None
        self._values: dict[str, tuple[Rows, torch.Tensor]] = {}
        self._read: Mapping[str, SomeFeatures] = {}

    def take(self, features: Mapping[str, SomeFeatures]) -> None:
        """The features of all nodes that operations need these of, by node type."""
        self._read = features

    def begins_with(self, seals: Mapping[int, Seal]) -> None:
        """Number of an operation -> the kept layer with whose tensors a part begins there."""
        self._layers = {at: Kept(self._kept.store, seal) for at, seal in seals.items()}

    def open(self, part: Part) -> None:
        """Also the kept layer that the part begins with."""
        super().open(part)
        self._sealed = self._layers.get(part.first)

    def keep(self, name: str, rows: Rows, values: torch.Tensor) -> None:
        """Rows that were computed, for the operations after.

        Args:
            rows: [N] bool.
            values: [k, D] those rows.
        """
        self._values[name] = rows, values

    def shard(self, excerpt: Excerpt, name: str) -> Shard:
        """The rows of an excerpt: computed ones, else those that were kept.

        Raises:
            Damaged: they are not what was written.
        """
        whole, (sealed, tensor) = self.whole, self._checked(name)
        of_type, width = whole.program.types[name], whole.program.widths[name]
        rows = excerpt.rows[of_type].nonzero().squeeze(1)
        data = torch.zeros(len(rows), width, dtype=whole.tensors.type_of(name))
        computed, values = self._values.get(name, (torch.zeros_like(excerpt.rows[of_type]), None))
        own = computed[rows]
        before = self._kept.before[of_type][rows]
        # A new node that no row needs is only there to fill an excerpt.
        kept = (~own & (before >= 0)).nonzero().squeeze(1)
        read = empty((len(kept), width), data.dtype)
        sealed.get(name, before[kept].numpy(), as_array(read))
        data[kept] = read
        if values is not None:
            data[own] = values[excerpt.rows[of_type][computed]]
        return Shard(tensor.layout, data, width)

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

    def _checked(self, name: str) -> tuple[Kept, KeptTensor]:
        """The kept layer, and a tensor of it, as this run would keep it.

        Raises:
            Damaged: it is not there, or of another form.
        """
        whole, uri = self.whole, self._kept.store.uri
        if self._sealed is None:
            raise Damaged(f"{uri}: {name} was not kept")
        tensor = self._sealed.tensor(name)
        shape = whole.program.widths[name], whole.tensors.type_of(name)
        if (tensor.width, ROW_TYPES.get(tensor.dtype)) != shape:
            raise Damaged(f"{uri}: {name} has another width or type")
        if tensor.scaled != (name in whole.scaled):
            raise Damaged(f"{uri}: {name} was kept in another way")
        return self._sealed, tensor

    def graph(self, excerpt: Excerpt, graph: LayerGraph, wanted: Rows) -> LayerGraph:
        """A layer graph with the edges of some rows, and the degrees that others had then."""
        own = super().graph(excerpt, graph, wanted)
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
