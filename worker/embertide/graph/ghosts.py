"""An exchange and layer graphs without data, which layers are planned with: they count what moves.

What the graph decides is an expected number (:class:`embertide.footprint.Size`); all of it is what
a mean worker has. Each primitive that moves rows has its rule for ghosts beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from embertide.facts.telemetry.recorder import Label
from embertide.footprint import GraphSize, Size
from embertide.graph.exchange import Channel, Exchange
from embertide.graph.graph import LayerGraph
from embertide.graph.moves import (
    Degrees,
    Landing,
    LoadedRows,
    Move,
    Statistics,
    TileRows,
    WholeRows,
)
from embertide.graph.sources import Sources
from embertide.graph.views import EdgeNeeds, EdgeView, Loops
from embertide.grid import AxisName, Grid, RowRanges
from embertide.kernels.block import Block
from embertide.kernels.edge_features import LoopFill
from embertide.kernels.ghost_store import GhostStore
from embertide.kernels.ghosts import Ledger, ghost
from embertide.layouts import Layout, Loaded, Shard

POSITION_BYTES = 4
"""Bytes of an edge's place in a part that is on disk."""


@dataclass(frozen=True)
class StoredEdges:
    """The edges of a relation in a store.

    Attributes:
        weight_bytes, feature_bytes: of an edge's weight and of its features; 0 without.
        loops: the job adds a self-loop to each node.
        widest: columns of the widest tensor.
        part: a part's share of a worker's edges.
        fanout: in-edges that each layer samples of a node; None: all of them.
    """

    weight_bytes: int
    feature_bytes: int
    loops: bool
    widest: int
    part: float
    fanout: Sequence[int] | None = None


class GhostExchange(Exchange):
    """Counts what would move.

    Attributes:
        store: where edges are that are not in memory.
        stored: relation -> its edges there.
        done: what has gone over some of them, which is kept.
        samples: layer -> bytes of its sampled edges there.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
        moves: what has moved, in order.
    """

    def __init__(
        self,
        size: GraphSize,
        ledger: Ledger,
        building: dict[str, float],
        block: dict[str, float],
        *,
        m: int = 0,
        store: GhostStore | None = None,
        stored: Mapping[str, StoredEdges] | None = None,
    ) -> None:
        self.size, self.ledger, self.building, self.block = size, ledger, building, block
        self.grid, self.moves, self.done = Grid(size.grid, m), [], set()
        self.store, self.stored, self.samples = store, stored or {}, {}
        self.staging = cast(Any, SimpleNamespace(upload=lambda x: x, download=lambda x: x))
        self.recorder = cast(Any, SimpleNamespace(reduced=lambda _edges: None))

    moves: list[Move]
    done: set[object]
    samples: dict[int, float]

    def channel(
        self, axis: AxisName, primitive: str, layer: int = -1, relations: Sequence[str] = ("",)
    ) -> Channel:
        """Transfers that are counted."""
        label = Label(axis, primitive, layer, 0, relations[0])
        return GhostChannel(self, self.grid.axis(axis), label, self.ledger, tuple(relations))

    def tensor(self, *shape: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A ghost whose bytes count."""
        return ghost(self.ledger, shape, dtype)

    def buffer(self, size: float) -> torch.Tensor:
        """A ghost of so many bytes."""
        return ghost(self.ledger, (size,), torch.uint8)

    def counted(self, *shape: float) -> torch.Tensor:
        """A ghost whose bytes are counted elsewhere, as those of degrees and of edges."""
        return ghost(self.ledger, shape, counted=False)


@dataclass(frozen=True)
class GhostChannel(Channel):
    """Transfers that are counted by the primitives."""

    ledger: Ledger
    relations: tuple[str, ...]

    exchange: GhostExchange

    @property
    def in_place(self) -> bool:
        """Whether peers' tensors are read where they stand."""
        return self.exchange.size.in_place

    def read_in_place(self, size: float) -> None:
        """Nothing moves."""

    def computing(self) -> AbstractContextManager[None]:
        """Nothing is computed."""
        return nullcontext()

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Numbers of each worker."""
        numbers = tensor.numel()
        self.exchange.moves.append(Statistics(self.label.layer, self.axis.name, numbers))
        others = [torch.empty_like(tensor) for _ in range(self.axis.size - 1)]
        return [tensor, *others]


@dataclass(frozen=True)
class GhostBlock(Block):
    """Non-zeros without any.

    Attributes:
        read: called when all are gone over, which reads them where they are in a store.
    """

    read: Callable[[], None] = lambda: None

    def each(self) -> Iterator[tuple[slice, Block]]:
        """All at once."""
        self.read()
        yield slice(None), self

    @property
    def ledger(self) -> Ledger:
        """By which it is known as a ghost."""
        return cast(Any, self.indices).ledger  # type: ignore[no-any-return]


@dataclass(frozen=True)
class GhostRanges(RowRanges):
    """A mean worker's share of the nodes of a type."""

    node_type: str = ""
    size: Size = field(kw_only=True)
    ledger: Ledger = field(kw_only=True)

    @classmethod
    def of(cls, node_type: str, size: Size, ledger: Ledger) -> GhostRanges:
        """The first worker's."""
        return cls((), size.feature, None, node_type, size=size, ledger=ledger)

    def of_rows(self, count: float) -> GhostRanges:
        """Those of so many rows of each worker."""
        nodes = cast(int, count * self.size.workers)
        return replace(self, size=replace(self.size, nodes=nodes))

    @property
    def nodes(self) -> int:
        """All nodes of the type."""
        return self.size.nodes

    def partition(self, _p: int) -> tuple[int, int]:
        """From 0."""
        return 0, cast(int, self.size.nodes / self.size.graph)

    def worker(self, rank: int) -> tuple[int, int]:
        """From 0."""
        return self.within(rank)

    def within(self, _rank: int) -> tuple[int, int]:
        """From 0."""
        return 0, cast(int, self.size.nodes / self.size.workers)


@dataclass
class GhostLoaded(Loaded):
    """A mean worker's features, as it read them.

    Attributes:
        name: of their tensor.
        size: of their node type.
    """

    name: str = ""
    size: Size = field(kw_only=True)

    @classmethod
    def of(
        cls, exchange: GhostExchange, name: str, size: Size, width: int, placed: bool
    ) -> GhostLoaded:
        """So many columns, whose bytes count, or that are written to the store."""
        rows, store = size.nodes / size.workers, exchange.store
        if store is None:
            data = exchange.tensor(rows, width)
        else:
            file = store.empty(rows, width)
            file.write_rows(0, data := file.data)
        return cls(exchange.counted(rows), data, placed, name=name, size=size)


def landed_ghosts(
    channel: Channel,
    loaded: Loaded,
    layout: Layout,
    width: int,
    dtype: torch.dtype,
    onto: torch.Tensor | None = None,
) -> Shard:
    """Features, or a product of them, with a mean owner; ``onto`` what it is added to."""
    assert isinstance(loaded, GhostLoaded)
    exchange, slices = ghosts_of(channel), channel.grid.feature if layout == "tile" else 1
    move = Landing(channel.label.layer, loaded.name, width, slices, dtype.itemsize)
    exchange.moves.append(move)
    if onto is None:
        rows = loaded.size.nodes * slices / loaded.size.workers
        onto = exchange.tensor(rows, width if slices == 1 else width / slices, dtype=dtype)
    return Shard(layout, onto, width)


@dataclass(frozen=True, kw_only=True)
class GhostSources(Sources):
    """The sources of the edges of some relations, of which each travels once.

    Attributes:
        union: the edges of all.
        view: the first layer graph as its step sees it.
        pairs: with all columns, for the edges of a sub-range.
        loaded: the tensor of the features, where they are read where they were loaded.
        held: what is kept with them.
        graph: the one whose edges these are.
    """

    graph: GhostGraph
    union: Size
    view: EdgeView
    names: tuple[str, ...]
    pairs: bool = False
    loaded: str | None = None
    held: torch.Tensor | None = None
    edges: float

    @property
    def nnz(self) -> int:
        """Edges of these rows."""
        return cast(int, self.edges)

    @property
    def stored_edges(self) -> float:
        """Edges of these rows that are in a store, as its step sees them."""
        return self.graph.stored_edges(pairs=self.pairs)

    @property
    def stored_part(self) -> float:
        """How many of them are in a part."""
        return self.graph.stored_edges(pairs=True) * self.graph.stored_as.part

    def move(self, columns: float, primitive: str, *, scaled: bool) -> Move:
        """Their rows, once.

        Args:
            columns: of a mean worker.
        """
        width = columns * self.union.feature
        if self.loaded is not None:
            return LoadedRows(self.view, self.loaded, round(width), scaled, self.names)
        if self.pairs:
            return WholeRows(self.view, round(columns), self.names)
        return TileRows(self.view, columns, self.names, primitive)

    def in_flight(self, columns: float) -> float:
        """Bytes of the groups that are received, sent and computed at a time."""
        if self.pairs:
            return self.union.whole_in_flight(round(columns))
        width = round(columns * self.union.feature)
        return self.union.in_flight(width, loaded=self.loaded is not None)


class GhostGraph(LayerGraph):
    """A layer graph of a relation, as a step sees it."""

    def __init__(self, exchange: GhostExchange, view: EdgeView, needs: EdgeNeeds) -> None:
        size = exchange.size.of_relation(view.relation)
        self.exchange, self.view, self.size, self.relation = exchange, view, size, view.relation
        self.targets, self.needs = GhostRanges.of("", size, exchange.ledger), needs
        self.csr = cast(Any, SimpleNamespace(weighted=True))

    exchange: GhostExchange

    def variant(self, view: EdgeView) -> LayerGraph:
        """As a step sees it."""
        made = GhostGraph(self.exchange, view, self.needs)
        if view.loops != "keep" and made._first("loops"):
            # Weights that the step does not read are neither read nor written.
            read = self._in_store(self.view, weighted=view.edge_weight)
            made._moved(read=read, written=made._in_store(view))
        return made

    def tiles_with(self, others: Sequence[LayerGraph]) -> list[Sources]:
        """For the rows of partitions."""
        return self.found(others)

    def pairs_with(self, others: Sequence[LayerGraph]) -> list[Sources]:
        """For the rows of sub-ranges."""
        return self.found(others, pairs=True)

    def found(
        self,
        others: Sequence[LayerGraph],
        *,
        pairs: bool = False,
        loaded: str | None = None,
        held: torch.Tensor | None = None,
    ) -> list[Sources]:
        """Sources that are found together; layer graphs are built before."""
        graphs = [self, *(graph for graph in others if isinstance(graph, GhostGraph))]
        names = tuple(graph.relation for graph in graphs)
        union, building = self.exchange.size.of_relations(names), self.exchange.building
        self.exchange.ledger.need(sum(building.pop(name, 0.0) for name in names))
        members = union.workers if pairs else union.graph
        if loaded is not None:
            grouped = not self.exchange.size.reads_all
        else:
            grouped = members > 1 and not union.in_place
        seen = (graph._seen for graph in graphs)
        if (members > 1 or grouped) and self._first(pairs, loaded is not None, *seen):
            for graph in graphs:
                graph.read(pairs=pairs)
                if grouped:
                    graph.cut(pairs=pairs)
        return [
            GhostSources(
                graph=graph,
                axis=self.exchange.grid.axis("world" if pairs or loaded else "graph"),
                local=graph.block(members, pairs=pairs, grouped=grouped),
                remote=(graph.block(members),) if grouped else (),
                group_rows=1,
                requests={},
                cuts=np.zeros((1, 1), np.int64),
                outputs=cast(Any, graph.size.nodes / members),
                union=union,
                view=self.view,
                names=names,
                pairs=pairs,
                loaded=loaded,
                held=held,
                edges=graph.size.edges / members,
            )
            for graph in graphs
        ]

    def block(self, members: int, *, pairs: bool = False, grouped: bool | None = None) -> Block:
        """The non-zeros of some rows; all of them are read with the first of several groups, and
        none with the others."""
        edges = self.exchange.counted(self.size.edges / members)
        rows = self.exchange.counted(self.size.nodes / members)
        block = GhostBlock(rows, rows, edges, edges, edges)
        if grouped is None:
            return block
        read = self.read_groups if grouped else self.read
        return replace(block, read=partial(read, pairs=pairs))

    def sub_range(self) -> Any:
        """What steps read of it."""
        rows = self.size.nodes / self.size.workers
        return SimpleNamespace(indptr=self.exchange.counted(rows + 1))

    def edge_features(self, loops: Loops, fill: LoopFill, sources: Sources) -> torch.Tensor:
        """Those of a sub-range, which are gone over once."""
        view, slices = self.view._replace(loops=loops), self.size.feature
        own, made = self._features_in_store(self.view), self._features_in_store(view)
        if loops != "keep" and self._first("features", loops, fill):
            columns = self._in_store(self.view, weighted=False) / slices
            self._moved(read=columns + own, written=made)
        assert isinstance(sources, GhostSources)
        if sources.remote and self._first("in blocks", loops, fill, sources.names):
            self._moved(read=made + self._order(view, pairs=True), written=made)
        self._moved(read=made)
        return self.exchange.counted(self.size.edges / self.size.workers, self.needs.features)

    def in_degree(self) -> torch.Tensor:
        """One number for each row; the graph has them."""
        return self.exchange.counted(self.size.nodes / self.size.graph)

    def weighted_in_degree(self) -> torch.Tensor:
        """Added up once."""
        if self._is_weighted and self._first("in"):
            self.read()
        return self.in_degree()

    def out_degree(self) -> torch.Tensor:
        """Counted together."""
        return self._out(weighted=False)

    def weighted_out_degree(self) -> torch.Tensor:
        """Added up together."""
        return self._out(weighted=True)

    def _out(self, *, weighted: bool) -> torch.Tensor:
        self.tiles()
        move = Degrees(self.view, weighted)
        if move not in self.exchange.moves:
            # They are kept.
            self.exchange.moves.append(move)
        if self._first("out", weighted and self._is_weighted):
            self.read()
        return self.exchange.counted(self.size.columns / self.size.graph)

    # -- edges in a store ----------------------------------------------------------------------

    def sample(self) -> None:
        """Where layers have some edges alone, draw them from all; those of two layers stay."""
        stored, size = self.exchange.stored.get(self.relation), self.size
        if stored is None or stored.fanout is None or not self._first("sample"):
            return
        store, samples = self.exchange.store, self.exchange.samples
        for layer in [layer for layer in samples if layer < self.view.layer - 1]:
            assert store is not None
            store.hold(-samples.pop(layer))
        carried = size.index_bytes + stored.weight_bytes + stored.feature_bytes
        read = (size.edges + size.nodes * stored.loops) / size.workers * carried
        written = self._edges(self.view, stored) * size.graph / size.workers * carried
        # All workers of a partition have its edges.
        columns = self._in_store(self.view) / size.feature
        if size.feature > 1:
            read, written = read + columns, written + columns * (size.feature - 1)
        self._moved(read=read, written=written)

    def read(self, *, pairs: bool = False) -> None:
        """All edges of a partition once, or of a sub-range, where they are in a store."""
        self._moved(read=self._in_store(self.view) / self._slices(pairs))

    def cut(self, *, pairs: bool) -> None:
        """Cut them by groups."""
        placed = self.needs.placed(pairs=pairs)
        order = self._order(self.view, pairs=pairs) if placed else 0.0
        read = self._in_store(self.view) / self._slices(pairs)
        self._moved(read=read, written=read + self._touched(pairs) + order)

    def read_groups(self, *, pairs: bool) -> None:
        """Those of all groups once; for messages, where rows end is read before."""
        self.read(pairs=pairs)
        self._moved(read=self._touched(pairs) * (2 if pairs and self.needs.messages else 1))

    def _touched(self, pairs: bool) -> float:
        stored = self.exchange.stored.get(self.relation)
        return 0.0 if stored is None else self.size.touched(stored.widest, pairs=pairs)

    def _order(self, view: EdgeView, *, pairs: bool) -> float:
        """Bytes of the positions of edges that are cut by groups."""
        stored = self.exchange.stored.get(self.relation)
        if stored is None:
            return 0.0
        return POSITION_BYTES * self._edges(view, stored) / self._slices(pairs)

    def _slices(self, pairs: bool) -> int:
        """Sub-ranges in what is gone over."""
        return self.size.feature if pairs else 1

    @property
    def _is_weighted(self) -> bool:
        stored = self.exchange.stored.get(self.relation)
        return stored is not None and stored.weight_bytes > 0

    @property
    def _seen(self) -> EdgeView:
        """The same for all views that see the same graph, in all layers that share it."""
        stored = self.exchange.stored.get(self.relation)
        layer = self.view.layer if stored and stored.fanout else 0
        if self.view.loops == "keep":
            return EdgeView(layer, relation=self.relation)
        return self.view._replace(layer=layer)

    @property
    def is_stored(self) -> bool:
        """Whether edges are in a store."""
        return self.relation in self.exchange.stored

    @property
    def stored_as(self) -> StoredEdges:
        """How they are there."""
        return self.exchange.stored[self.relation]

    def stored_edges(self, *, pairs: bool) -> float:
        """Those of a partition there, or of a sub-range."""
        return self._edges(self.view, self.stored_as) / self._slices(pairs)

    def _first(self, *what: object) -> bool:
        """Whether something is done for the first time to a graph."""
        key = self._seen, *what
        done = self.exchange.done
        first = key not in done
        done.add(key)
        return first

    def _in_store(self, view: EdgeView, *, weighted: bool | None = None) -> float:
        """Bytes of a worker's edges; with weights that the step reads, and those of the graph
        itself."""
        stored = self.exchange.stored.get(self.relation)
        if stored is None:
            return 0.0
        if weighted is None:
            weighted = view.loops == "keep" or view.edge_weight
        edge_bytes = self.size.index_bytes + (stored.weight_bytes if weighted else 0)
        return self._edges(view, stored) * edge_bytes

    def _features_in_store(self, view: EdgeView) -> float:
        stored = self.exchange.stored.get(self.relation)
        edges = self._edges(view, stored) / self.size.feature if stored else 0.0
        return edges * stored.feature_bytes if stored else 0.0

    def _edges(self, view: EdgeView, stored: StoredEdges) -> float:
        """A worker's, as a step sees them."""
        # Other self-loops take the place of those that the job adds, but for one more each.
        own = stored.loops and view.loops in ("keep", "more")
        edges: float = self.size.edges + self.size.nodes * own
        if stored.fanout is not None:
            edges = min(edges, self.size.nodes * stored.fanout[view.layer])
        added = self.size.nodes * (view.loops in ("single", "replace", "more"))
        return (edges + added) / self.size.graph

    def _moved(self, *, read: float, written: float = 0.0) -> None:
        store = self.exchange.store
        if store is not None:
            store.moved(read=read, written=written)
            store.hold(written)
            samples, layer = self.exchange.samples, self._seen.layer
            samples[layer] = samples.get(layer, 0.0) + written


def ghosts_of(channel: Channel) -> GhostExchange:
    """The exchange of a channel of ghosts."""
    assert isinstance(channel.exchange, GhostExchange)
    return channel.exchange
