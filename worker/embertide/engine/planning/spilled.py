"""What layers take whose tensors are on disk: memory of the parts, and bytes to the disk and back.

Each operation is run on ghosts (:class:`DryRun`), of the columns, the rows or the
whole tensors that it runs for at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from embertide.engine.planning.spilled_graph import SpilledGraph
from embertide.footprint import FLOAT_BYTES, GraphSize
from embertide.grid import ColumnSlices
from embertide.kernels.scratch import CHUNK_BYTES
from embertide.program.plans.layouts import with_placed
from embertide.program.plans.panels import (
    for_panel,
    panel_columns,
    panels,
    sorted_by_panels,
    stored_columns,
)
from embertide.program.plans.plan import Plan
from embertide.program.plans.spill import (
    Change,
    DiskOp,
    block_rows,
    change_rows,
    from_before,
    on_disk,
    stored,
    stored_reads,
)
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.dry_run import DryRun
from embertide.program.steps.op import Held, Op
from embertide.spec.manifest import EmbeddingJob

_READ_BYTES, _WRITTEN_BYTES = 2e9, 2e9
"""Bytes per second of a local disk: measured, in sequence, past the page cache."""
_LINK_BYTES = 20e9
"""Bytes per second between host memory and a GPU, each way: those of PCIe 4.0, not measured."""
_CHUNKS = 4
"""Beside the parts: what the thread that reads and the one that writes put together and copy."""


def spill_problem(job: EmbeddingJob) -> str:
    """Why tensors of nodes can't be on disk; "" where they can."""
    if job.spec.workers.device != "cpu":
        return f"tensors of device: {job.spec.workers.device} can't be on disk"
    if job.spec.inference.rows != "float32":
        return f"rows: {job.spec.inference.rows} can't be on disk"
    return ""


def staging_problem(job: EmbeddingJob) -> str:
    """Why tensors of nodes can't be in host memory beside a GPU; "" where they can."""
    rows = job.spec.inference.rows
    return "" if rows == "float32" else f"rows: {rows} can't be in host memory"


def link_seconds(read: float, written: float) -> float:
    """About what it takes to copy so many bytes to a GPU and from it, both at a time."""
    return max(read, written) / _LINK_BYTES


def disk_seconds(read: float, written: float) -> float:
    """About what it takes a local disk to read and write so many bytes."""
    return read / _READ_BYTES + written / _WRITTEN_BYTES


def spilled_costs(
    plan: Plan,
    size: GraphSize,
    *,
    placed: Collection[str],
    building: dict[str, float] | None = None,
    block: dict[str, float] | None = None,
    graph: SpilledGraph | None = None,
    staged: bool = False,
) -> SpilledCosts:
    """What a plan takes of one worker, with its tensors on disk.

    Args:
        placed: node types whose features would be in order from the start in memory.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
        graph: the graph on disk, whose moves are counted; None: it is in memory.
        staged: tensors are in host memory, and parts of them on a GPU.
    """
    at = with_placed(plan, placed)
    return SpilledCosts(at, size, dict(building or {}), dict(block or {}), graph, staged).count()


@dataclass
class SpilledCosts:
    """Counts a plan's operations, one after another.

    Attributes:
        building, block: as of :class:`DryRun`.
        graph, staged: as of :func:`spilled_costs`.
        memory: bytes of the largest parts that are in memory at a time.
        largest: the operation that has them, by its kind and its result.
        disk: bytes of the files, at most.
        read, written: bytes from and to the disk.
    """

    plan: Plan
    size: GraphSize
    building: dict[str, float] = field(default_factory=dict)
    block: dict[str, float] = field(default_factory=dict)
    graph: SpilledGraph | None = None
    staged: bool = False
    memory: float = 0.0
    largest: str = ""
    disk: float = 0.0
    read: float = 0.0
    written: float = 0.0
    _files: dict[tuple[str, Held], float] = field(default_factory=dict)

    def count(self) -> SpilledCosts:
        """All of them, after the features were written as they were read."""
        for name in self.plan.program.inputs.values():
            self._make(name, "loaded")
        if self.graph is not None:
            self._note(self.graph.building)
        order = on_disk(self.plan)
        for op in order.ops:
            for change in op.changes:
                self._change(change)
            self._run(op)
        for change in order.results:
            self._change(change)
        for name in dict.fromkeys(self.plan.program.results.values()):
            if stored_columns(self.plan, name, "rows") < self.plan.program.widths[name]:
                self.read += self._files[name, "rows"]
                self.written += self._whole(name)
                self._note(self._whole(name))
        self.memory += _CHUNKS * CHUNK_BYTES
        if self.graph is not None:
            self.memory += self.graph.part
            self.read += self.graph.read
            self.written += self.graph.written
        return self

    def _change(self, change: Change) -> None:
        """Features are put in order some columns at a time; unless they are stored by panels first,
        each part reads all of them."""
        name, origin = change.name, self._files[change.name, change.origin]
        if change.origin == "loaded":
            part = self._rows(name) * self._columns_at_once(name)
            parts = self._parts(name)
        else:
            part = float(change_rows(self.plan, name) * self.plan.program.widths[name])
            parts = 1
        # Blocks that are read, changed and written; a panel is read when the last one is written.
        at_once = 4 if change.origin != "loaded" else 3 + self.staged if parts > 1 else 2
        self._need(at_once * FLOAT_BYTES * part, f"order ({name})")
        if sorted_by_panels(self.plan, change):
            self.read += origin
            self._make(name, change.to, keep=False)
            origin, parts = self._stored(name, change.to), 1
        self.read += parts * origin
        self._make(name, change.to)
        if change.ends:
            self._files.pop((name, change.origin))

    def _run(self, disk: DiskOp) -> None:
        op = disk.op
        kind, layer = op.steps[0].kind_name, op.steps[0].layer
        self._need(self._in_memory(disk), f"{kind} ({op.out}, layer {layer})")
        if self.graph is not None:
            self._go_over(self.graph, disk)
        if disk.parts == "later":
            return
        if disk.parts == "ready":
            self._files[op.out, stored(self.plan, disk.stores[op.out])] = self._files.pop(
                (op.out, "sums")
            )
            return
        for name, layout, _ in stored_reads(self.plan, disk.reads):
            if disk.parts == "columns":
                self.read += self._panels_read(op, name, stored(self.plan, layout))
            else:
                self.read += self._files[name, stored(self.plan, layout)]
        sums = [step.out for step in op.brings if step.out != op.steps[0].out]
        for name in sums:
            self._make(name, "sums")
        for name, layout in disk.stores.items():
            self._make(name, layout)
        for key in [key for key in self._files if key[0] in disk.frees]:
            del self._files[key]

    def _go_over(self, graph: SpilledGraph, disk: DiskOp) -> None:
        """A sum reads the edges for each panel; any step may need degrees."""
        if disk.parts == "later":
            return
        first = disk.op.steps[0]
        if disk.parts in ("columns", "whole") and isinstance(first, EdgeStep):
            times = self._parts(disk.op.out) if disk.parts == "columns" else 1
            graph.go_over(disk.op.brings or (first,), times)
        for op in disk.ops:
            for step in op.steps:
                graph.read_degrees(step)

    def _panels_read(self, op: Op, name: str, held: Held) -> float:
        """Bytes of a tensor that are read for the panels of a result.

        Columns that are stored together are read together, also for a few of them: so features
        are that are summed where they were loaded, and scores of several heads.
        """
        width, slices = self.plan.program.widths[name], self.plan.grid.feature
        stored_together = width if held == "loaded" else stored_columns(self.plan, name, held)
        starts = [0] * slices
        if held in ("tile", "sums"):
            starts = [ColumnSlices(width, slices).bounds(at)[0] for at in range(slices)]
        count = 0
        for panel in panels(self.plan, self.plan.program.widths[op.out], 0):
            each = for_panel(self.plan, op, panel.each).reads[name]
            for columns, start in zip(each, starts, strict=True):
                first, last = columns.start - start, columns.stop - start
                count += -(-last // stored_together) - first // stored_together
        return FLOAT_BYTES * self._rows(name) * stored_together * count

    # -- memory ------------------------------------------------------------------------------

    def _need(self, size_bytes: float, what: str) -> None:
        if size_bytes > self.memory:
            self.memory, self.largest = size_bytes, what

    def _in_memory(self, disk: DiskOp) -> float:
        match disk.parts:
            case "columns":
                return self._by_columns(disk.op)
            case "rows":
                return self._by_rows(disk)
            case "whole":
                return self._cost(disk.ops, DryRun(self.plan.program, self.size, (), self.building))
        return 0.0

    def _by_columns(self, op: Op) -> float:
        """Bytes while some columns are made, and those before written or the next read."""
        program, columns = self.plan.program, self._columns_at_once(op.out)
        own = for_panel(self.plan, op, [slice(0, columns)])
        part = replace(program, widths=program.widths | own.widths)
        results = [op.out, *(step.out for step in op.brings if step.out != op.steps[0].out)]
        read, written = (
            sum(FLOAT_BYTES * self._rows(name) * own.widths[name] for name in names)
            for names in ({read.name for read in op.inputs}, results)
        )
        # The next part waits for the result that goes to the disk; a GPU copies both at a time.
        both = read + written if self.staged else max(read, written)
        beside = both if self._parts(op.out) > 1 else 0.0
        return (
            self._cost((own.op,), DryRun(part, self.size, (), self.building, self.block)) + beside
        )

    def _by_rows(self, disk: DiskOp) -> float:
        """Bytes while some rows are made, those before are written and the next are read."""
        program, size = self.plan.program, self.size
        rows = block_rows(self.plan, disk.ops) * size.workers
        nodes = {name: min(count, rows) for name, count in size.nodes.items()}
        dry = DryRun(program, replace(size, nodes=nodes), (), self.building)
        beside = {*disk.stores, *(read.name for read in disk.reads)}
        parts = sum(dry.of(name).tensor(program.widths[name]) for name in beside)
        factors = sum(FLOAT_BYTES * self._rows(op.out) for op in disk.ops if op.scales)
        return self._cost(disk.ops, dry) + parts + factors

    def _cost(self, ops: Sequence[Op], dry: DryRun) -> float:
        """The most bytes of operations that run one after another, over what is read from disk."""
        layouts: dict[str, tuple[Held, ...]] = {}
        for read in stored_reads(self.plan, from_before(ops)):
            layouts[read.name] = (*layouts.get(read.name, ()), read.layout)
        dry.alive.layouts = layouts
        dry.run(ops)
        return dry.peak

    # -- sizes -------------------------------------------------------------------------------

    def _rows(self, name: str) -> float:
        return self.size.of_type(self.plan.program.types[name]).nodes / self.size.workers

    def _columns_at_once(self, name: str) -> int:
        """Columns of all slices that are in memory at a time."""
        width = self.plan.program.widths[name]
        return min(width, self.plan.grid.feature * panel_columns(self.plan, width))

    def _parts(self, name: str) -> int:
        """Panels of a tensor."""
        return -(-self.plan.program.widths[name] // self._columns_at_once(name))

    def _whole(self, name: str) -> float:
        return FLOAT_BYTES * self._rows(name) * self.plan.program.widths[name]

    def _stored(self, name: str, layout: Held) -> float:
        """Bytes of a tensor's file, whose last panel is as wide as the others."""
        if layout == "loaded":
            return self._whole(name)
        width, slices = self.plan.program.widths[name], 1
        if stored(self.plan, layout) != "rows":
            slices = self.plan.grid.feature
        columns = stored_columns(self.plan, name, stored(self.plan, layout))
        widths = map(ColumnSlices(width, slices).size, range(slices))
        padded = sum(-(-own // columns) * columns for own in widths)
        return FLOAT_BYTES * self._rows(name) * padded

    def _make(self, name: str, layout: Held, *, keep: bool = True) -> None:
        """A file is made beside those that are there, and written."""
        size_bytes = self._stored(name, layout)
        self.written += size_bytes
        self._note(size_bytes)
        if keep:
            self._files[name, stored(self.plan, layout)] = size_bytes

    def _note(self, more: float) -> None:
        graph = 0.0 if self.graph is None else self.graph.disk
        self.disk = max(self.disk, sum(self._files.values()) + graph + more)
