"""A walk over a plan's operations: which tensors are alive, in which layouts, and what moves.

It follows what the lowering of each step does, without a tensor: the fullest moment of it is a
plan of memory, its moves are a plan of traffic.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from embertide.footprint import FLOAT_BYTES, GraphSize, Size
from embertide.layouts import Layout
from embertide.primitives.batches import LANDED_ROWS
from embertide.primitives.views import EdgeView
from embertide.spec.grid import GridShape
from embertide.steps.moves import Conversion, Degrees, Landing, Move
from embertide.steps.program import Program
from embertide.steps.run import Run

_LANDING_BATCHES = 5
"""Of products of loaded rows: the result, and two batches each to be sent and received."""
_LANDED_ROW_BYTES = 32
"""Of a row that is found in place: where it was loaded, and in int64 the row to be read."""


@dataclass
class Walk:
    """The state of a walk.

    Attributes:
        ops: the program's steps as operations, in order.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
        at: the number of the run's last step.
        layer: of the run's first step.
        peak: bytes of the fullest moment so far.
        alive: the layouts of every tensor that is alive; ``loaded`` is one of them.
        ahead: step -> bytes of its result, or sums, which were made with those of another step.
        moves: what has moved, in order.
    """

    program: Program
    ops: Sequence[Run]
    size: GraphSize
    building: dict[str, float] = field(default_factory=dict)
    block: dict[str, float] = field(default_factory=dict)
    at: int = -1
    layer: int = 0
    peak: float = 0.0
    alive: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ahead: dict[str, float] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._last = self.program.last_reads()

    def all(self, placed: Container[str] = ()) -> None:
        """Walk from the inputs to the results as rows.

        Args:
            placed: node types whose features are in order from the start.
        """
        program = self.program
        for node_type, name in program.inputs.items():
            self.alive[name] = ("rows",) if node_type in placed else ("loaded",)
        for run in self.ops:
            self.at += len(run.steps)
            self.layer = run.steps[0].layer
            layout = run.walk(self)
            if run.leader is None:
                self.round(run.out)
            self._keep(run, layout)
        self.layer = program.layers - 1
        for name in program.results.values():
            self.get(name, "rows")

    def _keep(self, run: Run, layout: Layout) -> None:
        """A run's result is there; what no later one reads is gone."""
        last = {name for name, at in self._last.items() if at > self.at}
        self.alive = {name: kept for name, kept in self.alive.items() if name in last}
        self.alive[run.out] = (layout,)

    # -- what there is -----------------------------------------------------------------------

    @property
    def grid(self) -> GridShape:
        """The grid of the workers."""
        return self.size.grid

    def of(self, name: str) -> Size:
        """The nodes that a tensor is of."""
        return self.size.of_type(self.program.types[name])

    def over(self, view: EdgeView) -> Size:
        """The edges of a relation."""
        return self.size.of_relation(view.relation)

    def width(self, name: str) -> int:
        """Columns of a tensor."""
        return self.program.widths[name]

    def tensor(self, name: str) -> float:
        """Bytes of one worker's part as it is held, in any layout."""
        return self.of(name).tensor(self.width(name), self.value_bytes(name))

    def value_bytes(self, name: str) -> int:
        """Of a value of a tensor as it is held: less where its rows are only read over edges."""
        return self.size.row_bytes if name in self.program.only_gathered else FLOAT_BYTES

    def whole(self, name: str) -> float:
        """Bytes of one worker's part in float32."""
        return self.of(name).tensor(self.width(name))

    def sent(self, name: str) -> float:
        """Bytes of a copy in the type in which rows are read over edges and travel; 0: none."""
        value = self.size.row_bytes
        same = value == self.value_bytes(name)
        return 0.0 if same else self.of(name).tensor(self.width(name), value)

    def held(self) -> float:
        """Bytes of what is alive."""
        alive = sum(self.tensor(name) * len(layouts) for name, layouts in self.alive.items())
        return alive + sum(self.ahead.values())

    def dies(self, name: str) -> bool:
        """Whether no later run reads a tensor."""
        return self._last[name] <= self.at

    def has(self, name: str, layout: str) -> bool:
        """Whether the tensor is there in a layout."""
        return layout in self.alive[name]

    # -- what a step does ----------------------------------------------------------------------

    def need(self, more: float) -> None:
        """What is allocated beside what is alive."""
        self.peak = max(self.peak, self.held() + more)

    def round(self, name: str) -> None:
        """A result was made in float32: it is beside what it is held as, where that is less."""
        if self.tensor(name) < self.whole(name):
            self.need(self.whole(name) + self.tensor(name))

    def get(self, name: str, layout: Layout, primitive: str = "gemm") -> Layout:
        """A tensor in a layout; with one slice all are the same, but for loaded rows."""
        layouts = self.alive[name]
        if layout in layouts or ("loaded" not in layouts and self.grid.feature == 1):
            return layout
        if "loaded" in layouts:
            self.need(self.tensor(name))
            self._land(name, self.width(name), layout)
        else:
            copy = self.sent(name) if primitive == "gemm" else 0.0
            self.need(self.tensor(name) + copy)
            self.convert(name, self.layer, primitive, layout)
        kept = () if "loaded" in layouts or self.dies(name) else layouts
        self.alive[name] = (*kept, layout)
        return layout

    def gathered(self, name: str, layout: Layout) -> float:
        """A tensor in a layout, its rows to be read over edges; bytes of the copy made of it."""
        self.get(name, layout)
        return self.sent(name)

    def any(self, name: str) -> Layout:
        """A tensor in the layout it has; loaded ones as rows."""
        if self.has(name, "loaded"):
            return self.get(name, "rows")
        return "rows" if self.alive[name][0] == "rows" else "tile"

    def result(self, run: Run) -> float:
        """Bytes of a run's result in ``rows``: none where it is made in what is there."""
        if run.onto is None:
            return self.tensor(run.out)
        self.get(run.onto, "rows")
        return 0.0

    def read(self, name: str) -> None:
        """The run is done with the tensor, which makes room where no later one reads it."""
        if self.dies(name):
            self.alive.pop(name, None)

    def convert(self, name: str, layer: int, primitive: str = "gemm", to: Layout = "rows") -> None:
        """A tensor changes its layout, which moves nothing where there is one slice."""
        if self.grid.feature > 1:
            self.moves.append(Conversion(layer, name, self.width(name), primitive, to))

    def land_product(self, x: str, out: str, layout: Layout) -> Layout:
        """A row-wise function of loaded features, which ``out`` is, goes to its place."""
        made = self.tensor(out)
        self.need(made + self._landing(x, made))
        self._land(x, self.width(out), layout, self.value_bytes(out))
        return layout

    def _landing(self, x: str, made: float) -> float:
        """What is held beside products of loaded rows while they go to their places."""
        if self.grid.workers == 1:
            return 0.0
        if self.size.in_place:
            return _LANDED_ROW_BYTES * min(LANDED_ROWS, self.of(x).nodes / self.grid.graph)
        return _LANDING_BATCHES * min(float(self.size.group_bytes), made)

    def _land(self, x: str, width: int, layout: Layout, value_bytes: int = FLOAT_BYTES) -> None:
        """Loaded rows, or a product of them, go to their places."""
        copies = self.grid.feature if layout == "tile" else 1
        self.moves.append(Landing(self.layer, x, width, copies, value_bytes))

    def build(self, *views: EdgeView) -> None:
        """The first step over the edges of a relation builds its graph."""
        self.need(sum(self.building.pop(view.relation, 0.0) for view in views))

    def degrees(self, view: EdgeView, *, weighted: bool = False) -> None:
        """Out-degrees are counted, or their weights added up."""
        self.moves.append(Degrees(view, weighted))

    # -- steps that touch each node alone ------------------------------------------------------

    def in_place(self, x: str, out: str) -> Layout:
        """Change a tensor in the layout it has, or a copy of it where a later step reads it."""
        layout = self.any(x)
        self.need(0.0 if self.dies(x) else self.tensor(out))
        return layout

    def together(self, names: list[str], out: str, *, in_place: bool = False) -> Layout:
        """Element by element of several: in tiles if all are tiles already; else in rows.

        Args:
            in_place: the last one is changed where no later step reads it.
        """
        tiles = all(self.has(name, "tile") for name in names)
        layout: Layout = "tile" if tiles else "rows"
        for name in names:
            self.get(name, layout)
        free = in_place and self.dies(names[-1]) and names.count(names[-1]) == 1
        self.need(0.0 if free else self.tensor(out))
        return layout

    def whole_rows(self, names: list[str], out: str) -> Layout:
        """A function of whole rows."""
        for name in names:
            self.get(name, "rows")
        self.need(self.tensor(out))
        return "rows"
