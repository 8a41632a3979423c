"""What layers take whose tensors are on disk: memory of the parts, and bytes to the disk and back.

:class:`Spilled` runs on ghosts, with a store that only counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import cast

from embertide.engine.planning.edge_memory import SpilledGraph
from embertide.footprint import GraphSize
from embertide.grid import ColumnSlices
from embertide.kernels.ghost_store import GhostStore
from embertide.kernels.ghosts import Ledger
from embertide.kernels.scratch import CHUNK_BYTES
from embertide.kernels.store import Store
from embertide.program.plans.layouts import with_placed
from embertide.program.plans.panels import Panel
from embertide.program.plans.plan import Plan
from embertide.program.plans.spill import Change
from embertide.program.plans.spilled_run import DiskTensors, PanelWidths, Spilled
from embertide.program.steps.dry_run import DryRun
from embertide.spec.manifest import EmbeddingJob

_READ_BYTES, _WRITTEN_BYTES = 2e9, 2e9
"""Bytes per second of a local disk: measured, in sequence, past the page cache."""
_LINK_BYTES = 20e9
"""Bytes per second between host memory and a GPU, each way: those of PCIe 4.0, not measured."""
CHUNKS_BYTES = 4 * CHUNK_BYTES
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
    at, runs = with_placed(plan, placed), dict[tuple[int, ...], _Counted]()
    slices = [ColumnSlices(width, at.grid.feature) for width in at.program.widths.values()]
    # Slices of as many columns of each tensor are alike.
    sizes = [tuple(own.size(m) for own in slices) for m in range(at.grid.feature)]
    for m, key in enumerate(sizes):
        if key in runs:
            continue
        store = GhostStore(Ledger(), staged)
        stored = {} if graph is None else graph.stored
        of_graph = dict(building or {}), dict(block or {})
        dry = DryRun(at.program, size, (), *of_graph, m, store, stored)
        # A store counts in fractions of bytes: of a mean worker.
        runs[key] = run = _Counted(dry.execution, at, cast(Store, store), store=store)
        if graph is not None:
            store.moved(written=graph.written, read=graph.read)
            store.hold(graph.disk + graph.building)
            store.hold(-graph.building)
        for number in range(len(at.ops)):
            run.run(number)
        run.results()
    fullest = max(runs.values(), key=lambda run: run.memory)
    stores = [runs[key].store for key in sizes]
    return SpilledCosts(
        memory=fullest.memory + CHUNKS_BYTES + (graph.part if graph else 0.0),
        largest=fullest.largest,
        disk=fmean(store.most for store in stores),
        read=fmean(store.read for store in stores),
        written=fmean(store.written for store in stores),
    )


@dataclass(frozen=True)
class SpilledCosts:
    """What one worker takes.

    Attributes:
        memory: bytes of the largest parts that are in memory at a time.
        largest: the operation that has them, by its kind and its result.
        disk: bytes of the files, at most.
        read, written: bytes from and to the disk.
    """

    memory: float
    largest: str
    disk: float
    read: float
    written: float


@dataclass
class _Counted(Spilled):
    """A run on ghosts.

    Attributes:
        memory, largest: of the operations so far, see :class:`SpilledCosts`.
    """

    store: GhostStore = field(kw_only=True)
    memory: float = 0.0
    largest: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._disk.widths = _AlikePanels(self.plan, self.warn, self._disk, self.store)

    def run(self, at: int) -> None:
        first = self.plan.ops[at].steps[0]
        super().run(at)
        self._note(f"{first.kind_name} ({self.plan.ops[at].out}, layer {first.layer})")

    def change(self, wanted: Change) -> None:
        super().change(wanted)
        self._note(f"order ({wanted.name})")

    def _note(self, what: str) -> None:
        ledger = self.store.ledger
        if ledger.peak > self.memory:
            self.memory, self.largest = ledger.peak, what
        ledger.peak = ledger.alive


class _AlikePanels(PanelWidths):
    """Runs as many panels as are in memory at a time, and of the others each kind once."""

    def __init__(
        self, plan: Plan, warn: Callable[[str], None], disk: DiskTensors, store: GhostStore
    ) -> None:
        super().__init__(plan, warn)
        self._files, self._store = disk.files, store

    def run(
        self,
        panels: Sequence[Panel],
        width: int,
        run: Callable[[Sequence[Panel], list[Panel]], None],
    ) -> None:
        first, alike = 3, defaultdict[tuple[int, ...], list[Panel]](list)
        run(panels[:first], [])
        # After so many columns they begin at the same ones of the panels that are stored, of
        # tensors of as many columns and of scores of heads.
        stored = [file for file in self._files.values() if file.panel < file.width]
        period = math.lcm(*(file.panel * max(1, width // file.width) for file in stored))
        for panel in panels[first:]:
            widths = (columns.stop - columns.start for columns in panel.each)
            alike[panel.own.start % period, *widths].append(panel)
        for panel, *others in alike.values():
            read, written = self._store.read, self._store.written
            run([panel], [])
            read, written = self._store.read - read, self._store.written - written
            self._store.moved(read=len(others) * read, written=len(others) * written)
