"""Layers of workers that all read each other's memory: whole rows, in the order of one worker.

Slices of columns would read every source row in M pieces and change layouts twice a layer, and a
product would go before a sum of the input features, to move less of what does not move at all. So
a worker computes its sub-range of the rows with all columns, as on a grid of (P*M) x 1 and in the
order that is best where nothing moves, and what would have moved on the grid of the job is counted
move by move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from embertide.footprint import FLOAT_BYTES, ID_BYTES, GraphSize
from embertide.grid import AxisName, ColumnSlices, RowRanges
from embertide.kernels.memory import copy_of
from embertide.layouts import Layout, Loaded
from embertide.models.whole_rows import moves_of_slices
from embertide.primitives.arriving import count_groups
from embertide.primitives.batches import Batches
from embertide.primitives.directory import look_up, look_up_ascending
from embertide.primitives.exchange import Exchange
from embertide.primitives.finding import find_sources
from embertide.primitives.gemm import count_conversion
from embertide.primitives.graph import LayerGraph
from embertide.primitives.out_degrees import count_told
from embertide.primitives.sources import LoadedHolders, RangeHolders, Sources
from embertide.primitives.views import EdgeView
from embertide.steps.execution import Graphs
from embertide.steps.moves import (
    Conversion,
    Degrees,
    HeadScores,
    Landing,
    LoadedRows,
    Move,
    TileRows,
    WholeRows,
)
from embertide.steps.program import Program
from embertide.steps.tensors import landed_rows


def moves_of_grid(
    exchange: Exchange, program: Program, ranges: dict[str, RowRanges], row_type: torch.dtype
) -> list[Move] | None:
    """What a program moves on the job's grid, if its layers are done as above instead; else None.

    Args:
        ranges: node type -> which worker owns which nodes.
        row_type: in which rows travel.
    """
    if not exchange.channel("world", "features").in_place:
        return None
    size = GraphSize(
        nodes={name: of_type.nodes for name, of_type in ranges.items()},
        edges=dict.fromkeys(program.relations, 0),
        grid=exchange.grid.shape,
        group_bytes=0,
        depth=1,
        row_bytes=row_type.itemsize,
    )
    return moves_of_slices(program, size)


def graphs_by_rows(program: Program, graphs: Graphs, exchange: Exchange) -> Graphs:
    """Layer graphs with our sub-range as a partition.

    Args:
        graphs: the same for all layers.
        exchange: of a grid with one slice.
    """
    made = {name: _by_rows(graphs(0, name), exchange) for name in program.relations}
    return lambda _layer, relation: made[relation]


def _by_rows(graph: LayerGraph, exchange: Exchange) -> LayerGraph:
    rows = graph.sub_range()
    return LayerGraph(
        exchange=exchange,
        targets=graph.targets.whole_rows(),
        origins=graph.origins.whole_rows(),
        # On the pages that the sub-range was on before it was gathered.
        csr=rows if rows.rows == graph.csr.rows else replace(rows, cols=copy_of(rows.cols)),
        group_rows=graph.group_rows,
        pair_rows=graph.pair_rows,
        needs=graph.needs,
        features=graph.features,
        relation=graph.relation,
    )


@dataclass(frozen=True)
class GridCount:
    """Counts what would have moved on the job's grid.

    Attributes:
        ranges, graphs, loaded, locations: as :func:`embertide.stages.infer.infer` is given them.
        batch_bytes: how much of the input would go to its owners at a time.
        row_bytes: of a value of the rows that travel.
    """

    exchange: Exchange
    program: Program
    ranges: dict[str, RowRanges]
    graphs: Graphs
    loaded: dict[str, Loaded]
    locations: dict[str, torch.Tensor]
    batch_bytes: int
    row_bytes: int
    _asked: dict[tuple[AxisName, tuple[EdgeView, ...]], Sources] = field(default_factory=dict)
    _counted: set[tuple[EdgeView, bool]] = field(default_factory=set)

    def count(self, moves: Sequence[Move]) -> None:
        """Count all moves, and free the graphs' columns. Collective: every rank must call."""
        for move in moves:
            if isinstance(move, Conversion):
                channel = self.exchange.channel("feature", move.primitive, move.layer)
                ranges = self.ranges[self.program.types[move.x]]
                value = self.row_bytes if move.primitive == "gemm" else FLOAT_BYTES
                count_conversion(channel, ranges, move.width, move.to, value)
            elif isinstance(move, Landing):
                self._land(move)
            elif isinstance(move, LoadedRows):
                self._from_loaders(move)
            elif isinstance(move, HeadScores):
                self._scatter(move)
            elif isinstance(move, WholeRows):
                self._fetch_whole(move)
            elif isinstance(move, TileRows) and self.exchange.grid.graph > 1:
                self._fetch(move)
            elif isinstance(move, Degrees) and self.exchange.grid.graph > 1:
                self._degrees(move)
        for name in self.program.relations:
            self.graphs(0, name).release()

    def _fetch(self, move: TileRows) -> None:
        """Unique remote rows, in our columns."""
        grid, view = self.exchange.grid, move.view
        slices = ColumnSlices(round(move.columns * grid.feature), grid.feature)
        channel = self.exchange.channel("graph", move.primitive, view.layer, move.together)
        value = self.row_bytes if move.primitive == "spmm" else FLOAT_BYTES
        sources = self._sources("graph", view, move.together)
        count_groups(channel, sources, value * slices.size(grid.m))

    def _fetch_whole(self, move: WholeRows) -> None:
        """Unique remote rows of a sub-range's edges, in all columns."""
        channel = self.exchange.channel("world", "sddmm", move.view.layer, move.together)
        sources = self._sources("world", move.view, move.together)
        count_groups(channel, sources, self.row_bytes * move.width)

    def _from_loaders(self, move: LoadedRows) -> None:
        """Unique rows of the features, each peer's in its columns; where they are is asked for."""
        grid, view, of_type = self.exchange.grid, move.view, self.program.types[move.x]
        ranges, locations = self.ranges[of_type], self.locations[of_type]
        channel = self.exchange.channel("world", "features", view.layer, move.together)
        if move.scaled:
            # Of factors, in whose place are zeros: asking tells how many go to whom.
            look_up(channel, ranges, torch.zeros(len(locations)), self.loaded[of_type].ids)
        holders = LoadedHolders(
            channel.axis, partial(look_up_ascending, channel, ranges, locations)
        )
        graph, *others = self._graphs(view, move.together)
        sources, *_ = graph.loaded_with(others, holders, blocks=False)
        slices = ColumnSlices(move.width, grid.feature)
        own, *sizes = (self.row_bytes * slices.size(m) for m in (grid.m, *range(grid.feature)))
        count_groups(channel, sources, own, lambda peer: sizes[peer % grid.feature])

    def _scatter(self, move: HeadScores) -> None:
        """Scores of our sub-range to the other slices, and of theirs for our columns' heads."""
        grid, view = self.exchange.grid, move.view
        (graph,), names = self._graphs(view, (view.relation,)), (view.relation,)
        ranges = graph.origins if move.of == "source" else graph.targets
        channel = self.exchange.channel("feature", move.primitive, view.layer, names)
        others, scores = grid.feature - 1, FLOAT_BYTES * move.heads // grid.feature
        (first, last), (start, stop) = ranges.within(grid.rank), ranges.partition(grid.p)
        ours, total = last - first, stop - start
        if move.of == "edge":
            ends = graph.csr.indptr[[first, last, -1]].tolist()
            ours, total = ends[1] - ends[0], ends[2]
        channel.count([ID_BYTES] * others, ID_BYTES * others)
        channel.count([scores * ours] * others, scores * (total - ours))

    def _degrees(self, move: Degrees) -> None:
        """A number for each of them, once for a layer graph."""
        view = move.view
        weights = self.graphs(0, view.relation).csr.weights
        weighted = move.weighted and view.edge_weight and weights is not None
        key = _of_all_layers(view), weighted
        if key not in self._counted:
            self._counted.add(key)
            names = (view.relation,)
            channel = self.exchange.channel("graph", "degrees", relations=names)
            count_told(channel, self._sources("graph", view, names))

    def _sources(self, axis: AxisName, view: EdgeView, together: Sequence[str]) -> Sources:
        """What ranks ask of each other: for the tiles of partitions, or whole rows of sub-ranges.

        Found once for the relations for which rows travel once. Collective: every rank must call.
        """
        key = axis, tuple(_of_all_layers(view)._replace(relation=name) for name in together)
        if key not in self._asked:
            self._asked[key] = _asked(self._graphs(view, together), axis)
        return self._asked[key]

    def _graphs(self, view: EdgeView, together: Sequence[str]) -> list[LayerGraph]:
        """Those of some relations, in one view."""
        seen = _of_all_layers(view)
        return [self.graphs(0, name).variant(seen._replace(relation=name)) for name in together]

    def _land(self, move: Landing) -> None:
        """Loaded rows, or products of them, to their owners; of tiles all of a partition's."""
        node_type, grid = self.program.types[move.x], self.exchange.grid
        loaded = self.loaded[node_type]
        layout: Layout = "tile" if move.copies > 1 else "rows"
        rows = landed_rows(self.batch_bytes, move.width, loaded.width)
        rounds = -(-max(self.exchange.all_objects(len(loaded.ids))) // rows)
        channel = self.exchange.channel("world", "features", move.layer)
        batches = Batches(
            channel, ColumnSlices(move.width, move.copies), rounds, rows, move.value_bytes
        )
        received = batches.received([self.locations[node_type]])
        if layout == "tile":
            of_all = torch.tensor(self.exchange.all_objects(received.tolist()))
            received = of_all.view(grid.graph, grid.feature, rounds, grid.world)[grid.p].sum(0)
        batches.count(batches.sent(self.ranges[node_type], loaded.ids, layout), received)


def _of_all_layers(view: EdgeView) -> EdgeView:
    """The same for views that :meth:`LayerGraph.variant` does not tell apart."""
    if view.loops == "keep":
        return EdgeView(0, relation=view.relation)
    return view._replace(layer=0)


def _asked(graphs: Sequence[LayerGraph], of_axis: AxisName) -> Sources:
    """What ranks ask of each other for graphs with the same sources, without the non-zeros.

    Collective: every rank of the axis must call.
    """
    first, pairs = graphs[0], of_axis == "world"
    axis = first.exchange.grid.axis(of_axis)
    holders = RangeHolders.rows if pairs else RangeHolders.tiles
    found, *_ = find_sources(
        first.exchange.channel(of_axis, "ids", relations=[graph.relation for graph in graphs]),
        [graph.sub_range() if pairs else graph.csr for graph in graphs],
        holders(first.origins, axis),
        nodes=first.origins.nodes,
        group_rows=first.pair_rows if pairs else first.group_rows,
        edges=[False for _ in graphs],
        blocks=False,
    )
    return found
