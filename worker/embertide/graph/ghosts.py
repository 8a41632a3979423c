"""An exchange and layer graphs without data, which layers are planned with: they count what moves.

What the graph decides is an expected number (:class:`embertide.footprint.Size`); all of it is what
a mean worker has. Each primitive that moves rows has its rule for ghosts beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from embertide.facts.telemetry.recorder import Label
from embertide.footprint import GraphSize, Size
from embertide.graph.exchange import Channel, Exchange
from embertide.graph.graph import LayerGraph
from embertide.graph.moves import Degrees, LoadedRows, Move, Statistics, TileRows, WholeRows
from embertide.graph.sources import Sources
from embertide.graph.views import EdgeView, Loops
from embertide.grid import AxisName, Grid, RowRanges
from embertide.kernels.block import Block
from embertide.kernels.edge_features import LoopFill
from embertide.kernels.ghosts import Ledger, ghost


class GhostExchange(Exchange):
    """Counts what would move.

    Attributes:
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
        moves: what has moved, in order.
    """

    def __init__(
        self, size: GraphSize, ledger: Ledger, building: dict[str, float], block: dict[str, float]
    ) -> None:
        self.size, self.ledger, self.building, self.block = size, ledger, building, block
        self.grid, self.moves = Grid(size.grid), []
        self.staging = cast(Any, SimpleNamespace(upload=lambda x: x, download=lambda x: x))
        self.recorder = cast(Any, SimpleNamespace(reduced=lambda _edges: None))

    moves: list[Move]

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
    """Non-zeros without any."""

    @property
    def ledger(self) -> Ledger:
        """By which it is known as a ghost."""
        return cast(Any, self.indices).ledger  # type: ignore[no-any-return]


@dataclass(frozen=True)
class GhostRanges(RowRanges):
    """A mean worker's share of the nodes of a type."""

    node_type: str = ""
    size: Size = field(kw_only=True)

    @classmethod
    def of(cls, node_type: str, size: Size) -> GhostRanges:
        """The first worker's."""
        return cls((), size.feature, None, node_type, size=size)

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


@dataclass(frozen=True, kw_only=True)
class GhostSources(Sources):
    """The sources of the edges of some relations, of which each travels once.

    Attributes:
        union: the edges of all.
        view: the first layer graph as its step sees it.
        pairs: with all columns, for the edges of a sub-range.
        loaded: the tensor of the features, where they are read where they were loaded.
        held: what is kept with them.
    """

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

    def __init__(self, exchange: GhostExchange, view: EdgeView, features: int = 0) -> None:
        size = exchange.size.of_relation(view.relation)
        self.exchange, self.view, self.size, self.relation = exchange, view, size, view.relation
        self.targets, self.features_read = GhostRanges.of("", size), features
        self.csr = cast(Any, SimpleNamespace(weighted=True))

    exchange: GhostExchange

    def variant(self, view: EdgeView) -> LayerGraph:
        """As a step sees it."""
        return GhostGraph(self.exchange, view, self.features_read)

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
        return [
            GhostSources(
                axis=self.exchange.grid.axis("world" if pairs or loaded else "graph"),
                local=graph.block(members),
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

    def block(self, members: int) -> Block:
        """The non-zeros of some rows."""
        edges = self.exchange.counted(self.size.edges / members)
        rows = self.exchange.counted(self.size.nodes / members)
        return GhostBlock(rows, rows, edges, edges, edges)

    def sub_range(self) -> Any:
        """What steps read of it."""
        rows = self.size.nodes / self.size.workers
        return SimpleNamespace(indptr=self.exchange.counted(rows + 1))

    def edge_features(self, _loops: Loops, _fill: LoopFill) -> torch.Tensor:
        """Those of a sub-range."""
        return self.exchange.counted(self.size.edges / self.size.workers, self.features_read)

    def in_degree(self) -> torch.Tensor:
        """One number for each row; the graph has them."""
        return self.exchange.counted(self.size.nodes / self.size.graph)

    weighted_in_degree = in_degree

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
        return self.exchange.counted(self.size.columns / self.size.graph)


def ghosts_of(channel: Channel) -> GhostExchange:
    """The exchange of a channel of ghosts."""
    assert isinstance(channel.exchange, GhostExchange)
    return channel.exchange
