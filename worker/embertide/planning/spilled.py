"""What layers take whose tensors are on disk: memory of the parts, and bytes to the disk and back.

Each operation is counted as it counts itself (:meth:`Run.cost`), of the columns or the rows that it
runs for at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from embertide.footprint import FLOAT_BYTES, GraphSize
from embertide.kernels.scratch import CHUNK_BYTES
from embertide.planning.publishing import published
from embertide.planning.spilled_graph import SpilledGraph
from embertide.plans.layouts import with_placed
from embertide.plans.passes import make_plan
from embertide.plans.plan import Plan, Target
from embertide.plans.spill import block_rows, not_in_order, panel_columns, parts_of, without_parts
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.steps.costs import Costs
from embertide.steps.program import Program
from embertide.steps.run import Run

_READ_BYTES, _WRITTEN_BYTES = 2e9, 8e8
"""Bytes per second of a local disk: measured, sequential."""
_CHUNKS = 4
"""Beside the parts: what the thread that reads and the one that writes put together and copy."""


def spill_problem(job: EmbeddingJob, program: Program, grid: GridShape) -> str:
    """Why tensors of nodes can't be on disk; "" where they can."""
    if job.spec.workers.device != "cpu":
        return f"tensors of device: {job.spec.workers.device} can't be on disk"
    if job.spec.inference.rows != "float32":
        return f"rows: {job.spec.inference.rows} can't be on disk"
    if grid.feature > 1:
        return f"tensors can be on disk on grids of one feature partition, such as {grid.workers}x1"
    if len(job.spec.input.nodes) > 1:
        return "tensors of several node types can't be on disk"
    if job.spec.inference.fanout != "full":
        return "tensors can't be on disk where layers sample their edges (fanout)"
    missing = without_parts(make_plan(published(job, program), Target(grid=grid, panel=1)))
    if missing:
        return f"these steps need whole tensors in memory: {', '.join(missing[:3])}"
    return ""


def disk_seconds(read: float, written: float) -> float:
    """About what it takes a local disk to read and write so many bytes."""
    return read / _READ_BYTES + written / _WRITTEN_BYTES


def spilled_costs(
    plan: Plan,
    size: GraphSize,
    *,
    placed: Collection[str],
    building: dict[str, float] | None = None,
    graph: SpilledGraph | None = None,
) -> SpilledCosts:
    """What a plan takes of one worker, with its tensors on disk.

    Args:
        placed: node types whose features are in order from the start.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        graph: the graph on disk, whose moves are counted; None: it is in memory.
    """
    return SpilledCosts(with_placed(plan, placed), size, dict(building or {}), graph).count()


@dataclass
class SpilledCosts:
    """Counts a plan's operations, one after another.

    Attributes:
        building: as of :class:`Costs`.
        graph: as of :func:`spilled_costs`.
        memory: bytes of the largest parts that are in memory at a time.
        disk: bytes of the files, at most.
        read, written: bytes from and to the disk.
    """

    plan: Plan
    size: GraphSize
    building: dict[str, float] = field(default_factory=dict)
    graph: SpilledGraph | None = None
    memory: float = 0.0
    disk: float = 0.0
    read: float = 0.0
    written: float = 0.0
    _files: dict[str, float] = field(default_factory=dict)

    def count(self) -> SpilledCosts:
        """All of them, after the features were written as they were read."""
        for name in self.plan.program.inputs.values():
            self._files[name] = self._whole(name)
            self.written += self._files[name]
        if self.graph is not None:
            self._note(self.graph.building)
        for name in self.plan.program.inputs.values():
            if name in not_in_order(self.plan):
                self._land(name)
        for op in self.plan.ops:
            self._run(op)
        for name in dict.fromkeys(self.plan.program.results.values()):
            if self._panel(name) < self.plan.program.widths[name]:
                self._move(self._stored(name), self._whole(name))
                self._note(self._whole(name))
        self.memory += _CHUNKS * CHUNK_BYTES
        if self.graph is not None:
            self.memory += self.graph.part
            self._move(self.graph.read, self.graph.written)
        return self

    def _land(self, name: str) -> None:
        """Features are put in order, panel by panel: each reads all of them."""
        part = self._rows(name) * self._panel(name) * FLOAT_BYTES
        self.memory = max(self.memory, (3 if self._panels(name) > 1 else 2) * part)
        self._move(self._panels(name) * self._whole(name), self._stored(name))
        self._note(self._stored(name))
        self._files[name] = self._stored(name)

    def _run(self, op: Run) -> None:
        by_columns = parts_of(op) == "columns"
        if by_columns and self.graph is not None:
            self.graph.go_over(op.steps[0], self._panels(op.out))
        self.memory = max(self.memory, self._by_columns(op) if by_columns else self._by_rows(op))
        for name in dict.fromkeys(read.name for read in op.inputs):
            stored = self._files[name]
            # Features in order stay as they were loaded: each panel takes all of their rows.
            parts = self._panels(name) if by_columns and name in self._as_loaded() else 1
            self._move(parts * stored, 0.0)
        self._move(0.0, self._stored(op.out))
        self._note(self._stored(op.out))
        for name in {*op.frees, *filter(None, [op.onto])}:
            self._files.pop(name, None)
        self._files[op.out] = self._stored(op.out)

    def _by_columns(self, op: Run) -> float:
        """Bytes while some columns of a sum are made, and those before written or the next read."""
        program, panel = self.plan.program, self.plan.target.panel
        names = [op.out, *(read.name for read in op.inputs)]
        widths = {name: min(program.widths[name], panel) for name in names}
        part = replace(program, widths=program.widths | widths)
        most = max(FLOAT_BYTES * self._rows(name) * width for name, width in widths.items())
        beside = most if self._panels(op.out) > 1 else 0.0
        return self._cost(op, Costs(part, self.size, (), self.building)) + beside

    def _by_rows(self, op: Run) -> float:
        """Bytes while some rows are made, those before are written and the next are read."""
        program, size = self.plan.program, self.size
        rows = block_rows(self.plan, op) * size.workers
        nodes = {name: min(count, rows) for name, count in size.nodes.items()}
        costs = Costs(program, replace(size, nodes=nodes), (), self.building)
        beside = {op.out, *(read.name for read in op.inputs)}
        return self._cost(op, costs) + sum(costs.whole(name) for name in beside)

    def _cost(self, op: Run, costs: Costs) -> float:
        costs.alive.layouts = {read.name: (read.layout,) for read in op.inputs}
        costs.alive.frees, costs.layer = op.frees, op.steps[0].layer
        op.cost(costs)
        return costs.peak

    # -- sizes -------------------------------------------------------------------------------

    def _rows(self, name: str) -> float:
        return self.size.of_type(self.plan.program.types[name]).nodes / self.size.workers

    def _panel(self, name: str) -> int:
        return panel_columns(self.plan, name)

    def _panels(self, name: str) -> int:
        return -(-self.plan.program.widths[name] // self._panel(name))

    def _as_loaded(self) -> set[str]:
        """Features that are read as they were loaded."""
        return set(self.plan.program.inputs.values()) - not_in_order(self.plan)

    def _whole(self, name: str) -> float:
        return FLOAT_BYTES * self._rows(name) * self.plan.program.widths[name]

    def _stored(self, name: str) -> float:
        """Bytes of a tensor's file, whose last panel is as wide as the others."""
        return FLOAT_BYTES * self._rows(name) * self._panel(name) * self._panels(name)

    def _move(self, read: float, written: float) -> None:
        self.read += read
        self.written += written

    def _note(self, more: float) -> None:
        """A file is made beside those that are there."""
        graph = 0.0 if self.graph is None else self.graph.disk
        self.disk = max(self.disk, sum(self._files.values()) + graph + more)
