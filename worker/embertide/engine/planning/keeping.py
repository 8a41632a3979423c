"""What a run keeps: layers for a next attempt, rows and digests for the next run; what they take.

Few attempts fail, so a layer is kept where writing it takes at most a tenth of the time that
computing it again would: then all runs pay less than what one failed attempt in ten loses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from embertide.engine.planning.duration import KEPT_BYTES, likely_seconds, work_of
from embertide.engine.planning.graph import PlannedGraph, PlannedRelation
from embertide.engine.planning.row_inputs import keeps_read
from embertide.facts.telemetry.estimate import LayerToKeep
from embertide.facts.telemetry.report import PlannedTraffic
from embertide.footprint import FLOAT_BYTES, ID_BYTES, GraphSize
from embertide.graph.shuffle import histogram_size
from embertide.program.plans.boundaries import Boundary, Part, boundaries, results_of
from embertide.program.plans.flow import kinds_read, why_whole
from embertide.program.plans.plan import Plan
from embertide.program.steps.dry_run import DryRun
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.relations import ends_of

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
DIGEST_BYTES = 16
_DEGREE_BYTES = 8
_COMPARED_BYTES = DIGEST_BYTES + 4 * 8
"""A node that was there: its digest, the first half of it, its place when sorted, and as before."""
_DIGESTED_EDGES = 1 << 18
_EDGE_BYTES = 2 * DIGEST_BYTES
"""An edge while its row is digested: its source, the dense id that this had, a row of bytes."""
_CUT_BYTES = 32
"""An edge of a layer graph of some rows while it is made: where the edge was, its source as it is
numbered in the whole graph, and there, as int64 and as they stay."""
_KEPT_EDGE_BYTES = 12
"""The columns of the whole graph, which stay, and columns and weights of that of some rows."""
_EXCERPT_EDGE_BYTES = 24
"""An edge of some rows: its column and its weight, also in a block, and where it was."""
_DISTANCE_BYTES = 64
"""A node while it is found which rows a change may move: distances as float64, and sets of rows."""


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


def read_bytes(graph: PlannedGraph) -> int:
    """Bytes of edges as they were read, which are kept beside the graphs of some edge types."""
    types = {str(of.edge.relation): of for of in graph.relations.values()}
    return sum(
        of.edges * (2 * FLOAT_BYTES + of.carried_bytes)
        for of in types.values()
        if keeps_read(_as_read(of), of.shares.splits)
    )


def _as_read(of: PlannedRelation) -> EdgeInput:
    return of.edge if of.features else of.edge.model_copy(update={"features": None})


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
        "graph": graph_bytes(graph) + read_bytes(graph),
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
        return kept["rows"] + kept["digests"] + (kept["graph"] if of_graph else 0)
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


def digest_bytes(plan: Plan, size: GraphSize) -> int:
    """Bytes of what is kept of each node: digests of its id, its features and its in-edges of each
    relation, and the degrees that the program multiplies neighbours' rows by."""
    program = plan.program
    counted = {
        step.own_edges.relation
        for step in program.steps
        if step.own_edges is not None and any(end == "out" for end, _ in step.degrees_read)
    }
    out = sum(size.nodes[ends_of(name)[0]] for name in counted)
    kinds = kinds_read(program, dict.fromkeys(program.relations, True))
    factors = sum(size.nodes[kind.node_type] for kind in kinds)
    with_features = sum(size.nodes[of] for of in program.inputs)
    in_edges = sum(size.nodes[ends_of(name)[1]] for name in program.relations)
    digests = DIGEST_BYTES * (sum(_nodes(plan, size)) + with_features + in_edges)
    return digests + _DEGREE_BYTES * out + FLOAT_BYTES * factors


def digest_memory(plan: Plan, size: GraphSize) -> float:
    """Bytes of a worker beside the graph, at the peak of making and comparing digests."""
    nodes = _nodes(plan, size)
    own = digest_bytes(plan, size) / size.grid.workers
    edges = max((size.edges[name] for name in plan.program.relations), default=0)
    digesting = min(_DIGESTED_EDGES, edges / size.grid.workers) * _EDGE_BYTES
    comparing = max(nodes) * _COMPARED_BYTES
    return own + sum(nodes) * 8 + max(digesting, comparing)


def _nodes(plan: Plan, size: GraphSize) -> list[int]:
    """Nodes of each type of the program."""
    return [size.nodes[of] for of in dict.fromkeys(plan.program.types.values())]


def excerpt_memory(plan: Plan, graph: PlannedGraph, *, rounded: bool, tolerant: bool) -> int:
    """Bytes of a worker beside those of a run of all rows, where it takes over kept ones.

    How many rows it computes is known only once the inputs are read, so all are planned for; with
    tensors on disk rows are computed alone if they take no more than the parts of tensors that are
    planned. 0 of a plan that takes over none.

    Args:
        rounded: rows that are only read over edges are held as bfloat16.
        tolerant: with a tolerance, exact rows are kept beside those of the first layer, and
            distances for every node.
    """
    target = plan.target
    if target.spills_graph or why_whole(plan, sampled=target.sampled):
        return 0
    if target.panel:
        nodes, sets = sum(graph.size.nodes.values()), len(plan.program.steps) + ID_BYTES
        far = _DISTANCE_BYTES if tolerant else 0
        return nodes * (sets + far) + graph.edges * _KEPT_EDGE_BYTES // graph.size.grid.graph
    size, tensors, before = graph.size, 0, _feature_bytes(plan, graph)
    ends = boundaries(plan)
    exact = kept_bytes(plan, size, ends[:1], rounded=rounded) if tolerant else 0
    distances = sum(size.nodes.values()) * _DISTANCE_BYTES if tolerant and ends else 0
    for end in (*ends, results_of(plan)):
        kept = kept_bytes(plan, size, [end], rounded=rounded)
        # The rows of what a part reads and of what it makes that lie over kept ones.
        tensors, before = max(tensors, before + kept), kept
    largest = max(size.edges.values(), default=0)
    edges = largest * _CUT_BYTES + graph.edges * _KEPT_EDGE_BYTES
    return (tensors + exact) // size.grid.workers + distances + edges // size.grid.graph


def excerpt_bytes(part: Part, size: GraphSize, edges: Mapping[tuple[int, str], int]) -> int:
    """Bytes of a worker for the tensors and graphs of some rows alone, at their peak.

    Args:
        part: of a plan in which features are in order.
        size: the nodes of the rows, on as many workers as there are; the edges of a relation are
            those of the layer that has the most.
        edges: layer and relation -> edges that a worker has of the rows.
    """
    plan = part.plan
    read = [
        of
        for of, name in plan.program.inputs.items()
        if plan.last_reads.get(name, -1) >= part.first
    ]
    dry = DryRun(plan.program, size, read)
    dry.run(part.ops, part.starts)
    cut = max(edges.values(), default=0) * _CUT_BYTES
    # Features of edges are in memory twice while they are taken from parts of the graph.
    values = sum(
        2 * count * plan.program.edge_needs(relation).features
        for (_, relation), count in edges.items()
    )
    beside = sum(edges.values()) * _EXCERPT_EDGE_BYTES + values * FLOAT_BYTES
    return int(dry.peak) + beside + cut


def _feature_bytes(plan: Plan, graph: PlannedGraph) -> int:
    program = plan.program
    values = (graph.size.nodes[of] * program.widths[name] for of, name in program.inputs.items())
    return sum(values) * FLOAT_BYTES
