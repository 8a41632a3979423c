"""What a job will read, hold and move, before anything runs.

Sizes come from the inputs' metadata. Memory is the sum of what each stage holds at its
peak; traffic follows the formulas in ``docs/traffic.md``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from embertide.engine.planning.budget import within_budget, within_container
from embertide.engine.planning.device import device_limit, free_device_bytes, within_device
from embertide.engine.planning.duration import basis, seconds_range, start_range, work_of
from embertide.engine.planning.graph import PlannedGraph, plan_graph
from embertide.engine.planning.inputs import Inputs, list_inputs, rows_of, with_tables
from embertide.engine.planning.keeping import (
    NO_MEMORY,
    WRITING_BYTES,
    bytes_beside,
    describe_kept,
    excerpt_memory,
    layers_to_keep,
)
from embertide.engine.planning.layer_memory import spill_problem, staging_problem
from embertide.engine.planning.matching import (
    check_model,
    plan_notes,
    published,
    read_job_model,
    target_of_job,
    unread,
    weight_warnings,
)
from embertide.engine.planning.memory import planned_gpu_memory, planned_memory, stored_elsewhere
from embertide.engine.planning.next_version import delta_notes, next_version_notes
from embertide.engine.planning.readiness import describe, missing_inputs
from embertide.engine.planning.scoring import planned_scores
from embertide.engine.planning.sizes import TEXT_FORMATS, check_sizes
from embertide.engine.planning.sizing import (
    asked_grid,
    container_bytes,
    machine_bytes,
    machine_problem,
    this_machine,
    worker_bytes,
)
from embertide.engine.planning.traffic import planned_traffic
from embertide.errors import GridError, InputsNotReady, ObjectMissing
from embertide.facts.telemetry.estimate import (
    Estimate,
    GridNeeds,
    InputSize,
)
from embertide.facts.telemetry.report import RelationCount, TypeCount
from embertide.footprint import FLOAT_BYTES, ID_BYTES
from embertide.grid import check_fits
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.kernels.memory import may_share
from embertide.kernels.staging import PINNED_BYTES
from embertide.program.plans.passes import make_plan
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.result_names import node_type_of
from embertide.spec.schemes import is_local
from embertide.spec.targets import Targets

BFLOAT16 = (
    "rows that layers read over edges, and rows that travel, are bfloat16: the report of a run says"
    " how far its embeddings are from the model's reference"
)
_MOST_PARTITIONS = 256
"""The most workers of a grid that the manifest leaves open; more must be asked for."""
_SHOWN = [(1, 1), (2, 1), (1, 2), (4, 1), (2, 2), (8, 1), (4, 2)]
_TEXT_ROW_BYTES = 8
"""A guess of the bytes of an id in a line of text."""
NOTE = (
    "only the rows of {about}{rows:,} of {nodes:,} nodes are published, below {uri}"
    " (spec.inference.targets)"
)
SHARE = (
    "{note}; their layers are likely to go over {share:.1%} of the edges of all, where"
    " in-neighbours have about as many in-edges as other nodes"
)


def estimate_job(
    job: EmbeddingJob,
    *,
    grid: GridShape | None = None,
    workers: int | None = None,
    start_seconds: float | None = None,
) -> Estimate:
    """List the inputs, estimate a run of the job, and compare its grid with a few others.

    Args:
        start_seconds: what this process took from its start until all was imported, as a run will
            do it; None where it imported longer ago.

    Raises:
        EmbertideError: the inputs or the model cannot be read, or the grid does not fit.
    """
    storage = open_storage(job.spec.storage)
    inputs, ready_notes = _list_ready(storage, job)
    program = read_job_model(storage, job, inputs).program()
    chosen = choose_grid(job, inputs, grid, workers)
    on_device = free_device_bytes(job, chosen.workers)
    estimate = estimate_within(program, job, inputs, chosen, device_bytes=on_device)
    here = None
    if estimate.budget is not None and chosen.workers > 1 and may_read_in_place(job):
        here = estimate_within(program, job, inputs, chosen, in_place=True).budget
    compared = [
        estimate if shape == estimate.grid else estimate_program(program, job, inputs, shape)
        for shape in grids_to_compare(estimate.grid, _nodes(job, inputs), program.sliced_widths)
    ]
    ready_notes += delta_notes(storage, job, estimate.output_bytes)
    ready_notes += next_version_notes(storage, job, inputs, program, estimate)
    cores = os.cpu_count() or 1
    problem = machine_problem(estimate.grid, estimate.peak_memory_per_worker_bytes, this_machine())
    return replace(
        estimate,
        budget_here=here,
        start_seconds=None if estimate.seconds is None else start_range(start_seconds),
        seconds_basis="" if estimate.seconds is None else basis(cores, start_seconds),
        grids=[_needs(other, chosen=other is estimate) for other in compared],
        notes=[*ready_notes, *estimate.notes]
        if problem is None
        else [
            *ready_notes,
            *unread(job, published(job, program)),
            *weight_warnings(job, published(job, program)),
            *plan_notes(job, published(job, program), inputs),
            f"no run on this machine: {problem}",
        ],
    )


def _list_ready(storage: Storage, job: EmbeddingJob) -> tuple[Inputs, list[str]]:
    """The inputs as they are now, and notes on whether they are ready and large enough.

    Raises:
        InputsNotReady: those that are waited for have no objects yet.
        InputTooSmall: they are ready, and have too few edges or nodes.
    """
    notes: list[str] = []
    missing = missing_inputs(storage, job)
    if missing:
        notes.append(f"inputs are not ready, a run waits for them: {describe(missing)}")
    elif job.spec.waits:
        notes.append("all inputs that the job waits for are ready")
    try:
        inputs = list_inputs(storage, job)
    except ObjectMissing as error:
        if not missing:
            raise
        raise InputsNotReady(f"{notes[0]}. Without them there is no estimate") from error
    if not missing:
        check_sizes(storage, job, inputs, notes.append)
    return inputs, notes


def _needs(estimate: Estimate, *, chosen: bool) -> GridNeeds:
    peak = estimate.peak_memory_per_worker_bytes
    return GridNeeds(
        grid=estimate.grid,
        chosen=chosen,
        worker_bytes=worker_bytes(peak),
        machine_bytes=machine_bytes(peak, estimate.grid.workers),
        container_bytes=container_bytes(peak),
        traffic_total_bytes=estimate.traffic_total_bytes,
        seconds=estimate.seconds,
    )


def choose_grid(
    job: EmbeddingJob, inputs: Inputs, grid: GridShape | None, workers: int | None
) -> GridShape:
    """The grid given, else the manifest's, else one for the number of workers.

    Left to choose, graph partitions come first: they cut the memory for edges as well, and a
    feature axis makes every dense step exchange. One worker, whose threads use all cores, unless
    the manifest or the caller says otherwise.
    """
    grid = asked_grid(job.spec.workers, grid, workers)
    nodes = _nodes(job, inputs)
    if grid.workers > nodes:
        raise GridError(
            f"grid {grid} has {grid.workers} workers but the graph has only {nodes}"
            f" nodes{_of_a_type(job)}; use at most {nodes} workers"
        )
    if grid.feature > inputs.width:
        raise GridError(
            f"grid {grid}: the feature axis has {grid.feature} workers but the features have"
            f" {inputs.width} columns; use a feature axis of at most {inputs.width}"
        )
    return grid


def fitting_grid(
    program: Program, job: EmbeddingJob, inputs: Inputs, target_bytes: int
) -> GridShape:
    """The manifest's grid, else as few workers as keep the work within ``target_bytes``.

    Left to choose, P is a power of two. Where even the largest grid tried needs more, it is the
    one that needs least.

    Args:
        target_bytes: what one worker's work may take, beyond its imports.
    """
    workers = job.spec.workers
    if workers.count is not None or workers.grid != "auto":
        return choose_grid(job, inputs, None, None)
    nodes = _nodes(job, inputs)
    best, least, graph = GridShape(), math.inf, 1
    while graph <= min(nodes, _MOST_PARTITIONS):
        grid = GridShape.of(graph, 1)
        peak = estimate_program(program, job, inputs, grid).peak_memory_per_worker_bytes
        if peak < least:
            best, least = grid, peak
        if peak <= target_bytes:
            break
        graph *= 2
    return best


def estimate_within(
    program: Program,
    job: EmbeddingJob,
    inputs: Inputs,
    grid: GridShape,
    *,
    in_place: bool = False,
    container: int | None = None,
    device_bytes: int | None = None,
) -> Estimate:
    """An estimate that is compared with the memory that the job gives a worker.

    A run keeps nothing for a next attempt or run where only that makes it need more.

    Args:
        device_bytes: what a worker's GPU has for it, where the job sets no amount; None: unknown.
        container: bytes of each worker's container, which count where the job sets no memory;
            None: unknown, or no container.
    """
    compared = partial(
        _compared, program, job, inputs, grid, in_place, container=container, device=device_bytes
    )
    planned = compared(keeps=True)
    if not planned.problem or job.spec.refresh.mode == "incremental":
        return planned
    without = compared(keeps=False)
    return planned if without.problem else without


def _compared(
    program: Program,
    job: EmbeddingJob,
    inputs: Inputs,
    grid: GridShape,
    in_place: bool,
    *,
    container: int | None,
    device: int | None,
    keeps: bool,
) -> Estimate:
    """See :func:`estimate_within`."""
    estimate = partial(estimate_program, program, job, inputs, in_place=in_place, keeps=keeps)
    sizes = _nodes(job, inputs), max(program.widths.values()), estimate
    limit, on_device = job.spec.workers.memory_bytes, device_limit(job, device)
    planned = within_device(estimate(grid), on_device, *sizes, staging_problem(job))
    problem = spill_problem(job)
    if limit is None and container is not None:
        return within_container(planned, container, *sizes, problem)
    return within_budget(planned, limit, *sizes, problem)


def estimate_program(
    program: Program,
    job: EmbeddingJob,
    inputs: Inputs,
    grid: GridShape,
    *,
    panel: int = 0,
    spills_graph: bool = False,
    in_place: bool = False,
    keeps: bool = True,
) -> Estimate:
    """The estimate for a model that is read already.

    Args:
        panel: columns of a tensor that are in memory at a time, where tensors are on disk; 0: all
            tensors are in memory.
        spills_graph: edges and the graph are on disk, too.
        in_place: all workers are on one host, and read each other's tensors where they stand.
            Without it, memory is that of groups, which is more.
        keeps: what the job wants to keep for a next attempt or run is kept, and read.
    """
    if not keeps:
        job = job.keeping_nothing()
    job = with_tables(job, inputs.model_tables)
    neighbours = job.spec.inference.fanout
    fanout = None if neighbours == "full" else neighbours
    target = target_of_job(job, grid, in_place=in_place, panel=panel, spills_graph=spills_graph)
    plan = make_plan(published(job, program), target)
    program = plan.program
    counts = {node.name: inputs.by_nodes[node.name].count(node) for node in job.spec.input.nodes}
    check_model(job, inputs, plan.sliced, grid, counts)
    scores = planned_scores(job, inputs, program, grid.workers)
    graph = plan_graph(job, inputs, program, grid, in_place=in_place)
    cores, notes = os.cpu_count() or 1, []
    threads, gpu = max(1, cores // grid.workers), job.spec.workers.device == "cuda"
    uploads = not is_local(job.spec.published_uri)
    refreshes = job.spec.refresh.keep or job.spec.refresh.mode == "incremental"
    memory = planned_memory(
        graph,
        plan,
        fanout,
        threads=threads,
        gpu=gpu,
        uploads=uploads,
        compares=job.spec.output.compare,
        checked_rows=job.spec.inference.checked_rows,
        deltas=job.spec.output.delta is not None,
        digests=refreshes,
    )
    if refreshes and job.spec.refresh.mode != "full" and not gpu:
        rounded = job.spec.inference.rows != "float32"
        memory["infer"] += excerpt_memory(
            plan, graph, rounded=rounded, tolerant=job.spec.refresh.tolerance > 0
        )
    more = target_memory(job, inputs, program, graph, spills=bool(panel))
    memory = {
        stage: size + scores.memory.get(stage, 0) + more.get(stage, 0)
        for stage, size in memory.items()
    }
    traffic = [*planned_traffic(graph, plan, fanout), *scores.traffic]
    exchanged = sum(t.bytes_per_worker for t in traffic) * grid.workers
    output = _output_bytes(job, inputs, graph, program) + scores.output_bytes
    if cores < grid.workers:
        notes.append(f"{grid.workers} workers share {cores} cores of this machine")
    if job.spec.inference.rows != "float32":
        notes.append(BFLOAT16)
    work = work_of(
        program,
        graph.size,
        fanout,
        written_bytes=output,
        exchanged_bytes=exchanged,
    )
    apart = job.spec.inference.targets is not None
    resume = "never" if apart else job.spec.refresh.resume
    layers = layers_to_keep(
        plan,
        graph.size,
        fanout,
        traffic,
        resume=resume,
        rounded=job.spec.inference.rows != "float32",
        cores=None if gpu else cores,
    )
    if panel and (job.spec.refresh.keep or any(layer.kept for layer in layers)):
        memory["infer"] += WRITING_BYTES
    objects = inputs.objects()
    return Estimate(
        inputs=[InputSize(o["uri"], o["size"], o["kind"]) for o in objects],
        total_bytes=sum(o["size"] for o in objects),
        nodes=graph.nodes,
        nodes_exact=True,
        edges=graph.edges,
        edges_exact=all(relation.exact for relation in graph.relations.values()),
        width=inputs.width,
        grid=grid,
        memory_per_worker_bytes=memory,
        peak_memory_per_worker_bytes=max(memory.values()),
        pinned_bytes=PINNED_BYTES if gpu else 0,
        gpu_memory_per_worker_bytes=planned_gpu_memory(graph, plan, fanout) if gpu else 0,
        traffic=traffic,
        traffic_total_bytes=exchanged,
        output_uri=job.spec.published_uri,
        output_bytes=output,
        output_width=max(program.widths[name] for name in program.results.values()),
        # The rates are a CPU's.
        seconds=None if gpu else seconds_range(work, cores),
        notes=[
            *unread(job, program),
            *weight_warnings(job, program),
            *plan_notes(job, program, inputs),
            *notes,
            *target_notes(job, inputs, program, graph),
            *([] if keeps else [NO_MEMORY]),
            *describe_kept(layers, resume),
        ],
        types=_types(graph, program),
        relations=_relations_of(graph),
        model_digest=program.digest,
        layers=layers,
        kept_bytes=0 if apart else bytes_beside(job, plan, graph, layers),
        unkept="" if keeps else NO_MEMORY,
        spill=stored_elsewhere(graph, plan, fanout) if panel and not gpu else None,
        staged=stored_elsewhere(graph, plan, fanout, gpu=True) if panel and gpu else None,
    )


def _types(graph: PlannedGraph, program: Program) -> list[TypeCount]:
    """The rows and widths of each node type."""
    widths = program.result_widths
    return [
        TypeCount(of_type.node.name, of_type.nodes, of_type.splits.width, widths.get(name, 0))
        for name, of_type in graph.types.items()
    ]


def _relations_of(graph: PlannedGraph) -> list[RelationCount]:
    return [RelationCount(str(r.relation), r.edges, r.exact) for r in graph.relations.values()]


def _output_bytes(job: EmbeddingJob, inputs: Inputs, graph: PlannedGraph, program: Program) -> int:
    """Vectors and ids, before parquet compresses them."""
    value = 2 if job.spec.output.dtype == "float16" else FLOAT_BYTES
    wanted = planned_targets(job, inputs)
    rows = {name: count if wanted is None else min(wanted, count)
            for name, count in graph.size.nodes.items()}  # fmt: skip
    return sum(
        rows[node_type_of(key)] * (program.widths[result] * value + ID_BYTES)
        for key, result in program.results.items()
    )


def _nodes(job: EmbeddingJob, inputs: Inputs) -> int:
    """Nodes of the largest node type."""
    return max(inputs.by_nodes[node.name].count(node) for node in job.spec.input.nodes)


def _of_a_type(job: EmbeddingJob) -> str:
    """For messages about :func:`_nodes`."""
    return " of any type" if len(job.spec.input.nodes) > 1 else ""


def grids_to_compare(chosen: GridShape, nodes: int, widths: Mapping[str, int]) -> list[GridShape]:
    """Small grids that fit the graph and the model, and the chosen one, fewest workers first."""
    small = [GridShape.of(graph, feature) for graph, feature in _SHOWN]
    fitting = [grid for grid in small if grid != chosen and _fits(grid, nodes, widths)]
    return sorted([*fitting, chosen], key=lambda grid: (grid.workers, grid.feature))


def may_read_in_place(job: EmbeddingJob) -> bool:
    """Whether the workers of a job read each other's tensors in place, if all are on this host."""
    return may_share() and job.spec.workers.device == "cpu"


def _fits(grid: GridShape, nodes: int, widths: Mapping[str, int]) -> bool:
    try:
        check_fits(grid, nodes, widths)
    except GridError:
        return False
    return True


def planned_targets(job: EmbeddingJob, inputs: Inputs) -> int | None:
    """How many nodes are wanted, at most; of text a guess, by its size; None: all are."""
    targets = job.spec.inference.targets
    if targets is None:
        return None
    if targets.table is None:
        return len(set(targets.ids or []))
    rows = rows_of(inputs.targets)
    return -(-rows // _TEXT_ROW_BYTES) if targets.table.format in TEXT_FORMATS else rows


def target_notes(
    job: EmbeddingJob, inputs: Inputs, program: Program, graph: PlannedGraph
) -> list[str]:
    """How many rows are wanted, and in a graph of one type the share of edges that they need."""
    wanted, targets = planned_targets(job, inputs), job.spec.inference.targets
    if wanted is None or targets is None:
        return []
    nodes = graph.size.nodes[next(iter(program.result_widths))]
    note = NOTE.format(
        about=_about(targets),
        rows=min(wanted, nodes),
        nodes=nodes,
        uri=job.spec.published_uri,
    )
    if len(graph.size.nodes) > 1 or len(program.relations) != 1:
        return [note]
    share = _share(min(wanted, nodes), nodes, graph.edges / max(1, nodes), program.layers)
    return [SHARE.format(note=note, share=share)]


def _about(targets: Targets) -> str:
    """How well the number of rows is known: an id may be there twice; of text bytes are counted."""
    if targets.table is None:
        return ""
    return "about " if targets.table.format in TEXT_FORMATS else "at most "


def _share(wanted: float, nodes: int, degree: float, layers: int) -> float:
    """The likely share of the edges of all layers."""
    total = 0.0
    for _ in range(layers):
        total += wanted / nodes
        # As in the run: where in-neighbours would be about all nodes, all are taken.
        wanted = nodes if wanted * (1 + degree) >= nodes else wanted * (1 + degree)
    return total / max(1, layers)


def target_memory(
    job: EmbeddingJob, inputs: Inputs, program: Program, graph: PlannedGraph, *, spills: bool
) -> Mapping[str, int]:
    """Stage -> bytes that a worker takes beyond those of a run of all nodes, at most.

    Args:
        spills: tensors are on disk, and rows are computed alone where they take no more than the
            parts of tensors; where all are computed, those that are wanted are copied to memory.
    """
    wanted = planned_targets(job, inputs)
    if wanted is None:
        return {}
    size = graph.size
    nodes, grid = sum(size.nodes.values()), size.grid
    sets = nodes * (len(program.steps) + ID_BYTES)
    if spills:
        # One worker may have all of them, as far as it has so many rows.
        most = min(wanted, -(-max(size.nodes.values()) // grid.workers))
        width = sum(program.widths[name] for name in program.results.values())
        copied = most * width * FLOAT_BYTES
        return {"infer": sets + copied, "publish": nodes + copied}
    edges = graph.edges * (ID_BYTES + FLOAT_BYTES) // grid.graph
    features = nodes * inputs.width * FLOAT_BYTES // grid.workers
    return {"infer": sets + edges + features, "publish": nodes}
