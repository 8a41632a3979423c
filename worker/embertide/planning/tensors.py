"""The largest tensors a program holds at a time, and how they move between workers.

Both are found by walking the program's runs of steps in order. The walk follows what
:mod:`embertide.stages.infer` does: which tensors are alive, in which layouts, and what a run
allocates beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from embertide.models import program as steps
from embertide.models.fuse import Run, runs
from embertide.models.program import EdgeStep, Program, Step
from embertide.planning.footprint import FLOAT_BYTES, Size

_LANDING_BATCHES = 5
"""Of products of loaded rows: the result, and two batches each to be sent and received."""
_SOURCE_BYTES = 14
"""Of a source whose row is looked up at its loader."""
_ROWS = (steps.Linear, steps.HeadDot, steps.HeadMean, steps.LayerNorm, steps.RowNormalize)
_IN_PLACE = (steps.Affine, steps.Activation, steps.DivideByDegree)


@dataclass(frozen=True)
class Landing:
    """A product of the loaded features, or they themselves, on the way to their places.

    Attributes:
        copies: workers that each row goes to, an equal share of its columns to each.
    """

    layer: int
    width: int
    copies: int


@dataclass(frozen=True)
class Conversion:
    """A tensor from one layout to the other, on the feature axis; labelled ``primitive``."""

    layer: int
    width: int
    primitive: str = "gemm"


@dataclass(frozen=True)
class Gathering:
    """Rows of neighbours for a step over edges; from those who ``loaded`` them, or a tile's."""

    step: EdgeStep
    loaded: bool = False


Move = Landing | Conversion | Gathering


def tensor_moves(program: Program, size: Size) -> list[Move]:
    """What moves between several workers during the layers, in order."""
    walk = _Walk(program, size, 0.0, 0.0)
    walk.all("loaded")
    return walk.moves


def tensor_peak(
    program: Program, size: Size, *, placed: bool, building: float, block: float
) -> float:
    """Bytes of the tensors alive in the fullest moment of the layers.

    Args:
        placed: the input is in order from the start.
        building: bytes that the layer graph takes while it is built, beyond what stays of it.
        block: bytes of the blocks of a sum over features where they were loaded.
    """
    walk = _Walk(program, size, building, block)
    walk.all("rows" if placed else "loaded")
    return max(walk.peak, walk.held())


@dataclass
class _Walk:
    """The state of a walk: ``at`` is the number of the run's last step, ``layer`` its first's."""

    program: Program
    size: Size
    building: float
    block: float
    at: int = -1
    peak: float = 0.0
    alive: dict[str, tuple[str, ...]] = field(default_factory=dict)
    layer: int = 0
    moves: list[Move] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.last = {
            name: at for at, step in enumerate(self.program.steps) for name in step.reads()
        }
        self.last[self.program.output] = len(self.program.steps)

    def all(self, given: str) -> None:
        """Walk from the input, in a layout, to the output as rows."""
        program = self.program
        self.alive[program.input] = (given,)
        for run in runs(program):
            self.at += len(run.steps)
            self.layer = run.steps[0].layer
            layout = self.run(run)
            last = {name for name, at in self.last.items() if at > self.at}
            self.alive = {name: kept for name, kept in self.alive.items() if name in last}
            self.alive[run.out] = (layout,)
        self.layer = program.layers - 1
        self.get(program.output, "rows")

    def tensor(self, name: str) -> float:
        """Bytes of one worker's part, in any layout."""
        return self.size.tensor(self.program.widths[name])

    def held(self) -> float:
        """Bytes of what is alive."""
        return sum(self.tensor(name) * len(layouts) for name, layouts in self.alive.items())

    def need(self, more: float) -> None:
        """What is allocated beside what is alive."""
        self.peak = max(self.peak, self.held() + more)

    def dies(self, name: str) -> bool:
        """Whether no later run reads a tensor."""
        return self.last[name] <= self.at

    def get(self, name: str, layout: str, primitive: str = "gemm") -> str:
        """A tensor in a layout; with one slice all are the same, but for loaded rows."""
        layouts, width = self.alive[name], self.program.widths[name]
        if layout in layouts or ("loaded" not in layouts and self.size.feature == 1):
            return layout
        self.need(self.tensor(name))
        if "loaded" in layouts:
            self.land(width, layout)
        else:
            self.convert(width, self.layer, primitive)
        kept = () if "loaded" in layouts or self.dies(name) else layouts
        self.alive[name] = (*kept, layout)
        return layout

    def land(self, width: int, layout: str) -> None:
        """Loaded rows, or a product of them, go to their places."""
        copies = self.size.feature if layout == "tile" else 1
        self.moves.append(Landing(self.layer, width, copies))

    def convert(self, width: int, layer: int, primitive: str = "gemm") -> None:
        """A tensor changes its layout, which moves nothing where there is one slice."""
        if self.size.feature > 1:
            self.moves.append(Conversion(layer, width, primitive))

    def any(self, name: str) -> str:
        """A tensor in the layout it has; loaded ones as rows."""
        layouts = self.alive[name]
        return self.get(name, "rows") if "loaded" in layouts else layouts[0]

    def build(self) -> None:
        """The first step over edges builds the graph."""
        self.need(self.building)
        self.building = 0.0

    def run(self, run: Run) -> str:
        """A run of steps; the layout of its result."""
        if run.aggregate is not None:
            return self._aggregate(run, run.aggregate)
        if run.linear is not None:
            return self._linear(run, run.linear)
        (step,) = run.steps
        if isinstance(step, steps.Attend | steps.PairAttend):
            return self._attend(step)
        return self._node_step(step)

    def _aggregate(self, run: Run, step: steps.Aggregate) -> str:
        width, more = self.program.widths[step.x], 0.0
        loaded = "loaded" in self.alive[step.x] and self.size.workers > 1
        if loaded:
            more = self.block + _SOURCE_BYTES * self.size.unique()
            more += self.tensor(step.x) if self.size.feature > 1 else 0.0
        else:
            self.get(step.x, "tile")
        self.build()
        self.moves.append(Gathering(step, loaded))
        sums, out = self.size.tensor(width), self.tensor(run.out)
        if run.linear is None or self.size.workers == 1:
            self.need(more + out + self.size.in_flight(width))
            return "tile" if run.linear is None else "rows"
        self.need(more + sums + self.size.in_flight(width))
        if self.dies(step.x):
            del self.alive[step.x]
        self.need(sums + out)
        self.convert(width, run.linear.layer)
        return "rows"

    def _linear(self, run: Run, step: steps.Linear) -> str:
        out = self.tensor(run.out)
        if "loaded" not in self.alive[step.x]:
            self.need(out)
            if "rows" not in self.alive[step.x]:
                self.convert(self.program.widths[step.x], step.layer)
            return "rows"
        batch = min(float(self.size.group_bytes), out) if self.size.workers > 1 else 0.0
        self.need(out + _LANDING_BATCHES * batch)
        readers = [other for other in self.program.steps if run.out in other.reads()]
        whole = run.out == self.program.output or any(
            isinstance(other, (*_ROWS, steps.Concat))
            or (isinstance(other, steps.PairAttend) and run.out in (other.key, other.query))
            for other in readers
        )
        layout = "rows" if whole else "tile"
        self.land(self.program.widths[step.out], layout)
        return layout

    def _attend(self, step: steps.Attend | steps.PairAttend) -> str:
        if isinstance(step, steps.PairAttend):
            ends, layout = (step.key, step.query), "rows" if self.size.workers == 1 else "tile"
            primitive = "gemm"
        else:
            ends, layout, primitive = (step.source, step.target), "tile", "scalars"
        for name in ends:
            self.get(name, "rows", primitive)
        self.get(step.x, layout)
        self.build()
        self.moves.append(Gathering(step))
        scores = _scores(step, self.size)
        if isinstance(step, steps.PairAttend) and self.size.workers > 1:
            # Scored and exchanged before the result is there.
            self.need(_shared(step, self.size))
        width = self.program.widths[step.x]
        self.need(self.tensor(step.out) + scores + self.size.in_flight(width))
        return "tile"

    def _node_step(self, step: Step) -> str:
        names = step.reads()
        if isinstance(step, _IN_PLACE):
            layout = self.any(names[0])
        elif isinstance(step, steps.Combine | steps.Maximum):
            tiles = all("tile" in self.alive[name] for name in names)
            layout = "tile" if tiles else "rows"
        else:
            layout = "rows"
        for name in names:
            self.get(name, layout)
        changed = isinstance(step, (*_IN_PLACE, steps.Combine)) and self.dies(names[-1])
        self.need(0.0 if changed else self.tensor(step.out))
        return layout


def _scores(step: steps.Attend | steps.PairAttend, size: Size) -> float:
    """Bytes of scores, and of a softmax over several blocks, beside the result."""
    mine, rows = FLOAT_BYTES * size.heads(step.heads), size.nodes / size.graph
    if isinstance(step, steps.Attend):
        # Of both ends where slices exchange them; maxima and sums where groups follow each other.
        per_row = (3 if size.feature > 1 else 0) + (2 if size.graph > 1 else 0)
        return mine * (rows * per_row + (size.unique() if size.graph > 1 else 0.0))
    return 0.0 if size.workers == 1 else mine * size.edges / size.graph


def _shared(step: steps.PairAttend, size: Size) -> float:
    """Bytes of our sub-range's scores; where slices exchange them, of what is sent and received."""
    own = FLOAT_BYTES * step.heads * size.edges / size.workers
    if size.feature == 1:
        return own
    received = FLOAT_BYTES * size.heads(step.heads) * size.edges / size.graph
    return 2 * own + 2 * received
