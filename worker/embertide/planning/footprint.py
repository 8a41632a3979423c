"""The largest tensors a program holds at a time, found by walking its steps in order."""

from __future__ import annotations

import math
from dataclasses import dataclass

from embertide.models import program as steps
from embertide.models.program import Program, Step
from embertide.spec.grid import GridShape

FLOAT_BYTES = 4
"""Of a value of a dense tensor, an edge weight and a score: float32."""
ID_BYTES = 8
"""Of a dense id, a row offset, or a packed edge: int64."""
LOCATION_BYTES = 8
"""Of the rank and row that hold a node's features: two int32."""
_TOUCHED_ROW_BYTES = 8
"""Of a row in a remote group's block: its number and the end of its run, int32 each."""
_SCORES_PER_ROW = 4
"""[N/P, H'] tensors that additive attention holds: source and target scores, maxima, sums."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """What decides the memory of a run.

    Attributes:
        group_bytes: most bytes that a group of remote rows takes in its receive buffer.
        depth: groups in flight at a time.
    """

    nodes: int
    edges: int
    grid: GridShape
    group_bytes: int
    depth: int

    @property
    def graph(self) -> int:
        """P, the number of graph partitions."""
        return self.grid.graph

    @property
    def feature(self) -> int:
        """M, the number of feature slices."""
        return self.grid.feature

    @property
    def workers(self) -> int:
        """W = P * M, the number of workers."""
        return self.grid.workers

    def tensor(self, width: int) -> float:
        """Bytes of one worker's part of a dense tensor, in either layout."""
        return float(FLOAT_BYTES) * self.nodes * width / self.workers

    def heads(self, heads: int) -> float:
        """H': heads that a worker's columns belong to, on average over the M slices."""
        return (heads + self.feature - math.gcd(heads, self.feature)) / self.feature

    def unique(self, count: int | None = None) -> float:
        """Expected unique remote sources of one of ``count`` equal ranges of rows.

        As if sources were drawn evenly; by default of one of the P partitions.
        """
        count = count or self.graph
        remote = self.nodes * (count - 1) / count
        draws = self.edges / count
        return remote * -math.expm1(draws * math.log1p(-1.0 / (self.nodes + 1)))

    def pattern(self, width: int) -> float:
        """Bytes of the remote blocks' rows: each group has its own list of those it touches."""
        if self.graph == 1:
            return 0.0
        group_rows = max(1.0, self.group_bytes * self.feature / (FLOAT_BYTES * width))
        groups = max(1.0, self.unique() / group_rows)
        rows = self.nodes / self.graph
        remote = self.edges / self.graph * (self.graph - 1) / self.graph
        return _TOUCHED_ROW_BYTES * groups * rows * -math.expm1(-remote / groups / rows)

    def in_flight(self, width: int) -> float:
        """Bytes of the groups in flight, received and sent, and of the one being computed."""
        if self.graph == 1:
            return 0.0
        received = FLOAT_BYTES * self.unique() * width / self.feature
        return min((2 * self.depth + 1) * float(self.group_bytes), 2 * received)


def tensor_peak(program: Program, size: Size) -> float:
    """Bytes of the tensors alive in the fullest moment of the layers."""
    last = {name: at for at, step in enumerate(program.steps) for name in step.reads()}
    last[program.output] = len(program.steps)
    alive, peak = {program.input}, 0.0
    for at, step in enumerate(program.steps):
        held = sum(size.tensor(program.widths[name]) for name in alive)
        peak = max(peak, held + _added(program, step, size, last, at))
        alive = {name for name in alive if last.get(name, -1) > at} | {step.out}
    return peak


def _added(program: Program, step: Step, size: Size, last: dict[str, int], at: int) -> float:
    """Bytes a step allocates beside what is alive: its result and its temporaries."""
    out = size.tensor(program.widths[step.out])
    names = step.reads()
    width = max(program.widths[name] for name in names)
    in_place = (steps.Affine, steps.Activation, steps.Combine, steps.DivideByDegree)
    if isinstance(step, in_place) and last[names[-1]] <= at:
        return 0.0 if size.feature == 1 else out
    if isinstance(step, steps.Linear):
        return out
    if isinstance(step, steps.Concat | steps.Maximum) and size.feature > 1:
        # Inputs that come as tiles and are read again later stay beside their rows.
        return out + sum(size.tensor(program.widths[name]) for name in names)
    if isinstance(step, steps.Aggregate):
        return out + size.in_flight(width)
    if isinstance(step, steps.Attend | steps.PairAttend):
        return out + size.tensor(width) + _scores(step, size) + size.in_flight(width)
    return out


def _scores(step: steps.Attend | steps.PairAttend, size: Size) -> float:
    """Bytes of scores and what a softmax carries from group to group; one block needs none."""
    mine = FLOAT_BYTES * size.heads(step.heads)
    if isinstance(step, steps.Attend):
        return mine * (size.nodes / size.graph * _SCORES_PER_ROW + size.unique())
    if size.workers == 1:
        return 0.0
    # Scores of our sub-range's edges, what of them is sent, and the shares of the partition's.
    own = FLOAT_BYTES * step.heads * size.edges / size.workers
    return mine * size.edges / size.graph + (2 * own if size.feature > 1 else 0.0)
