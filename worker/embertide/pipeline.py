"""A run from start to end, as every rank executes it.

features -> ids -> edges -> row ranges -> CSR -> layer graphs -> layers -> parts -> version.
A check goes as far as the layers, once for each program.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from embertide.context import RunContext
from embertide.kernels.csr import Csr
from embertide.kernels.memory import release_idle
from embertide.models.order import order_steps
from embertide.models.read import read_files
from embertide.planning.graph import plan_graph
from embertide.planning.growth import Growth, growths
from embertide.planning.inputs import Inputs, with_tables
from embertide.planning.matching import check_model, match_relations, narrow, published
from embertide.planning.model_tables import UNREAD
from embertide.planning.order import WorkOrder
from embertide.primitives.graph import LayerGraph
from embertide.spec.version_names import version_uri
from embertide.stages.compare import compare_rows
from embertide.stages.csr import gather_partition
from embertide.stages.features import LoadedNodes, loaded_features
from embertide.stages.gate import judge
from embertide.stages.infer import Arrangement, Graphs, arrange, infer
from embertide.stages.limits import check_read, check_same_model, check_unchanged
from embertide.stages.publish import Rows, WrittenType, publish_version, write_parts
from embertide.stages.report import gather_report, keep_report, run_facts, type_counts
from embertide.stages.sample import sample_layer
from embertide.stages.verify import (
    SKIPPED,
    Expected,
    allowed_error,
    check_width,
    hold_against,
    read_expected,
    row_error,
)
from embertide.steps import Program
from embertide.telemetry.clock import Clock
from embertide.telemetry.memory import release_memory
from embertide.telemetry.recorder import CountingRecorder
from embertide.telemetry.report import RelationCount, RunReport
from embertide.typed_graph import (
    TypedGraph,
    build_types,
    drop_unread,
    ingest_types,
    load_types,
    omissions_of,
)

_BESIDE_TENSORS = 48 << 20
"""Of the layers' memory: what is too small for pages that others left."""


def run(
    ctx: RunContext, order: WorkOrder, recorder: CountingRecorder, clock: Clock
) -> RunReport | None:
    """Compute and publish one version; rank 0 gets the report.

    Collective: every rank must call.

    Raises:
        EmbertideError: on the rank that found a problem, or on all.
    """
    world, inputs = ctx.grid.world, order.inputs
    ctx = replace(ctx, job=with_tables(ctx.job, inputs.model_tables))
    with clock.memory:
        with clock.stage("features"):
            files = read_files(ctx.storage, ctx.job.spec.model.uri)
            check_same_model(ctx, files.digest)
            whole = files.program()
            rows, limit = ctx.job.spec.inference.rows, files.reference_tolerance
            tolerance = allowed_error(limit, rows, whole.layers)
            facts = run_facts(ctx, files.library, files.layer_names, whole)
            program = order_steps(published(ctx.job, whole), world)
            del files, whole
            reading = replace(ctx, job=narrow(ctx.job, program))
            nodes = load_types(reading, inputs)
            clock.nodes = sum(of_type.ids.count for of_type in nodes.values())
            counts = {name: of_type.ids.count for name, of_type in nodes.items()}
            names = check_model(ctx.job, inputs, program, ctx.grid.shape, counts)
            expected = _expected(ctx, inputs, program, names, nodes)
        with clock.stage("ingest"):
            edges = ingest_types(reading, inputs, nodes)
            clock.read = check_read(ctx, inputs, edges).to_json()
            clock.omissions = omissions_of(reading.job, inputs, edges)
            added = check_unchanged(ctx, inputs)
            drop_unread(edges, match_relations(ctx.job, program))
            release_memory()
        with clock.stage("csr"):
            graph = build_types(reading, nodes, edges, lambda: grown(ctx, inputs, program))
            clock.own_nodes = sum(len(of_type.names) for of_type in graph.located.values())
            clock.own_edges = sum(csr.nnz for csr in graph.sub_ranges.values())
            edge_counts = graph.count_edges(ctx.exchange)
            clock.edges = sum(edge_counts.values())
            clock.types = type_counts(inputs, counts, program, names)
            clock.relations = [RelationCount(str(one), n) for one, n in edge_counts.items()]
            loaded = {name: loaded_features(ctx, nodes[names[name]]) for name in program.inputs}
        del edges, nodes
        release_memory()
        make_room(clock, order)
        with clock.stage("infer"):
            ranges, locations = graph.of_types(names)
            layers = arrange(ctx, program, ranges)
            graphs = layer_graphs(ctx, layers, graph, clock)
            # Layer graphs have what they need of them.
            graph.sub_ranges.clear()
            make_room(clock, order)
            embeddings = infer(ctx, layers, graphs, loaded, locations, clock)
            del graphs, loaded, locations
            release_idle()
            release_memory()
        with clock.stage("publish"):
            compared = {
                name: hold_against(ctx, found, ranges[name], embeddings[name], tolerance)
                for name, found in expected.items()
            }
            facts = replace(facts, row_error=row_error(compared.values(), rows))
            uri = version_uri(ctx.job.spec.output.uri, order.version)
            own = [own_rows(ctx, graph, names[name], values) for name, values in embeddings.items()]
            comparison = compare_rows(ctx, program.digest, clock.read["edges"], own)
            parts = write_parts(ctx, uri, own)
            version, verdict = None, None
            if comparison is not None:
                verdict = judge(ctx, inputs, comparison, clock.omissions, compared)
                written = [
                    WrittenType(
                        rows.node, ranges[name].nodes, rows.width, of_type, compared.get(name)
                    )
                    for name, rows, of_type in zip(embeddings, own, parts, strict=True)
                ]
                trust = {"comparison": comparison.to_json(), "gate": verdict.to_json()}
                version = publish_version(ctx, order, program, clock, written, trust, verdict.held)
    skipped = [
        split
        for of_type in inputs.by_nodes.values()
        for split in of_type.reference[:1]
        if not expected
    ]
    warnings = added + [SKIPPED.format(uri=split.uri) for split in skipped]
    unread = inputs.unread_tables.items()
    warnings += [UNREAD.format(node_type=name, uri=table) for name, table in unread]
    if comparison is not None and verdict is not None:
        warnings += [*verdict.warnings, *([comparison.why] if comparison.why else [])]
    report = gather_report(ctx, order, facts, clock, recorder, version, warnings, comparison)
    return None if report is None else keep_report(ctx, report)


def make_room(clock: Clock, order: WorkOrder) -> None:
    """Give back idle pages that the layers' tensors would not fill."""
    kept = order.planned_memory.get("infer", 0) - _BESIDE_TENSORS
    release_idle(max(0, clock.memory.used_bytes - kept))


def grown(ctx: RunContext, inputs: Inputs, program: Program) -> dict[str, list[Growth]]:
    """Node type -> what a worker's rows and edges may take, the same on every rank."""
    spec, grid = ctx.job.spec, ctx.grid.shape
    in_place = ctx.exchange.channel("world", "features").in_place
    planned = plan_graph(ctx.job, inputs, program, grid, in_place=in_place)
    fanout = None if spec.inference.fanout == "full" else spec.inference.fanout
    return growths(planned, program, fanout, gpu=spec.workers.device == "cuda")


def _expected(
    ctx: RunContext,
    inputs: Inputs,
    program: Program,
    names: dict[str, str],
    nodes: dict[str, LoadedNodes],
) -> dict[str, Expected]:
    """What to compare with, by the program's node types; nothing with a fanout: a sample differs.

    Collective: every rank must call.
    """
    if ctx.job.spec.inference.fanout != "full":
        return {}
    found = {}
    for name, result in program.results.items():
        of_type = nodes[names[name]]
        reference = inputs.by_nodes[of_type.node.name].reference
        if reference:
            found[name] = read_expected(ctx, reference, of_type.node, of_type.ids)
            check_width(found[name], program.widths[result])
    return found


def own_rows(ctx: RunContext, graph: TypedGraph, name: str, embeddings: torch.Tensor) -> Rows:
    """Our rows of a node type, as they are written: among several types, in its own folder."""
    given = ctx.job.spec.input
    folder = name if len(given.nodes) > 1 else ""
    return Rows(given.node(name), folder, graph.located[name].names, embeddings)


def layer_graphs(ctx: RunContext, layers: Arrangement, graph: TypedGraph, clock: Clock) -> Graphs:
    """Layer and relation -> graph: one graph for all layers, or one sample each, made when needed.

    Collective: every rank must call, and must call the result with the same layers and relations.
    """
    exchange, program = layers.exchange, layers.program
    named = graph.of_relations(program)
    group_bytes = ctx.job.spec.inference.group_bytes
    widest = max(program.widths.values())
    tile = -(-widest // exchange.grid.feature)

    def build(name: str, rows: Csr) -> LayerGraph:
        relation = named[name]
        targets = layers.spread(graph.located[relation.destination].ranges)
        return LayerGraph(
            exchange=exchange,
            relation=name,
            targets=targets,
            origins=layers.spread(graph.located[relation.source].ranges),
            features=rows.features,
            csr=gather_partition(exchange, targets, rows, name),
            group_rows=max(1, group_bytes // (4 * tile)),
            pair_rows=max(1, group_bytes // (4 * widest)),
            needs=program.edge_needs(name),
        )

    sub_ranges = {name: graph.sub_ranges[relation] for name, relation in named.items()}
    for name, rows in sub_ranges.items():
        if not program.edge_needs(name).features:
            sub_ranges[name] = rows.without_features()
    fanout, seed = ctx.job.spec.inference.fanout, ctx.job.spec.inference.seed
    if fanout == "full":
        full = {name: build(name, sub_range) for name, sub_range in sub_ranges.items()}
        return lambda _layer, name: full[name]
    current: dict[tuple[int, str], LayerGraph] = {}

    def sampled(layer: int, name: str) -> LayerGraph:
        if (layer, name) not in current:
            for past in [key for key in current if key[0] < layer]:
                del current[past]
            with clock.stage("sample"):
                keys = graph.located[named[name].destination].keys
                sample = sample_layer(sub_ranges[name], keys, fanout[layer], seed, layer)
                current[layer, name] = build(name, sample)
        return current[layer, name]

    return sampled
