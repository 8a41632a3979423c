"""A layer's graph on one rank: its partition's in-edges, degrees and exchange patterns.

Patterns are found on first use and kept for all layers that share the graph. Whatever is found
on first use is collective: all ranks call the same methods in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol

import numpy as np
import torch

from embertide.graph.exchange import Channel, Exchange
from embertide.graph.in_place import WindowRows, shared
from embertide.graph.sources import (
    LoadedHolders,
    RangeHolders,
    Sources,
    find_sources,
    local_sources,
    seen_sources,
)
from embertide.graph.views import EdgeNeeds, EdgeView, Loops
from embertide.grid import Axis, RowRanges
from embertide.kernels.block import Block
from embertide.kernels.counting import add_weights, count_values, row_lengths, row_sums
from embertide.kernels.csr import Csr, more_loops, new_loops, single_loops, without_loops
from embertide.kernels.edge_features import (
    LoopFill,
    more_loop_features,
    single_loop_features,
    without_loop_features,
)
from embertide.kernels.spilled_csr import (
    AnyBlock,
    AnyCsr,
    AnyFeatures,
    SpilledBlock,
    SpilledCsr,
    SpilledValues,
    in_memory,
)

Add = Callable[[AnyBlock, torch.Tensor], None]
"""Adds what a block's non-zeros have to their sources."""


class Degrees(Protocol):
    """The degrees of a graph's nodes, as steps count them."""

    def variant(self, view: EdgeView) -> Degrees:
        """Those of the graph as a step sees it."""

    def in_degree(self) -> torch.Tensor:
        """See :meth:`LayerGraph.in_degree`, and so on."""

    def weighted_in_degree(self) -> torch.Tensor: ...  # noqa: D102

    def out_degree(self) -> torch.Tensor: ...  # noqa: D102

    def weighted_out_degree(self) -> torch.Tensor: ...  # noqa: D102


@dataclass(kw_only=True)
class LayerGraph:
    """The whole layer graph of a relation, seen by a rank that holds the rows of its partition.

    Its rows are the nodes of the destination type, its columns those of the source type: a matrix
    that need not be square. Only a relation within one type can have self-loops.

    Attributes:
        targets: ranges of the destination type.
        origins: ranges of the source type; the same within one type.
        csr: in-edges of partition p, node ids as columns, on the CPU or on disk. Once nothing will
            read the columns again they are dropped; rows and weights stay.
        group_rows: slots per remote group of tiles.
        pair_rows: slots per remote group of whole rows.
        needs: what the program needs of its layer graphs.
        features: [nnz of our sub-range, K] float32 of its edges, on the CPU or on disk, where steps
            read any.
        relation: by which its transfers are counted; "" in a graph that has one.
        whole: where this one has the edges of some rows alone, the graph with all edges, whose
            degrees count.
        picked: where it also has some nodes alone, the rows of our partition in ``whole`` that
            are its own, of the destination type and of the source type.
    """

    exchange: Exchange
    targets: RowRanges
    origins: RowRanges
    csr: AnyCsr
    group_rows: int
    pair_rows: int
    needs: EdgeNeeds
    features: AnyFeatures | None = None
    relation: str = ""
    whole: Degrees | None = None
    picked: tuple[torch.Tensor, torch.Tensor] | None = None
    _out_degree: torch.Tensor | None = None
    _weighted_in_degree: torch.Tensor | None = None
    _weighted_out_degree: torch.Tensor | None = None
    _patterns: dict[tuple[str, tuple[str, ...]], list[Sources]] = field(default_factory=dict)
    _variants: dict[tuple[str, float, bool], LayerGraph] = field(default_factory=dict)
    _features: dict[tuple[Loops, LoopFill], AnyFeatures] = field(default_factory=dict)

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
                csr=csr.rewritten(partial(looped, view=view)),
                group_rows=self.group_rows,
                pair_rows=self.pair_rows,
                needs=self.needs,
                relation=self.relation,
                whole=None if self.whole is None else self.whole.variant(view),
                picked=self.picked,
            )
            self._drop_columns()
        return self._variants[key]

    def tiles(self) -> Sources:
        """Sources of our partition's rows in the ``tile`` layout.

        Collective: every rank of the graph axis must call.
        """
        return self.tiles_with([])[0]

    def tiles_with(self, others: Sequence[LayerGraph]) -> list[Sources]:
        """Sources of this graph and of others with the same columns, in the ``tile`` layout.

        Their rows travel once for all. Collective: every rank of the graph axis must call.
        """
        graphs, axis = [self, *others], self.exchange.grid.axis("graph")
        holders = RangeHolders(axis, self.origins.partitions)
        found = self._find("graph", graphs, lambda graph: graph.csr, holders)
        if not others and axis.size > 1:
            self._drop_columns()
        return found

    def pairs_with(self, others: Sequence[LayerGraph]) -> list[Sources]:
        """Like :meth:`tiles_with`, of our sub-range's rows in the ``rows`` layout, with full width.

        Collective: every rank must call.
        """
        holders = RangeHolders(self.exchange.grid.axis("world"), self.origins.workers)
        return self._find("world", [self, *others], LayerGraph.sub_range, holders)

    def _find(
        self,
        axis: Literal["graph", "world"],
        graphs: Sequence[LayerGraph],
        rows_of: Callable[[LayerGraph], AnyCsr],
        holders: RangeHolders,
    ) -> list[Sources]:
        """Sources of some rows of several graphs, found once. Collective: all of the axis call."""
        relations, pairs = tuple(graph.relation for graph in graphs), axis == "world"
        if (axis, relations) not in self._patterns:
            channel = self.exchange.channel(axis, "ids", relations=relations)
            csrs = [rows_of(graph) for graph in graphs]
            if channel.axis.size == 1:
                found = [local_sources(csr, channel.axis, channel.staging) for csr in csrs]
            elif channel.in_place:
                window = WindowRows(np.array(holders.bounds, np.int64))
                found = [_seen(csr, channel.axis, window) for csr in csrs]
            else:
                found = find_sources(
                    channel,
                    csrs,
                    holders,
                    nodes=self.origins.nodes,
                    group_rows=self.pair_rows if pairs else self.group_rows,
                    edges=[graph.needs.placed(pairs=pairs) for graph in graphs],
                )
            self._patterns[axis, relations] = found
        return self._patterns[axis, relations]

    def loaded_with(self, others: Sequence[LayerGraph], holders: LoadedHolders) -> list[Sources]:
        """The same as :meth:`tiles_with`, where the features of our sources were loaded; kept for
        other columns of them where edges are on disk.

        Collective: every rank must call.
        """
        graphs = [self, *others]
        relations = tuple(graph.relation for graph in graphs)
        if ("loaded", relations) in self._patterns:
            return self._patterns["loaded", relations]
        found = find_sources(
            self.exchange.channel("world", "ids", relations=relations),
            [graph.csr for graph in graphs],
            holders,
            nodes=self.origins.nodes,
            group_rows=self.group_rows,
            edges=[False for _ in graphs],
        )
        if isinstance(self.csr, SpilledCsr):
            self._patterns["loaded", relations] = found
        return found

    def loaded_in_place(
        self, window: WindowRows, rows_of: Callable[[torch.Tensor], torch.Tensor]
    ) -> Sources:
        """The same as :meth:`tiles` for features that are read where they were loaded; not kept.

        Collective: every rank must call.

        Args:
            window: where the loaded rows of all ranks are.
            rows_of: the row there of each row in the window of all nodes that tiles are read from.
        """
        block = self.tiles().whole
        axis = self.exchange.grid.axis("world")
        return seen_sources(replace(block, indices=rows_of(block.indices)), axis, window)

    def _drop_columns(self) -> None:
        if not self.needs.again:
            self.csr = self.csr.without_columns()

    def sub_range(self) -> AnyCsr:
        """Our sub-range's rows of the partition, which are whole parts where it is on disk."""
        start, stop = self.targets.within(self.exchange.grid.rank)
        return self.csr if stop - start == self.csr.rows else self.csr.slice(start, stop)

    def release(self) -> None:
        """Free the columns, also of what was made of this graph: nothing will read them again."""
        self._variants.clear()
        self.csr = self.csr.without_columns()

    def edge_features(self, loops: Loops, fill: LoopFill, sources: Sources) -> AnyFeatures:
        """[nnz, K] features of the edges of our sub-range, as a view with these loops has them, and
        as blocks of its sources find them.

        Args:
            fill: what a self-loop that a view adds has.
            sources: of the view's sub-range.
        """
        return sources.in_blocks(self._features_with(loops, fill))

    def _features_with(self, loops: Loops, fill: LoopFill) -> AnyFeatures:
        assert self.features is not None
        if loops == "keep":
            return self.features
        if loops == "none":
            fill = 0.0
        if (loops, fill) not in self._features:
            self._features[loops, fill] = self._filled(loops, fill, self.features)
        return self._features[loops, fill]

    def _filled(self, loops: Loops, fill: LoopFill, features: AnyFeatures) -> AnyFeatures:
        add = more_loop_features if loops == "more" else single_loop_features
        change = without_loop_features if loops == "none" else partial(add, fill=fill)
        csr = self.sub_range().without_weights()
        if not isinstance(features, SpilledValues):
            return change(in_memory(csr), features)
        assert isinstance(csr, SpilledCsr)
        parts = zip(csr.parts(), features.each(), strict=True)
        made = (change(part, own) for (_, part), own in parts)
        return SpilledValues.of(csr.scratch, features.width, made)

    def in_degree(self) -> torch.Tensor:
        """[N/P] in-edges of each destination of our partition, float32."""
        if self.whole is not None:
            return self._picked(self.whole.in_degree(), 0)
        return self.exchange.staging.upload(row_lengths(self.csr.indptr))

    def weighted_in_degree(self) -> torch.Tensor:
        """[N/P] sum of the stored weights of each row's in-edges; of ones without weights."""
        if self.whole is not None:
            return self._picked(self.whole.weighted_in_degree(), 0)
        if not self.csr.weighted:
            return self.in_degree()
        if self._weighted_in_degree is None:
            parts = (own for _, own in self.csr.parts())
            sums = [row_sums(own.indptr, own.weights) for own in parts if own.weights is not None]
            total = torch.cat(sums)
            self._weighted_in_degree = self.exchange.staging.upload(total)
        return self._weighted_in_degree

    def out_degree(self) -> torch.Tensor:
        """[N/P] out-edges of each source of our partition *in the whole graph*, float32.

        Each rank counts its non-zeros' sources and sends the counts to the sources' holders: one
        int32 per unique remote row. Collective: every rank of the graph axis must call.
        """
        if self.whole is not None:
            return self._picked(self.whole.out_degree(), 1)
        if self._out_degree is None:
            self._out_degree = self._add_out(torch.int32, count_sources).float()
        return self._out_degree

    def weighted_out_degree(self) -> torch.Tensor:
        """[N/P] sum of the stored weights of each row's out-edges; of ones without weights.

        Adds and sends as :meth:`out_degree` counts. Collective: every rank of the graph axis
        must call.
        """
        if self.whole is not None:
            return self._picked(self.whole.weighted_out_degree(), 1)
        if not self.csr.weighted:
            return self.out_degree()
        if self._weighted_out_degree is None:
            self._weighted_out_degree = self._add_out(torch.float32, add_weights)
        return self._weighted_out_degree

    def _picked(self, degrees: torch.Tensor, end: int) -> torch.Tensor:
        """The degrees of our nodes, of those of all: ``end`` 0 is destinations, 1 sources."""
        return degrees if self.picked is None else degrees[self.picked[end].to(degrees.device)]

    def _add_out(
        self, kind: torch.dtype, add: Callable[[AnyBlock, torch.Tensor], None]
    ) -> torch.Tensor:
        sources = self.tiles()
        channel = self.exchange.channel("graph", "degrees", relations=[self.relation])
        start, stop = self.origins.partition(self.exchange.grid.p)
        return add_at_sources(channel, sources, stop - start, kind, add)


def _seen(csr: AnyCsr, axis: Axis, window: WindowRows) -> Sources:
    if isinstance(csr, SpilledCsr):
        return seen_sources(SpilledBlock(csr, window.of_nodes), axis, window)
    block = Block(None, csr.indptr, window.of_nodes(csr.cols), csr.weights)
    return seen_sources(block, axis, window)


def looped(csr: Csr, view: EdgeView) -> Csr:
    """The graph with the self-loops that a view has."""
    if view.loops == "none":
        return without_loops(csr)
    add = {"single": single_loops, "replace": new_loops, "more": more_loops}[view.loops]
    return add(csr, view.loop_weight)


def count_sources(block: AnyBlock, to: torch.Tensor) -> None:
    """Add one for each non-zero."""
    for _, part in block.each():
        count_values(part.indices, to)


def add_at_sources(
    channel: Channel, sources: Sources, rows: int, kind: torch.dtype, add: Add
) -> torch.Tensor:
    """[rows] what the edges to anywhere add up to at each of our rows as a source.

    Each rank adds up what its own non-zeros have, and sends the sums of remote sources to their
    holders: one number per unique remote row.

    Collective: every rank of the sources' axis must call.

    Args:
        rows: of ours.
        kind: of a sum, 4 bytes.
    """
    if sources.window is not None:
        return _in_place(channel, sources, sources.window, kind, add)
    degree = torch.zeros(rows, dtype=kind, device=channel.device)
    add(sources.local, degree)
    by_slot = degree.new_zeros(sources.unique)
    sent: dict[int, list[torch.Tensor]] = {i: [] for i in sources.requests}
    for number in range(len(sources.remote)):
        of_group = by_slot[slice(*sources.group(number))]
        add(sources.non_zeros(number), of_group)
        for i, start, stop in sources.incoming(number, number + 1):
            sent[i].append(of_group[start:stop])
    received = {i: degree.new_empty(len(r.rows)) for i, r in sources.requests.items()}
    channel.start(
        [(i, torch.cat([degree.new_empty(0), *parts])) for i, parts in sent.items()],
        list(received.items()),
    ).wait()
    for i, request in sources.requests.items():
        degree.index_add_(0, request.rows, received[i])
    return degree


def _in_place(
    channel: Channel, sources: Sources, window: WindowRows, kind: torch.dtype, add: Add
) -> torch.Tensor:
    """As :func:`add_at_sources`, of what the ranks of one host have added up themselves."""
    own = torch.zeros((window.end, 1), dtype=kind)
    add(sources.local, own[:, 0])
    rows, others = window.slice(channel.axis.index), channel.axis.size - 1
    channel.read_in_place((rows.stop - rows.start) * others * own.element_size())
    with shared(channel, [own]) as (seen,):
        parts = [seen.of(i, 1)[rows, 0] for i in range(channel.axis.size)]
        return torch.stack(parts).sum(0, dtype=kind)
