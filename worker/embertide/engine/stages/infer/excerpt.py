"""Some nodes of each type, numbered in their order: rows that are computed without the others.

The order of a row's in-neighbours stays, and so do its degrees, which are those of the whole graph.
Every worker keeps those of its own nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch

from embertide.graph.directory import RowFetch
from embertide.graph.exchange import Channel
from embertide.graph.graph import LayerGraph
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr
from embertide.kernels.rows import gather_rows, pick_rows
from embertide.kernels.some_rows import edges_of, take_rows
from embertide.kernels.spilled_csr import AnyCsr, SpilledValues
from embertide.layouts import Layout, Loaded
from embertide.program.steps.execution import Execution
from embertide.program.steps.frontier import Rows
from embertide.spec.relations import ends_of


@dataclass(frozen=True)
class Excerpt:
    """Some nodes of each type, on the workers that own them.

    Attributes:
        rows: node type -> [N] bool, those that are part of it.
        before: node type -> [N + 1] int64, how many come before each node.
        ranges: node type -> which worker owns which of them.
    """

    rows: Mapping[str, Rows]
    before: Mapping[str, torch.Tensor]
    ranges: dict[str, RowRanges]

    def of_ours(self, whole: Execution, node_type: str, layout: Layout) -> torch.Tensor:
        """[k] int64, the rows of our shard of a whole tensor that are part of it."""
        first, last = _place(whole, node_type, layout)
        return self.rows[node_type][first:last].nonzero().squeeze(1)

    def features(
        self, whole: Execution, channel: Channel, node_type: str, loaded: Loaded
    ) -> Loaded:
        """The features of our nodes, in order. Collective: every rank must call."""
        rows = self.of_ours(whole, node_type, "rows")
        if loaded.placed:
            data = _some(loaded.data, rows, loaded.width)
        elif channel.axis.size == 1:
            data = _some(loaded.data, whole.locations[node_type][rows, 1].long(), loaded.width)
        else:
            first, _ = _place(whole, node_type, "rows")
            fetch = RowFetch(channel, whole.ranges[node_type], rows + first)
            data = fetch.of_loaded(loaded, whole.locations[node_type])
        return Loaded(torch.empty(0, dtype=torch.int64), data, placed=True)

    def graph(self, whole: Execution, graph: LayerGraph, csr: AnyCsr, wanted: Rows) -> LayerGraph:
        """A layer graph with the edges of some rows, whose sources are all part of the excerpt.

        Args:
            csr: of the whole graph, which may have dropped its columns by now.
            wanted: [N] bool of the destination type.
        """
        source, destination = ends_of(graph.relation)
        every = wanted, self.rows[source], self.rows[destination]
        if isinstance(csr, Csr) and all(bool(rows.all()) for rows in every):
            return graph
        first, last = graph.targets.partition(whole.grid.p)
        start, stop = graph.origins.partition(whole.grid.p)
        own, wanted = self.rows[destination][first:last], wanted[first:last]
        rows = own.nonzero().squeeze(1)
        number = int(self.before[destination][first])
        cut = take_rows(csr, rows, wanted[rows], self.before[source], number)
        features = graph.features
        if features is not None:
            ours = slice(*graph.targets.within(whole.grid.rank))
            some = own[ours].nonzero().squeeze(1)
            ends = csr.indptr[ours.start : ours.stop + 1]
            edges = edges_of(ends - ends[0], some, wanted[ours][some])
            if isinstance(features, SpilledValues):
                features = features.take(edges)
            else:
                features = features[edges]
        return LayerGraph(
            exchange=graph.exchange,
            relation=graph.relation,
            targets=self.ranges[destination],
            origins=self.ranges[source],
            features=features,
            csr=cut,
            group_rows=graph.group_rows,
            pair_rows=graph.pair_rows,
            needs=graph.needs,
            whole=graph,
            picked=(rows, self.rows[source][start:stop].nonzero().squeeze(1)),
        )


def excerpt_of(
    rows: Mapping[str, Rows], nodes: Mapping[str, int], ranges: Mapping[str, RowRanges]
) -> Excerpt:
    """The nodes of some rows; of every worker with nodes at least one, so that none is idle.

    Args:
        rows: node type -> [N] bool; a type may be left out.
        nodes: node type -> N.
        ranges: node type -> which worker owns which nodes.
    """
    every, before, parts = dict[str, Rows](), dict[str, torch.Tensor](), dict[str, RowRanges]()
    for name, of_type in ranges.items():
        own = rows[name].clone() if name in rows else torch.zeros(nodes[name], dtype=torch.bool)
        for first, last in pairwise(of_type.workers):
            if first < last and not own[first:last].any():
                own[first] = True
        count = torch.zeros(len(own) + 1, dtype=torch.int64)
        torch.cumsum(own, 0, out=count[1:])
        every[name], before[name] = own, count
        parts[name] = RowRanges(
            tuple(int(count[at]) for at in of_type.partitions),
            of_type.feature,
            tuple(int(count[at]) for at in of_type.workers),
        )
    return Excerpt(every, before, parts)


def _some(data: torch.Tensor, rows: torch.Tensor, width: int) -> torch.Tensor:
    """[k, width] some rows."""
    if data.dim() > 2:
        return pick_rows(data, rows, width).contiguous()
    return gather_rows(data, rows.to(data.device))


def _place(whole: Execution, node_type: str, layout: Layout) -> tuple[int, int]:
    """First and one-past-last row of ours of a layout."""
    ranges, grid = whole.ranges[node_type], whole.grid
    return ranges.worker(grid.rank) if layout == "rows" else ranges.partition(grid.p)
