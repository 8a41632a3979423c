"""A layer's graph on one rank: its partition's in-edges, degrees and exchange patterns.

Patterns are found on first use and kept for all layers that share the graph. Whatever is found
on first use is collective: all ranks call the same methods in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch

from embertide.grid import RowRanges
from embertide.kernels.block import Block
from embertide.kernels.counting import add_weights, count_values, row_lengths, row_sums
from embertide.kernels.csr import Csr, single_loops, without_loops
from embertide.primitives.exchange import Exchange
from embertide.primitives.sources import (
    LoadedHolders,
    RangeHolders,
    Sources,
    find_shared_sources,
    find_sources,
    local_sources,
)

Loops = Literal["keep", "single", "none"]
"""``single``: the layer graph with exactly one self-loop per node, as PyG's convolutions make it;
``none``: without self-loops; ``keep``: as it is. Where edge weights count, an existing loop keeps
its weight (of several the heaviest, so that the order of edges never matters) and a new one gets
``loop_weight``; where they do not (not asked for, or the graph has none) every edge and loop
counts 1, whatever ``loop_weight`` says: PyG does so."""


class EdgeView(NamedTuple):
    """A layer graph as a step sees it; ``relation`` is "" in a graph that has one."""

    layer: int
    loops: Loops = "keep"
    loop_weight: float = 1.0
    edge_weight: bool = False
    relation: str = ""


@dataclass(frozen=True)
class EdgeNeeds:
    """What a program needs of a layer graph beside the tile pattern.

    Attributes:
        positions: tile blocks carry each non-zero's position in the CSR (pair attention).
        again: the CSR's columns are read again after the tile pattern has been found.
    """

    positions: bool
    again: bool


@dataclass(kw_only=True)
class LayerGraph:
    """The whole layer graph of a relation, seen by a rank that holds the rows of its partition.

    Its rows are the nodes of the destination type, its columns those of the source type: a matrix
    that need not be square. Only a relation within one type can have self-loops.

    Attributes:
        targets: ranges of the destination type.
        origins: ranges of the source type; the same within one type.
        csr: in-edges of partition p, node ids as columns, on the CPU. Once nothing will read
            the columns again they are dropped; rows and weights stay.
        group_rows: slots per remote group of tiles.
        pair_rows: slots per remote group of whole rows.
        needs: what the program needs of its layer graphs.
        relation: by which its transfers are counted; "" in a graph that has one.
    """

    exchange: Exchange
    targets: RowRanges
    origins: RowRanges
    csr: Csr
    group_rows: int
    pair_rows: int
    needs: EdgeNeeds
    relation: str = ""
    _tiles: Sources | None = None
    _pairs: Sources | None = None
    _out_degree: torch.Tensor | None = None
    _weighted_in_degree: torch.Tensor | None = None
    _weighted_out_degree: torch.Tensor | None = None
    _shared: dict[tuple[str, ...], list[Sources]] = field(default_factory=dict)
    _variants: dict[tuple[str, float, bool], LayerGraph] = field(default_factory=dict)

    def variant(self, view: EdgeView) -> LayerGraph:
        """The graph as a step sees it: this one, or one with other self-loops."""
        if view.loops == "keep":
            return self
        key = (view.loops, view.loop_weight, view.edge_weight)
        if key not in self._variants:
            csr = self.csr if view.edge_weight else self.csr.without_weights()
            self._variants[key] = LayerGraph(
                exchange=self.exchange,
                targets=self.targets,
                origins=self.origins,
                csr=_looped(csr, view),
                group_rows=self.group_rows,
                pair_rows=self.pair_rows,
                needs=self.needs,
                relation=self.relation,
            )
            self._drop_columns()
        return self._variants[key]

    def tiles(self) -> Sources:
        """Sources of our partition's rows in the ``tile`` layout.

        Collective: every rank of the graph axis must call.
        """
        if self._tiles is None:
            channel = self.exchange.channel("graph", "ids", relations=[self.relation])
            if channel.axis.size == 1:
                self._tiles = local_sources(self.csr, channel.axis, channel.device)
            else:
                self._tiles = find_sources(
                    channel,
                    self.csr,
                    RangeHolders.tiles(self.origins, channel.axis),
                    nodes=self.origins.nodes,
                    group_rows=self.group_rows,
                    edges=self.needs.positions,
                )
                self._drop_columns()
        return self._tiles

    def tiles_with(self, relations: tuple[str, ...], graphs: Sequence[LayerGraph]) -> list[Sources]:
        """Sources of several graphs with the same columns, whose rows travel once for all.

        Collective: every rank of the graph axis must call.

        Args:
            relations: what tells the graphs apart from others of this layer.
            graphs: this one and the others.
        """
        if relations not in self._shared:
            channel = self.exchange.channel("graph", "ids", relations=relations)
            self._shared[relations] = find_shared_sources(
                channel,
                [graph.csr for graph in graphs],
                RangeHolders.tiles(self.origins, channel.axis),
                nodes=self.origins.nodes,
                group_rows=self.group_rows,
                edges=False,
            )
        return self._shared[relations]

    def pairs(self) -> Sources:
        """Sources of our sub-range's rows in the ``rows`` layout, with full width.

        Collective: every rank must call.
        """
        if self._pairs is None:
            channel = self.exchange.channel("world", "ids", relations=[self.relation])
            if channel.axis.size == 1:
                self._pairs = local_sources(self.sub_range(), channel.axis, channel.device)
            else:
                self._pairs = find_sources(
                    channel,
                    self.sub_range(),
                    RangeHolders.rows(self.origins, channel.axis),
                    nodes=self.origins.nodes,
                    group_rows=self.pair_rows,
                    edges=True,
                )
        return self._pairs

    def loaded(self, holders: LoadedHolders) -> Sources:
        """Sources of our partition's rows where their features were loaded; not kept.

        Collective: every rank must call.
        """
        return find_sources(
            self.exchange.channel("world", "ids", relations=[self.relation]),
            self.csr,
            holders,
            nodes=self.origins.nodes,
            group_rows=self.group_rows,
            edges=False,
        )

    def _drop_columns(self) -> None:
        if not self.needs.again:
            self.csr = replace(self.csr, cols=self.csr.cols.new_empty(0))

    def sub_range(self) -> Csr:
        """Our sub-range's rows of the partition."""
        return self.csr.slice(*self.targets.within(self.exchange.grid.rank))

    def in_degree(self) -> torch.Tensor:
        """[N/P] in-edges of each destination of our partition, float32."""
        return row_lengths(self.csr.indptr).to(self.exchange.device)

    def weighted_in_degree(self) -> torch.Tensor:
        """[N/P] sum of the stored weights of each row's in-edges; of ones without weights."""
        if self.csr.weights is None:
            return self.in_degree()
        if self._weighted_in_degree is None:
            total = row_sums(self.csr.indptr, self.csr.weights)
            self._weighted_in_degree = total.to(self.exchange.device)
        return self._weighted_in_degree

    def out_degree(self) -> torch.Tensor:
        """[N/P] out-edges of each source of our partition *in the whole graph*, float32.

        Each rank counts its non-zeros' sources and sends the counts to the sources' holders: one
        int32 per unique remote row. Collective: every rank of the graph axis must call.
        """
        if self._out_degree is None:
            self._out_degree = self._count_out()
        return self._out_degree

    def weighted_out_degree(self) -> torch.Tensor:
        """[N/P] sum of the stored weights of each row's out-edges; of ones without weights.

        Adds and sends as :meth:`out_degree` counts. Collective: every rank of the graph axis
        must call.
        """
        if self.csr.weights is None:
            return self.out_degree()
        if self._weighted_out_degree is None:
            self._weighted_out_degree = self._add_out(torch.float32, add_weights)
        return self._weighted_out_degree

    def _count_out(self) -> torch.Tensor:
        return self._add_out(torch.int32, lambda block, to: count_values(block.indices, to)).float()

    def _add_out(
        self, kind: torch.dtype, add: Callable[[Block, torch.Tensor], None]
    ) -> torch.Tensor:
        """[N/P] what the edges to anywhere add up to at each of our rows as a source.

        Args:
            add: adds what a block's non-zeros have to their sources.
        """
        sources = self.tiles()
        channel = self.exchange.channel("graph", "degrees", relations=[self.relation])
        start, stop = self.origins.partition(self.exchange.grid.p)
        degree = torch.zeros(stop - start, dtype=kind, device=channel.device)
        add(sources.local, degree)
        by_slot = degree.new_zeros(sources.unique)
        sent: dict[int, list[torch.Tensor]] = {i: [] for i in sources.requests}
        for number, block in enumerate(sources.remote):
            add(block, by_slot[slice(*sources.group(number))])
            for i, first, last in sources.incoming(number):
                sent[i].append(by_slot[first:last])
        received = {i: degree.new_empty(len(r.rows)) for i, r in sources.requests.items()}
        channel.start(
            [(i, torch.cat([degree.new_empty(0), *parts])) for i, parts in sent.items()],
            list(received.items()),
        ).wait()
        for i, request in sources.requests.items():
            degree.index_add_(0, request.rows, received[i])
        return degree


def _looped(csr: Csr, view: EdgeView) -> Csr:
    """The graph with the self-loops that a view has."""
    return without_loops(csr) if view.loops == "none" else single_loops(csr, view.loop_weight)
