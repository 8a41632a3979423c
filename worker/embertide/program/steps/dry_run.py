"""A plan's operations run on ghosts: what they hold and move, without computing a tensor.

Steps have no second description of what they cost. Their :meth:`Step.lower` runs as it is, with an
exchange, layer graphs and tensors that only count: the peak is the plan of memory, the moves are
the plan of traffic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Self

import torch

from embertide.footprint import FLOAT_BYTES, GraphSize, Size
from embertide.graph.batches import LANDED_ROWS
from embertide.graph.exchange import Channel
from embertide.graph.ghosts import GhostExchange, GhostGraph, GhostRanges
from embertide.graph.landing_in_place import RowProduct
from embertide.graph.moves import Conversion, Landing, Move
from embertide.graph.views import EdgeView
from embertide.kernels.ghosts import Ledger, ghost, let_go, seen
from embertide.layouts import Layout, Loaded, Shard
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Held, Input, Op
from embertide.program.steps.program import Program
from embertide.program.steps.tensors import Tensors

_LANDING_BATCHES = 5
"""Batches of products of loaded rows: the result, and two each to be sent and received."""
_LANDED_ROW_BYTES = 32
"""A row that is read in place: where it was loaded, and in int64 the row to be read."""


@dataclass
class DryRun:
    """The state while operations run on ghosts, one after another.

    Attributes:
        placed: node types whose features are in the order of their ids from the start.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
        alive: the tensors that have a name, whose bytes count as long as an operation reads them.
    """

    program: Program
    size: GraphSize
    placed: InitVar[Collection[str]] = ()
    building: dict[str, float] = field(default_factory=dict)
    block: dict[str, float] = field(default_factory=dict)

    def __post_init__(self, placed: Collection[str]) -> None:
        size, program = self.size, self.program
        self.alive = Alive(program, size.grid, size.in_place, placed)
        self._sizes: dict[tuple[str, bool], float] = {}
        self._ledger = Ledger(self._alive_bytes)
        self._exchange = GhostExchange(size, self._ledger, self.building, self.block)
        self._tensors = _GhostTensors(self)
        self.row_type = torch.float32 if size.row_bytes == FLOAT_BYTES else torch.bfloat16
        self._execution = Execution(
            exchange=self._exchange,
            program=program,
            ranges={name: GhostRanges.of(name, size.of_type(name)) for name in size.nodes},
            graphs=self._graph,
            tensors=self._tensors,
            locations={},
            depth=size.depth,
            row_type=self.row_type,
            reads_all=size.reads_all,
            scaled=set(),
        )

    @property
    def peak(self) -> float:
        """The most bytes so far."""
        return self._ledger.peak

    @property
    def moves(self) -> list[Move]:
        """What has moved, in order."""
        return self._exchange.moves

    def to_results(self, ops: Sequence[Op]) -> Self:
        """Op from the inputs to the results as rows."""
        self.run(ops)
        self.alive.frees = frozenset()
        for name in self.program.results.values():
            self.take(Input(name, "rows"), self.program.layers - 1)
        self._ledger.need()
        # Of graphs whose sources are never found, what else is freed then stays.
        self._ledger.peak += sum(self.building.values())
        return self

    def run(self, ops: Sequence[Op]) -> None:
        """Op operations whose inputs are there."""
        self._execution.scaled.update(op.out for op in ops if op.scales)
        for op in ops:
            self.alive.frees = op.frees
            self._tensors.seen.clear()
            made = op.lower(self._execution).data.dtype
            self.alive.make(op)
            self.alive.end(op)
            # What is kept in a narrower type is a copy.
            narrower = made != self._tensors.type_of(op.out)
            self._ledger.need(self.of(op.out).tensor(self.program.widths[op.out]) * narrower)

    def of(self, name: str) -> Size:
        """The nodes of a tensor."""
        return self.size.of_type(self.program.types[name])

    def take(self, read: Input, layer: int) -> None:
        """Count a tensor in a layout, converted where it is in another one."""
        name, layout, primitive = read
        origin, width = self.alive.origin(read), self.program.widths[name]
        if origin is not None:
            # Scores travel as they are.
            travels = origin != "loaded" and primitive == "gemm"
            copy = self.row_type.itemsize if travels and self._value(name) != self.row_type else 0
            self._ledger.need(self.of(name).tensor(width, self._value(name).itemsize + copy))
            to: Layout = "rows" if layout == "rows" else "tile"
            if origin == "loaded":
                self._landed(name, width, to, layer, FLOAT_BYTES)
            elif self.size.grid.feature > 1:
                of_type = self.program.types[name]
                self.moves.append(Conversion(layer, of_type, width, primitive, to))
        self.alive.convert(read)

    def land(
        self,
        x: str,
        layout: Layout,
        width: int,
        layer: int,
        onto: torch.Tensor | None,
        dtype: torch.dtype,
    ) -> Shard:
        """A product of loaded features, whose rows go to their owners.

        Args:
            onto: what it is added to, or None.
        """
        size = self.of(x)
        self._landed(x, width, layout, layer, dtype.itemsize)
        data = onto
        if onto is None or not self.size.in_place:
            data = ghost(self._ledger, self._shape(size, width, layout), dtype)
        buffers = 0.0
        if self.size.in_place:
            buffers = _LANDED_ROW_BYTES * min(LANDED_ROWS, size.nodes / size.graph)
        elif self.size.workers > 1:
            batch = min(float(self.size.group_bytes), size.tensor(width, dtype.itemsize))
            buffers = _LANDING_BATCHES * batch
        self._ledger.need(buffers)
        assert data is not None
        return Shard(layout, data if onto is None else onto, width)

    def seen(self, name: str, layout: Layout, dtype: torch.dtype) -> torch.Tensor:
        """A worker's part of a tensor, whose bytes count by its name."""
        shape = self._shape(self.of(name), self.program.widths[name], layout)
        return seen(self._ledger, shape, dtype)

    @staticmethod
    def _shape(size: Size, width: int, layout: Layout) -> tuple[float, float]:
        if layout == "tile":
            return size.nodes / size.graph, width / size.feature
        return size.nodes / size.workers, float(width)

    def _graph(self, layer: int, relation: str) -> GhostGraph:
        features = self.program.edge_needs(relation).features
        return GhostGraph(self._exchange, EdgeView(layer, relation=relation), features)

    def _landed(self, x: str, width: int, layout: Layout, layer: int, value_bytes: int) -> None:
        copies = self.size.grid.feature if layout == "tile" else 1
        self.moves.append(Landing(layer, x, width, copies, value_bytes))

    def _value(self, name: str) -> torch.dtype:
        return self._tensors.type_of(name)

    def _alive_bytes(self) -> float:
        """Bytes of all tensors that have a name."""
        return sum(
            self._bytes(name, layout == "sums")
            for name, layouts in self.alive.layouts.items()
            for layout in layouts
        )

    def _bytes(self, name: str, sums: bool) -> float:
        """Sums are float32."""
        if (name, sums) not in self._sizes:
            value = FLOAT_BYTES if sums else self._value(name).itemsize
            self._sizes[name, sums] = self.of(name).tensor(self.program.widths[name], value)
        return self._sizes[name, sums]


class _GhostTensors(Tensors):
    """The tensors of a dry run, by name."""

    def __init__(self, dry: DryRun) -> None:
        self._dry, self._program, self._params = dry, dry.program, dry.program.params
        self._row_type = torch.float32 if dry.size.row_bytes == FLOAT_BYTES else torch.bfloat16
        self.seen: dict[tuple[str, Held], torch.Tensor] = {}

    def get(self, name: str, layout: Layout, channel: Channel) -> Shard:
        self._dry.take(Input(name, layout, channel.label.primitive), channel.label.layer)
        return self._shard(name, layout, layout, self.type_of(name))

    def loaded(self, name: str) -> Loaded:
        data = self._shard(name, "loaded", "rows", torch.float32).data
        return Loaded(data[:, 0], data)

    def is_loaded(self, name: str) -> bool:
        return self._dry.alive.has(name, "loaded")

    def dies(self, name: str) -> bool:
        return self._dry.alive.dies(name)

    def read(self, name: str) -> None:
        if self.dies(name):
            self._let_go(name)

    def take(self, name: str) -> Shard:
        held = self._dry.alive.layouts[name][0]
        shard = self._shard(name, held, "tile" if held == "sums" else "rows", torch.float32)
        self._let_go(name)
        return shard

    def add(self, steps: Iterable[Step], _shards: Sequence[Shard]) -> None:
        for step in steps:
            self._dry.alive.layouts[step.out] = ("sums",)
            self._dry.alive.sums.add(step.out)

    def settle(self, name: str) -> None:
        """Nothing waits for it."""

    def land(
        self,
        name: str,
        _product: RowProduct | None,
        *,
        layout: Layout,
        width: int,
        layer: int,
        onto: torch.Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Shard:
        return self._dry.land(name, layout, width, layer, onto, dtype)

    def columns(self, name: str | None, _shard: Shard) -> torch.Tensor | None:
        return self.param(name)

    def _shard(self, name: str, held: Held, layout: Layout, dtype: torch.dtype) -> Shard:
        key = name, held
        if key not in self.seen:
            self.seen[key] = self._dry.seen(name, layout, dtype)
        return Shard(layout, self.seen[key], self._program.widths[name])

    def _let_go(self, name: str) -> None:
        """What still refers to the tensor keeps it alive."""
        layouts = self._dry.alive.layouts.get(name, ())
        self._dry.alive.drop(name)
        for key in [key for key in self.seen if key[0] == name]:
            data = self.seen.pop(key)
            if key[1] in layouts:
                let_go(data)
