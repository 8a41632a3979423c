"""The result of the passes: a program's steps in order, and the operations that run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from embertide.program.steps.op import Op
from embertide.program.steps.program import Program
from embertide.spec.grid import GridShape


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a program is to run: with the program, all that a plan depends on.

    Attributes:
        grid: the workers.
        in_place: all of them are on one host, and read each other's memory.
        sampled: each layer reads another sample of the edges.
        placed: node types whose features are in the order of their ids from the start.
        panel: columns of a tensor that are in memory at a time, where tensors are on disk; 0: all
            tensors are in memory.
        spills_graph: edges and the graph are on disk, too.
    """

    grid: GridShape
    in_place: bool = False
    sampled: bool = False
    placed: frozenset[str] = frozenset()
    panel: int = 0
    spills_graph: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the workers of a target run a program.

    Attributes:
        program: its steps in the order in which they run.
        sliced: the same in the order for the target's grid, by which grids are checked.
        whole_rows: workers compute whole rows of their sub-ranges, whatever the grid slices.
        ops: the operations in order, each of one step or of several that are fused.
        phases: number of each operation's phase. Within a phase, rows of other nodes are needed
            only from tensors that were there when it began.
    """

    program: Program
    target: Target
    sliced: Program
    whole_rows: bool = False
    ops: tuple[Op, ...] = ()
    phases: tuple[int, ...] = ()

    @property
    def grid(self) -> GridShape:
        """The grid that computes the layers."""
        grid = self.target.grid
        return GridShape.of(grid.workers, 1) if self.whole_rows else grid

    @property
    def reads_all(self) -> bool:
        """Whether a worker reads every row of a tensor, with all columns, in place."""
        grid = self.grid
        return grid.workers == 1 or (self.target.in_place and grid.feature == 1)

    @property
    def moving_workers(self) -> int:
        """Workers among which rows move, for which steps are ordered: one where nothing moves."""
        return 1 if self.whole_rows else self.target.grid.workers

    def ordered(self, program: Program) -> Plan:
        """The plan with the program's steps in another order, or with other steps."""
        return replace(self, program=program, ops=())

    @cached_property
    def last_reads(self) -> dict[str, int]:
        """Name of a tensor -> the number of the last operation that reads it; of results beyond."""
        last: dict[str, int] = {}
        for at, op in enumerate(self.ops):
            last |= dict.fromkeys((name for step in op.steps for name in step.reads()), at)
        return last | dict.fromkeys(self.program.results.values(), len(self.ops))

    def kept_after(self, phase: int) -> list[str]:
        """The tensors that are there when a phase ends and that later ones read, or are results."""
        ends = {op.out: number for op, number in zip(self.ops, self.phases, strict=True)}
        there = [*self.program.inputs.values(), *ends]
        return [
            name for name in there if ends.get(name, -1) <= phase and self._last_phase(name) > phase
        ]

    def has_sums_at(self, at: int) -> bool:
        """Whether an operation before number ``at`` has made sums that a later one finishes."""
        brought = {step.out for op in self.ops[:at] for step in op.brings}
        return any(
            op.reads(op.steps[0].out, "sums") for op in self.ops[at:] if op.steps[0].out in brought
        )

    def _last_phase(self, name: str) -> int:
        at = self.last_reads.get(name, -1)
        if at == len(self.ops):
            return self.phases[-1] + 1
        return self.phases[at] if at >= 0 else -1


Pass = Callable[[Plan], Plan]
"""Turns a plan into another one."""
