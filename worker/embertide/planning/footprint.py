"""The largest tensors a program holds at a time, found by walking it as the executor does."""

from __future__ import annotations

import math
from dataclasses import dataclass

from embertide.models import program as steps
from embertide.models.program import Program, Step
from embertide.spec.grid import GridShape


@dataclass(frozen=True)
class Size:
    """What decides the memory of a run: nodes, edges, the grid, and how features travel."""

    nodes: int
    edges: int
    grid: GridShape
    group_bytes: int
    depth: int

    @property
    def graph(self) -> int:
        """P."""
        return self.grid.graph

    @property
    def feature(self) -> int:
        """M."""
        return self.grid.feature

    @property
    def workers(self) -> int:
        """W."""
        return self.grid.workers

    def tensor(self, width: int) -> float:
        """Bytes of one worker's part of a dense tensor, in either layout."""
        return 4.0 * self.nodes * width / self.workers

    def unique(self, parts: int | None = None) -> float:
        """Expected unique remote sources of one of ``parts`` (default: the P partitions).

        As if sources were drawn evenly.
        """
        parts = parts or self.graph
        remote = self.nodes * (parts - 1) / parts
        draws = self.edges / parts
        return remote * -math.expm1(draws * math.log1p(-1.0 / (self.nodes + 1)))

    def pattern(self, width: int) -> float:
        """Bytes of the remote blocks' rows: 8 for each row that each group touches."""
        if self.graph == 1:
            return 0.0
        group_rows = max(1.0, self.group_bytes * self.feature / (4.0 * width))
        groups = max(1.0, self.unique() / group_rows)
        rows = self.nodes / self.graph
        remote = self.edges / self.graph * (self.graph - 1) / self.graph
        return 8.0 * groups * rows * -math.expm1(-remote / groups / rows)

    def in_flight(self, width: int) -> float:
        """Bytes of the groups on their way, in and out, one being computed."""
        if self.graph == 1:
            return 0.0
        received = 4.0 * self.unique() * width / self.feature
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
        # Parts that come as tiles and are read again later stay beside their rows.
        return out + sum(size.tensor(program.widths[name]) for name in names)
    if isinstance(step, steps.Aggregate):
        return out + size.in_flight(width)
    if isinstance(step, steps.Attend | steps.PairAttend):
        heads = size.tensor(width)
        scalars = 4.0 * step.heads * (size.nodes / size.graph * 4 + size.unique())
        pairs = 4.0 * step.heads * size.edges / size.graph * 2
        extra = pairs if isinstance(step, steps.PairAttend) else 0.0
        return out + heads + scalars + extra + size.in_flight(width)
    return out
