"""The memory and traffic of a plan's operations, counted without computing a tensor.

Each operation that runs counts what it allocates and moves: the peak is the plan of memory, the
moves are the plan of traffic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Self

from embertide.footprint import FLOAT_BYTES, GraphSize, Size
from embertide.graph.batches import LANDED_ROWS
from embertide.graph.views import EdgeView
from embertide.layouts import Layout
from embertide.program.steps.alive import Alive
from embertide.program.steps.moves import Conversion, Degrees, Landing, Move
from embertide.program.steps.op import Held, Input, Op
from embertide.program.steps.program import Program
from embertide.spec.grid import GridShape

_LANDING_BATCHES = 5
"""Batches of products of loaded rows: the result, and two each to be sent and received."""
_LANDED_ROW_BYTES = 32
"""A row that is read in place: where it was loaded, and in int64 the row to be read."""


@dataclass
class Costs:
    """The state while operations are counted, one after another.

    Attributes:
        placed: node types whose features are in the order of their ids from the start.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
        layer: of the operation's first step.
        peak: the most bytes so far.
        moves: what has moved, in order.
    """

    program: Program
    size: GraphSize
    placed: InitVar[Collection[str]] = ()
    building: dict[str, float] = field(default_factory=dict)
    block: dict[str, float] = field(default_factory=dict)
    layer: int = 0
    peak: float = 0.0
    moves: list[Move] = field(default_factory=list)

    def __post_init__(self, placed: Collection[str]) -> None:
        self.alive = Alive(self.program, self.size.grid, self.size.in_place, placed)

    def count(self, ops: Sequence[Op]) -> Self:
        """Count from the inputs to the results as rows."""
        for op in ops:
            self.alive.frees, self.layer = op.frees, op.steps[0].layer
            op.cost(self)
            self.alive.make(op)
            if op.leader is None:
                self.round(op.out)
            self.alive.end(op)
        self.alive.frees, self.layer = frozenset(), self.program.layers - 1
        for name in self.program.results.values():
            self.take(Input(name, "rows"))
        return self

    # -- sizes -------------------------------------------------------------------------------

    @property
    def grid(self) -> GridShape:
        """The grid of the workers."""
        return self.size.grid

    def of(self, name: str) -> Size:
        """The nodes of a tensor."""
        return self.size.of_type(self.program.types[name])

    def over(self, view: EdgeView) -> Size:
        """The edges of a relation."""
        return self.size.of_relation(view.relation)

    def width(self, name: str) -> int:
        """Columns of a tensor."""
        return self.program.widths[name]

    def columns(self, op: Op) -> float:
        """Columns of an operation's result that a worker holds."""
        width = self.width(op.out)
        return width / self.grid.feature if op.layout == "tile" else float(width)

    def tensor(self, name: str) -> float:
        """Bytes of one worker's part in the type that the tensor is kept in, in any layout."""
        return self.of(name).tensor(self.width(name), self.value_bytes(name))

    def value_bytes(self, name: str) -> int:
        """Bytes of a value of a tensor: fewer where its rows are only read over edges."""
        return self.size.row_bytes if name in self.program.only_gathered else FLOAT_BYTES

    def whole(self, name: str) -> float:
        """Bytes of one worker's part in float32."""
        return self.of(name).tensor(self.width(name))

    def sent(self, name: str) -> float:
        """Bytes of a copy in the type in which rows are read over edges and travel; 0: none."""
        value = self.size.row_bytes
        same = value == self.value_bytes(name)
        return 0.0 if same else self.of(name).tensor(self.width(name), value)

    def alive_bytes(self) -> float:
        """Bytes of all tensors that are alive."""
        return sum(
            self._held_as(name, layout)
            for name, layouts in self.alive.layouts.items()
            for layout in layouts
        )

    def _held_as(self, name: str, layout: Held) -> float:
        return self.whole(name) if layout == "sums" else self.tensor(name)

    # -- what an operation does --------------------------------------------------------------

    def need(self, more: float) -> None:
        """Count bytes that are allocated in addition to what is alive."""
        self.peak = max(self.peak, self.alive_bytes() + more)

    def make(self, op: Op, more: float = 0.0) -> None:
        """Count the inputs in their layouts, then the result, unless an input becomes it.

        Args:
            more: bytes of buffers while it is computed.
        """
        self.take_inputs(op)
        self.need((0.0 if op.reuses else self.tensor(op.out)) + more)

    def take_inputs(self, op: Op) -> None:
        """Count all inputs in their layouts."""
        for read in op.inputs:
            self.take(read)

    def take(self, read: Input) -> None:
        """Count a tensor in a layout, converted where it is in another one."""
        name, layout, primitive = read
        origin = self.alive.origin(read)
        if origin == "loaded":
            self.need(self.tensor(name))
            self._land(name, self.width(name), layout)
        elif origin is not None:
            copy = self.sent(name) if primitive == "gemm" else 0.0
            self.need(self.tensor(name) + copy)
            self.convert(name, self.layer, primitive, "rows" if layout == "rows" else "tile")
        self.alive.convert(read)

    def result(self, op: Op) -> float:
        """Bytes of a result in ``rows``: none where it is added to another tensor in place."""
        if op.onto is None:
            return self.tensor(op.out)
        self.take(Input(op.onto, "rows"))
        return 0.0

    def read(self, name: str) -> None:
        """Free a tensor that the operation has read, where no later one reads it."""
        if self.alive.dies(name):
            self.alive.drop(name)

    def round(self, name: str) -> None:
        """Count a result in float32 and its copy in the type that it is kept in, where narrower."""
        if self.tensor(name) < self.whole(name):
            self.need(self.whole(name) + self.tensor(name))

    def convert(self, name: str, layer: int, primitive: str = "gemm", to: Layout = "rows") -> None:
        """Count a change of layout, which moves nothing where there is one slice."""
        if self.grid.feature > 1:
            self.moves.append(Conversion(layer, name, self.width(name), primitive, to))

    def land_product(self, x: str, op: Op) -> None:
        """Count a row-wise function of loaded features; its result is sent to the rows' owners."""
        result = self.tensor(op.out)
        self.need(result + self._landing(x, result))
        self._land(x, self.width(op.out), op.layout, self.value_bytes(op.out))

    def _landing(self, x: str, result: float) -> float:
        """Bytes of buffers while products of loaded rows are sent to the rows' owners."""
        if self.grid.workers == 1:
            return 0.0
        if self.size.in_place:
            return _LANDED_ROW_BYTES * min(LANDED_ROWS, self.of(x).nodes / self.grid.graph)
        return _LANDING_BATCHES * min(float(self.size.group_bytes), result)

    def _land(self, x: str, width: int, layout: Held, value_bytes: int = FLOAT_BYTES) -> None:
        """Count loaded rows, or a product of them, sent to the rows' owners."""
        copies = self.grid.feature if layout == "tile" else 1
        self.moves.append(Landing(self.layer, x, width, copies, value_bytes))

    def build(self, *views: EdgeView) -> None:
        """Count the layer graph of a relation, at the first step over its edges."""
        self.need(sum(self.building.pop(view.relation, 0.0) for view in views))

    def degrees(self, view: EdgeView, *, weighted: bool = False) -> None:
        """Count the traffic of out-degrees, or of the sums of their weights."""
        self.moves.append(Degrees(view, weighted))
