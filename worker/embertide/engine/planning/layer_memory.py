"""Memory of the layers: the layer graphs of all relations, and the tensors.

With tensors on disk also the bytes that go there and back: :class:`Spilled` runs on ghosts, with a
store that only counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import cast

from embertide.engine.planning.edge_memory import SpilledGraph, spilled_graph
from embertide.engine.planning.graph import PlannedGraph, PlannedRelation
from embertide.footprint import ID_BYTES, GraphSize, Size
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
from embertide.program.steps.base import Step
from embertide.program.steps.dry_run import DryRun
from embertide.program.steps.program import Program
from embertide.spec.manifest import EmbeddingJob

_BUILDING_BYTES = 1 / 7
"""A node in the set of sources while the remote ones are looked up."""
_FACTOR_BYTES = 12
"""A row's degree and its two factors of a norm, float32 each."""
_LOCAL_ROW_BYTES = 4
"""The end of a row's run in the local block, int32."""
_REQUEST_BYTES = 4
"""The number of a row that a peer asks for, int32."""
_POSITION_BYTES = 4
"""A non-zero's position in the CSR, which blocks carry for pair attention: int32."""
_FILLING_BYTES = 32
"""An edge while loops are filled in: its row, which edges are kept, and where they go: int64."""
_READ_BYTES, _WRITTEN_BYTES = 2e9, 2e9
"""Bytes per second of a local disk: measured, in sequence, past the page cache."""
_LINK_BYTES = 20e9
"""Bytes per second between host memory and a GPU, each way: those of PCIe 4.0, not measured."""
CHUNKS_BYTES = 4 * CHUNK_BYTES
"""Beside the parts: what the thread that reads and the one that writes put together and copy."""


def partition_bytes(relation: PlannedRelation, size: Size) -> float:
    """Bytes of a partition's CSR."""
    edges, rows = size.edges / size.graph, size.nodes / size.graph
    return edges * (size.index_bytes + relation.weight_bytes) + ID_BYTES * rows


@dataclass(frozen=True, kw_only=True)
class LayersBytes:
    """Bytes of the layers at their peak.

    Attributes:
        graphs: of the layer graphs, without the blocks; on the CPU whatever the device.
        building: in addition while one of them is built, on the CPU too.
        blocks: of the non-zeros, cut by where their sources are.
        copies: of non-zeros and of factors that are among ``graphs``, as a GPU has them.
        tensors: of the tensors, and of buffers while they are made.
    """

    graphs: float
    building: float
    blocks: float
    copies: float
    tensors: float

    @property
    def on_cpu(self) -> float:
        """Bytes of a worker without a GPU."""
        return self.graphs + self.blocks + self.tensors

    @property
    def beside_gpu(self) -> float:
        """Bytes on the CPU of a worker with a GPU, where blocks are cut."""
        return self.graphs + self.building + self.blocks

    @property
    def on_gpu(self) -> float:
        """Bytes on the GPU."""
        return self.blocks + self.copies + self.tensors


def layers_bytes(
    graph: PlannedGraph,
    plan: Plan,
    fanout: Sequence[int] | None,
    *,
    placed: Sequence[str],
    gpu: bool = False,
) -> LayersBytes:
    """Bytes of the layer graphs and of the tensors at the peak of the layers.

    Args:
        graph: on the grid that computes the layers.
        fanout: in-edges that each layer samples of a node; None: all of them.
        placed: node types whose features are in order from the start.
        gpu: layers are computed on a GPU.
    """
    whole, size, program = 0.0, graph.size, plan.program
    on_disk = spilled_graph(graph, plan, fanout)
    if fanout is not None and on_disk is not None:
        every = map(size.of_relation, graph.relations)
        whole = sum(ID_BYTES * of_all.nodes / of_all.workers for of_all in every)
    elif fanout is not None:
        for name, relation in graph.relations.items():
            of_all = size.of_relation(name)
            whole += partition_bytes(relation, of_all) / of_all.feature
            whole += relation.feature_bytes * of_all.edges / of_all.workers
        most = max(fanout)
        sampled = {name: size.of_relation(name, most).edges for name in size.edges}
        graph = replace(graph, size=replace(size, edges=sampled))
    size, grid = graph.size, graph.size.grid
    if on_disk is not None:
        # In memory are the ends of rows alone.
        graph = replace(graph, size=replace(size, edges=dict.fromkeys(size.edges, 0)))
    costs = {name: _layer_graph(graph, program, name) for name in graph.relations}
    patterns = sum(_tiles(graph, program, names) for names in _together(program, tiles=True))
    patterns += sum(_pairs(graph, program, names) for names in _together(program, tiles=False))
    patterns += 0.0 if on_disk is None else on_disk.requests
    building = {name: cost.building for name, cost in costs.items()}
    block = {name: cost.block for name, cost in costs.items()}
    if plan.target.panel:
        peak = spilled_costs(
            plan, size, placed=placed, building=building, block=block, graph=on_disk, staged=gpu
        ).memory
    else:
        peak = tensor_peak(plan, size, placed=placed, building=building, block=block)
    return LayersBytes(
        graphs=whole + sum(cost.graph for cost in costs.values()),
        building=max((cost.building for cost in costs.values()), default=0.0),
        blocks=patterns,
        copies=sum(
            (cost.block if grid.graph == 1 else 0.0) + cost.factors for cost in costs.values()
        ),
        tensors=peak,
    )


@dataclass(frozen=True, kw_only=True)
class _GraphBytes:
    """Bytes of one worker's layer graph of a relation.

    Attributes:
        graph: of what stays.
        building: in addition, until it is built.
        block: of all its non-zeros, cut into blocks.
        factors: of its rows, which are among what stays.
    """

    graph: float
    building: float
    block: float
    factors: float


def _layer_graph(graph: PlannedGraph, program: Program, name: str) -> _GraphBytes:
    relation, size = graph.relations[name], graph.size.of_relation(name)
    index, weight, needs = size.index_bytes, relation.weight_bytes, program.edge_needs(name)
    edges, rows = size.edges / size.graph, size.nodes / size.graph
    columns, building = edges * index, 0.0
    factors = _FACTOR_BYTES * rows
    kept = partition_bytes(relation, size) + factors
    if size.graph > 1:
        building = 0.0 if size.in_place else _BUILDING_BYTES * size.columns
        if not needs.again:
            kept, building = kept - columns, building + columns
    steps = _over(program, name)
    features, filling = _features(relation, size, steps)
    kept, building = kept + features, building + filling
    if any(step.edges.loops != "keep" for step in steps if step.edges is not None):
        kept += rows * (index + weight) + partition_bytes(relation, size)
        if not needs.again:
            kept, building = kept - columns, building + columns
    block = edges * (index + weight)
    return _GraphBytes(graph=kept, building=building, block=block, factors=factors)


def _features(relation: PlannedRelation, size: Size, steps: list[Step]) -> tuple[float, float]:
    """Bytes of the features of our sub-range's edges, and in addition while loops are filled in.

    Steps with other self-loops have their own copy.
    """
    edges, rows = size.edges / size.workers, size.nodes / size.workers
    views = [step.edges for step in steps if step.edges is not None and step.edge_columns]
    kept = own = relation.feature_bytes * edges if views else 0.0
    copies = {view.loops for view in views} - {"keep"}
    for loops in copies:
        kept += own + (relation.feature_bytes * rows if loops != "none" else 0.0)
    return kept, own + _FILLING_BYTES * edges if copies else 0.0


def _over(program: Program, relation: str) -> list[Step]:
    """The steps over the edges of a relation."""
    return [
        step for step in program.steps if step.edges is not None and step.edges.relation == relation
    ]


def _together(program: Program, *, tiles: bool) -> list[tuple[str, ...]]:
    """The relations whose sources are looked up together, once for each way of it.

    Args:
        tiles: for the edges of partitions; else whole rows for those of sub-ranges.
    """
    reads = [step for step in program.steps if step.edges is not None]
    wanted = [step for step in reads if (step.tiles or not step.pairs if tiles else step.pairs)]
    return list(dict.fromkeys(_sources_with(program, step) for step in wanted))


def _sources_with(program: Program, step: Step) -> tuple[str, ...]:
    """The relations whose sources are looked up with those of a step over edges."""
    if step.out in program.groups:
        return program.together(step.out)
    return () if step.edges is None else (step.edges.relation,)


def _tiles(graph: PlannedGraph, program: Program, together: tuple[str, ...]) -> float:
    """Bytes of the blocks of relations whose sources are looked up together, and of requests."""
    if graph.size.grid.graph == 1:
        return 0.0
    union, widest = graph.size.of_relations(together), max(program.widths.values())
    blocks = 0.0 if union.in_place else _REQUEST_BYTES * union.unique()
    for name in together:
        relation, size = graph.relations[name], graph.size.of_relation(name)
        # In place, non-zeros stay in the order of the CSR, and its row ends are theirs.
        cut = not size.in_place
        positions = _POSITION_BYTES if cut and program.edge_needs(name).positions else 0
        edge = size.index_bytes + relation.weight_bytes + positions
        rows = _LOCAL_ROW_BYTES * size.nodes / size.graph if cut else 0.0
        blocks += edge * size.edges / size.graph + rows
        blocks += size.pattern(widest)
    return blocks


def _pairs(graph: PlannedGraph, program: Program, together: tuple[str, ...]) -> float:
    """Bytes of the blocks of sub-ranges over whole rows."""
    if graph.size.workers == 1:
        return 0.0
    if graph.size.reads_all and not any(program.edge_needs(name).messages for name in together):
        return 0.0
    blocks = 0.0
    for name in together:
        relation, size = graph.relations[name], graph.size.of_relation(name)
        placed = not size.in_place and program.edge_needs(name).placed(pairs=True)
        edge = size.index_bytes + relation.weight_bytes + _POSITION_BYTES * placed
        blocks += edge * size.edges / size.workers
    return blocks


def tensor_peak(
    plan: Plan,
    size: GraphSize,
    *,
    placed: Collection[str],
    building: dict[str, float],
    block: dict[str, float],
) -> float:
    """Peak bytes of the tensors that are alive during the layers.

    Args:
        placed: node types whose features are in order from the start.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
    """
    dry = DryRun(plan.program, size, placed, dict(building), block)
    return dry.to_results((with_placed(plan, placed) if placed else plan).ops).peak


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
