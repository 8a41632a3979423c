"""Which layers a run keeps for a next attempt: what writing them takes, and what they save.

Few attempts fail, so a layer is kept where writing it takes at most a tenth of the time that
computing it again would: then all runs pay less than what one failed attempt in ten loses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from embertide.engine.planning.digest_memory import digest_bytes
from embertide.engine.planning.duration import KEPT_BYTES, likely_seconds, work_of
from embertide.engine.planning.graph import PlannedGraph
from embertide.facts.telemetry.estimate import LayerToKeep
from embertide.facts.telemetry.report import PlannedTraffic
from embertide.footprint import FLOAT_BYTES, ID_BYTES, GraphSize
from embertide.graph.shuffle import histogram_size
from embertide.program.plans.boundaries import Boundary, boundaries, results_of
from embertide.program.plans.flow import why_whole
from embertide.program.plans.plan import Plan
from embertide.spec.manifest import EmbeddingJob

MOST_SHARE = 0.1
"""The most that keeping a layer may take, as a share of the time of computing it again."""
WRITING_BYTES = 32 << 20
"""Blocks of layers on disk that threads read to write them, and what each puts together."""
NO_MEMORY = (
    "nothing is kept for a next attempt or run: a worker has too little memory to write it beside"
    " its tensors"
)
LEAST_SECONDS = 10.0
"""The least that a kept layer has to save: starting again takes about as long."""


def layers_to_keep(
    plan: Plan,
    size: GraphSize,
    fanout: list[int] | None,
    traffic: Sequence[PlannedTraffic],
    *,
    resume: Literal["auto", "always", "never"],
    rounded: bool,
    cores: int | None,
) -> list[LayerToKeep]:
    """Every layer that could be kept, and whether it is.

    Args:
        rounded: rows that are only read over edges are held as bfloat16.
        cores: of the machine; None where the rates, which are a CPU's, do not hold.
    """
    layers, saved, first = [], 0.0, 0
    for end in boundaries(plan):
        if cores is not None:
            saved += _seconds(plan, size, fanout, traffic, (first, end), cores)
        first = end.at
        size_bytes = kept_bytes(plan, size, [end], rounded=rounded)
        seconds = size_bytes / KEPT_BYTES
        pays = saved >= LEAST_SECONDS and seconds <= MOST_SHARE * saved
        kept = resume == "always" or (resume == "auto" and pays)
        layers.append(LayerToKeep(end.layer, size_bytes, seconds, saved, kept))
        saved = 0.0 if kept else saved
    return layers


def _seconds(
    plan: Plan,
    size: GraphSize,
    fanout: list[int] | None,
    traffic: Sequence[PlannedTraffic],
    part: tuple[int, Boundary],
    cores: int,
) -> float:
    """The work of the operations from one boundary to the next."""
    first, end = part
    steps = [step for op in plan.ops[first : end.at] for step in op.steps]
    sent = sum(item.bytes_per_worker for item in traffic if item.layer == end.layer - 1)
    exchanged = float(sent * plan.target.grid.workers)
    work = work_of(
        plan.program, size, fanout, written_bytes=0.0, exchanged_bytes=exchanged, steps=steps
    )
    return likely_seconds(replace(work, edges=0.0, read_bytes=0.0), cores)


def kept_bytes(plan: Plan, size: GraphSize, ends: Iterable[Boundary], *, rounded: bool) -> int:
    """Bytes of the tensors that are kept where layers end.

    Args:
        rounded: rows that are only read over edges are held as bfloat16.
    """
    program = plan.program
    half = program.only_gathered if rounded else frozenset[str]()
    values = [
        size.nodes[program.types[name]] * program.widths[name] * (1 if name in half else 2)
        for end in ends
        for name in end.tensors
    ]
    return sum(values) * FLOAT_BYTES // 2


def graph_bytes(graph: PlannedGraph) -> int:
    """Bytes of the graph as it is kept: of each edge its source and what it carries, of each node
    how many in-edges it has, and a histogram of these."""
    total = 0.0
    for name, relation in graph.relations.items():
        size = graph.size.of_relation(name)
        _, buckets = histogram_size(size.nodes)
        total += relation.edges * (size.index_bytes + relation.carried_bytes)
        total += size.nodes * FLOAT_BYTES + buckets * 2 * ID_BYTES
    return int(total)


def unfit_to_keep(job: EmbeddingJob, plan: Plan) -> str:
    """Why no rows can be taken over or kept for the next run, as far as the job and the plan have
    it; "": they can."""
    if job.spec.workers.device != "cpu":
        return "rows are computed alone on a CPU only"
    if plan.target.spills_graph:
        return "edges are on disk, since they exceed the memory of a worker"
    if plan.target.grid.feature > 1 and job.spec.inference.rows != "float32":
        return "inference.rows is not float32, on a grid with feature slices"
    return why_whole(plan, sampled=job.spec.inference.fanout != "full")


def kept_sizes(job: EmbeddingJob, plan: Plan, graph: PlannedGraph) -> dict[str, int]:
    """Bytes of what ``refresh.keep`` keeps of a version: "rows", "digests" and "graph"."""
    rounded, ends = job.spec.inference.rows != "float32", [*boundaries(plan), results_of(plan)]
    return {
        "rows": kept_bytes(plan, graph.size, ends, rounded=rounded),
        "digests": digest_bytes(plan, graph.size),
        "graph": graph_bytes(graph),
    }


def bytes_beside(
    job: EmbeddingJob, plan: Plan, graph: PlannedGraph, layers: Sequence[LayerToKeep]
) -> int:
    """Bytes that a run keeps beside its version, for the next run or attempt, if all rows are new.

    Args:
        layers: those that may be kept for a next attempt.
    """
    # Beside tensors on disk the graph is not kept.
    of_graph = 0 if plan.target.panel else graph_bytes(graph)
    if job.spec.refresh.keep and not unfit_to_keep(job, plan):
        kept = kept_sizes(job, plan, graph)
        return kept["rows"] + kept["digests"] + of_graph
    of_layers = sum(layer.bytes for layer in layers if layer.kept)
    return of_layers + of_graph if of_layers else 0


def describe_kept(layers: Sequence[LayerToKeep], resume: str) -> list[str]:
    """A note for people on what is kept for a next attempt, and why."""
    if resume == "never" or not layers:
        return []
    kept = [layer for layer in layers if layer.kept]
    if kept:
        total, seconds = sum(layer.bytes for layer in kept), sum(layer.seconds for layer in kept)
        numbers = ", ".join(str(layer.layer) for layer in kept)
        return [
            f"kept below the output, for an attempt that follows a failed one: after layer"
            f" {numbers}, {total / (1 << 20):.0f} MiB, about {seconds:.1f} s to write"
        ]
    last = layers[-1]
    return [
        f"no layer is kept for a next attempt (refresh.resume: auto): writing layer {last.layer}"
        f" takes about {last.seconds:.1f} s, computing again {last.saved_seconds:.1f} s"
    ]
