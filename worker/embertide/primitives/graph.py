"""A layer's graph on one worker: its partition's in-edges, degrees and exchange patterns.

Patterns are found on first use and kept for all layers that share the graph. Everything here
that is found lazily is collective: all workers ask for the same things in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from embertide.grid import RowRanges
from embertide.kernels.csr import Csr, single_loops
from embertide.models.program import Aggregate, Attend, Loops, PairAttend, Program
from embertide.primitives.exchange import Exchange
from embertide.primitives.landing import LoadedHolders
from embertide.primitives.sources import (
    RangeHolders,
    Sources,
    find_sources,
    local_sources,
)
from embertide.telemetry.recorder import Label

SETUP = Label("graph", "ids")


@dataclass(frozen=True)
class EdgeNeeds:
    """What a program asks of a layer graph beside the tile pattern.

    Attributes:
        positions: tile blocks carry each non-zero's position in the CSR (pair attention).
        again: the CSR's columns are read again after the tile pattern has been found.
    """

    positions: bool
    again: bool


def edge_needs(program: Program) -> EdgeNeeds:
    """Look through all steps of a program."""
    pairs = any(isinstance(step, PairAttend) for step in program.steps)
    over_edges = [s for s in program.steps if isinstance(s, Aggregate | Attend | PairAttend)]
    kinds = {(s.loops, s.edge_weight, getattr(s, "loop_weight", 1.0)) for s in over_edges}
    mixed = len({kind if kind[0] == "single" else "keep" for kind in kinds}) > 1
    from_files = any(program.input in step.reads() for step in over_edges)
    return EdgeNeeds(pairs, pairs or mixed or from_files)


@dataclass
class LayerGraph:
    """The whole layer graph, seen by the worker that holds the rows of its partition.

    Attributes:
        csr: in-edges of partition p, node ids as columns, on the CPU. Once nothing will read
            the columns again they are dropped; rows and weights stay.
        group_rows: slots per remote group of tiles.
        pair_rows: slots per remote group of whole rows.
        needs: what the program will ask for.
    """

    exchange: Exchange
    ranges: RowRanges
    csr: Csr
    group_rows: int
    pair_rows: int
    needs: EdgeNeeds
    _tiles: Sources | None = None
    _pairs: Sources | None = None
    _out_degree: torch.Tensor | None = None
    _weighted_in_degree: torch.Tensor | None = None
    _variants: dict[tuple[float, bool], LayerGraph] = field(default_factory=dict)

    def variant(self, loops: Loops, loop_weight: float, *, weighted: bool) -> LayerGraph:
        """This graph, or the one with exactly one self-loop per node.

        Args:
            weighted: the stored weights count; otherwise every edge weighs 1.
        """
        if loops == "keep":
            return self
        key = (loop_weight, weighted)
        if key not in self._variants:
            csr = self.csr if weighted else self.csr.without_weights()
            self._variants[key] = LayerGraph(
                self.exchange,
                self.ranges,
                single_loops(csr, loop_weight),
                self.group_rows,
                self.pair_rows,
                self.needs,
            )
            self._drop_columns()
        return self._variants[key]

    def tiles(self) -> Sources:
        """Sources of our partition's rows in the ``tile`` layout."""
        if self._tiles is None:
            axis = self.exchange.grid.graph_axis
            if axis.size == 1:
                self._tiles = local_sources(self.exchange, self.csr, axis)
            else:
                holders = RangeHolders.tiles(self.ranges, axis)
                positions = self.needs.positions
                self._tiles = self._find(self.csr, holders, SETUP, self.group_rows, positions)
                self._drop_columns()
        return self._tiles

    def pairs(self) -> Sources:
        """Sources of our sub-range's rows in the ``rows`` layout, with full width."""
        if self._pairs is None:
            own = self.sub_range()
            axis = self.exchange.grid.world_axis
            if axis.size == 1:
                self._pairs = local_sources(self.exchange, own, axis)
            else:
                holders = RangeHolders.rows(self.ranges, axis)
                self._pairs = self._find(own, holders, Label("world", "ids"), self.pair_rows, True)
        return self._pairs

    def loaded(self, holders: LoadedHolders) -> Sources:
        """Sources of our partition's rows where their features were loaded; not kept."""
        return self._find(self.csr, holders, Label("world", "ids"), self.group_rows, False)

    def _find(
        self,
        csr: Csr,
        holders: RangeHolders | LoadedHolders,
        label: Label,
        group_rows: int,
        edges: bool,
    ) -> Sources:
        nodes = self.ranges.nodes
        return find_sources(self.exchange, label, csr, holders, nodes, group_rows, edges=edges)

    def _drop_columns(self) -> None:
        if not self.needs.again:
            self.csr = replace(self.csr, cols=self.csr.cols.new_empty(0))

    def sub_range(self) -> Csr:
        """Our sub-range's rows of the partition."""
        return self.csr.slice(*self.ranges.within(self.exchange.grid.rank))

    def in_degree(self) -> torch.Tensor:
        """[N/P] in-edges of each row of our partition, float32."""
        return self.csr.indptr.diff().float().to(self.exchange.device)

    def weighted_in_degree(self) -> torch.Tensor:
        """[N/P] sum of the stored weights of each row's in-edges; of ones without weights."""
        if self.csr.weights is None:
            return self.in_degree()
        if self._weighted_in_degree is None:
            total = torch.zeros(self.csr.rows)
            total.index_add_(0, self.csr.row_ids(), self.csr.weights)
            self._weighted_in_degree = total.to(self.exchange.device)
        return self._weighted_in_degree

    def out_degree(self) -> torch.Tensor:
        """[N/P] out-edges of each row of our partition *in the whole graph*, float32.

        Each worker counts its non-zeros' sources and tells their holders: one number per
        unique remote row, on the graph axis.
        """
        if self._out_degree is None:
            self._out_degree = self._count_out()
        return self._out_degree

    def _count_out(self) -> torch.Tensor:
        sources, axis = self.tiles(), self.exchange.grid.graph_axis
        start, stop = self.ranges.partition(self.exchange.grid.p)
        degree = torch.bincount(sources.local.indices, minlength=stop - start)
        counts = [
            torch.bincount(block.indices, minlength=last - first)
            for block, (first, last) in zip(
                sources.remote, map(sources.group, range(len(sources.remote))), strict=True
            )
        ]
        by_slot = torch.cat([degree.new_empty(0), *counts])
        told = {i: degree.new_empty(len(ask.rows)) for i, ask in sources.asked.items()}
        self.exchange.start(
            Label("graph", "degrees"),
            [(axis.ranks[i], by_slot[a:b]) for i, (a, b) in sources.slots.items()],
            [(axis.ranks[i], told[i]) for i in told],
        ).wait()
        for i, ask in sources.asked.items():
            degree.index_add_(0, ask.rows, told[i])
        return degree.float()
