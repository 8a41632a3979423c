"""What a plan predicts of a job, as plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from embertide.facts.telemetry.format import human_bytes
from embertide.facts.telemetry.notebook import html_table
from embertide.facts.telemetry.report import PlannedTraffic, RelationCount, TypeCount
from embertide.spec.grid import GridShape


@dataclass(frozen=True)
class InputSize:
    """One input object; ``kind`` is edges, features, ids, nodes, reference or model."""

    uri: str
    size: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class GridNeeds:
    """What a run takes on one grid.

    Attributes:
        worker_bytes: memory of a worker process, imports included, as its report will show it.
        machine_bytes: of all processes, where all workers are on one machine; what they share of
            their imports counts once.
        container_bytes: to ask for each worker's container, with a margin.
        traffic_total_bytes: sent by all workers.
        seconds: from and to, on this machine, after the start; None where nothing is known.
    """

    grid: GridShape
    chosen: bool
    worker_bytes: int
    machine_bytes: int
    container_bytes: int
    traffic_total_bytes: int
    seconds: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """Return the needs as JSON-able data."""
        return {**dataclasses.asdict(self), "grid": [self.grid.graph, self.grid.feature]}


@dataclass(frozen=True)
class LayerToKeep:
    """A layer that a run can keep for a next attempt.

    Attributes:
        layer: how many layers are done then.
        bytes: of its tensors, of all workers.
        seconds: about what writing them takes.
        saved_seconds: about what computing takes from the layer that was kept before, or the
            first, to this one; 0 where nothing is known.
        kept: whether the run keeps it.
    """

    layer: int
    bytes: int
    seconds: float
    saved_seconds: float
    kept: bool


@dataclass(frozen=True)
class PlannedSpill:
    """Tensors of nodes that are on disk, since they don't fit in the memory of a worker.

    Or in host memory, since they don't fit in that of its GPU: memory is the GPU's then, and the
    disk is the host's.

    Attributes:
        panel: columns of a tensor that are in memory at a time.
        disk_bytes: of the files of a worker, at most.
        read_bytes, written_bytes: from and to the disk, by one worker.
        seconds: about what that takes, all workers on one disk.
        graph: edges and the graph are there, too.
        largest: the operation whose part in memory is the largest, by its kind and its result.
        parts_bytes: of the largest parts that are in memory at a time.
    """

    panel: int
    disk_bytes: int
    read_bytes: int
    written_bytes: int
    seconds: float
    graph: bool = False
    largest: str = ""
    parts_bytes: int = 0


@dataclass(frozen=True)
class MemoryBudget:
    """How a plan compares with the memory that a worker may take.

    Attributes:
        limit_bytes: the most that a worker may take, its imports included.
        needed_bytes: what the plan has for it, its imports included.
        problem: why no run starts, and what to do; "" where it fits.
        spills: how much goes to disk, and what that costs; "" where nothing does.
    """

    limit_bytes: int
    needed_bytes: int
    problem: str = ""
    spills: str = ""

    @property
    def sentence(self) -> str:
        """The comparison, for people."""
        return self.problem or (
            f"{self.spills or 'fits'}: {human_bytes(self.needed_bytes)} of"
            f" {human_bytes(self.limit_bytes)} a worker"
        )


@dataclass(frozen=True)
class Estimate:
    """What a job will read, hold and move, before anything runs.

    ``nodes`` and ``edges`` are exact where the inputs' metadata says them, otherwise guessed
    from the size, which ``nodes_exact`` and ``edges_exact`` tell. ``width`` is the features'
    width, ``memory_per_worker_bytes`` maps a stage to the bytes of the fullest worker beyond
    its imports, ``pinned_bytes`` are those of them that stage copies to a GPU and back, and
    ``gpu_memory_per_worker_bytes`` is what a worker holds on its GPU, each 0 without one;
    ``notes`` are remarks for people, such as why the grid was chosen. ``seconds`` is
    a range on this machine, from the moment workers begin, ``start_seconds`` one until then, with
    what both assume; None where nothing is known. ``grids`` compares
    some grids with the chosen one, which is among them. ``output_problem`` says why the output
    cannot be written, "" if it can or was not asked. ``types`` and ``relations`` are those that a
    run reads; ``nodes``, ``edges`` and ``output_bytes`` are of all of them, the widths those of the
    widest. ``model_digest`` is that of the model's files. ``layers`` are those that can be kept for
    a next attempt, ``kept_bytes`` what is kept beside the version, if all rows are computed;
    ``unkept`` is why nothing is kept that the job wants to keep, "" for no reason.
    ``budget`` compares the plan with the job's ``workers.memory``; None without.
    ``budget_here`` does it for a run on this machine, where workers read each other's memory; None
    where that is the same.
    ``spill`` is what goes to disk for it; None where all fits in memory. ``device_budget`` compares
    the plan with the memory of a worker's GPU, where that is known; ``staged`` is what is in host
    memory for it, and copied from there and back; None where all fits on the GPU.
    """

    inputs: list[InputSize]
    total_bytes: int
    nodes: int
    nodes_exact: bool
    edges: int
    edges_exact: bool
    width: int
    grid: GridShape
    memory_per_worker_bytes: dict[str, int]
    peak_memory_per_worker_bytes: int
    pinned_bytes: int = 0
    gpu_memory_per_worker_bytes: int = 0
    traffic: list[PlannedTraffic] = field(default_factory=list)
    traffic_total_bytes: int = 0
    output_uri: str = ""
    output_bytes: int = 0
    output_width: int = 0
    output_problem: str = ""
    seconds: tuple[float, float] | None = None
    start_seconds: tuple[float, float] | None = None
    seconds_basis: str = ""
    grids: list[GridNeeds] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    types: list[TypeCount] = field(default_factory=list)
    relations: list[RelationCount] = field(default_factory=list)
    model_digest: str = ""
    layers: list[LayerToKeep] = field(default_factory=list)
    kept_bytes: int = 0
    unkept: str = ""
    budget: MemoryBudget | None = None
    budget_here: MemoryBudget | None = None
    spill: PlannedSpill | None = None
    device_budget: MemoryBudget | None = None
    staged: PlannedSpill | None = None

    @property
    def budgets(self) -> list[MemoryBudget]:
        """How the plan compares with what workers may take, of each memory where that is known."""
        return [budget for budget in (self.budget, self.device_budget) if budget is not None]

    @property
    def problem(self) -> str:
        """Why no run starts, and what to do; "" where all memory is enough."""
        return next((budget.problem for budget in self.budgets if budget.problem), "")

    @property
    def panel(self) -> int:
        """Columns of a tensor that are at a time where layers are computed; 0: all are."""
        elsewhere = self.spill or self.staged
        return elsewhere.panel if elsewhere else 0

    @property
    def parts_bytes(self) -> int:
        """Bytes of the largest parts of tensors that are there at a time; 0: all tensors are."""
        elsewhere = self.spill or self.staged
        return elsewhere.parts_bytes if elsewhere else 0

    @property
    def needs(self) -> GridNeeds | None:
        """The needs of the chosen grid; None where grids were not compared."""
        return next((needs for needs in self.grids if needs.chosen), None)

    def _repr_html_(self) -> str:
        """For notebooks."""
        about = "" if self.edges_exact else "about "
        grids = {
            f"on {needs.grid}": f"{human_bytes(needs.worker_bytes)} each worker,"
            f" {human_bytes(needs.traffic_total_bytes)} exchanged"
            for needs in self.grids
        }
        facts = {
            "Nodes": f"{self.nodes:,}",
            "Edges": f"{about}{self.edges:,}",
            "Grid": self.grid,
            "Memory of a worker": human_bytes(self.peak_memory_per_worker_bytes),
            "Exchanged": human_bytes(self.traffic_total_bytes),
            "Output": human_bytes(self.output_bytes),
            **grids,
        }
        return html_table("What a run will take", facts, self.notes)

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as JSON-able data."""
        return {
            **dataclasses.asdict(self),
            "grid": [self.grid.graph, self.grid.feature],
            "grids": [needs.to_json() for needs in self.grids],
        }
