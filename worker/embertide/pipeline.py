"""A run from start to end, as every rank executes it.

features -> ids -> edges -> row ranges -> CSR -> layer graphs -> layers -> parts -> version.
A check goes as far as the layers, once for each program.
"""

from __future__ import annotations

from embertide.context import RunContext
from embertide.kernels.csr import Csr
from embertide.kernels.memory import release_idle
from embertide.models.order import order_steps
from embertide.models.read import read_files
from embertide.planning.inputs import Inputs, check_model
from embertide.planning.order import WorkOrder
from embertide.primitives.graph import LayerGraph
from embertide.spec.version_names import version_uri
from embertide.stages.csr import gather_partition
from embertide.stages.features import LoadedNodes, loaded_features
from embertide.stages.infer import Graphs, infer
from embertide.stages.publish import Rows, WrittenType, publish_version, write_parts
from embertide.stages.report import gather_report, keep_report, run_facts
from embertide.stages.sample import sample_layer
from embertide.stages.verify import (
    SKIPPED,
    Expected,
    check_width,
    compare,
    read_expected,
    refuse_difference,
)
from embertide.steps import Program
from embertide.telemetry.clock import Clock
from embertide.telemetry.memory import release_memory
from embertide.telemetry.recorder import CountingRecorder
from embertide.telemetry.report import RunReport
from embertide.typed_graph import TypedGraph, build_types, ingest_types, load_types


def run(
    ctx: RunContext, order: WorkOrder, recorder: CountingRecorder, clock: Clock
) -> RunReport | None:
    """Compute and publish one version; rank 0 gets the report.

    Collective: every rank must call.

    Raises:
        EmbertideError: on the rank that found a problem, or on all.
    """
    rank, world, inputs = ctx.grid.rank, ctx.grid.world, order.inputs
    with clock.memory:
        with clock.stage("features"):
            files = read_files(ctx.storage, ctx.job.spec.model.uri)
            program = order_steps(files.program(), world)
            description = files.description
            del files
            nodes = load_types(ctx, inputs)
            clock.nodes = sum(of_type.ids.count for of_type in nodes.values())
            # The type that programs are about.
            (only,) = nodes.values()
            check_model(ctx.job, inputs.width, program, ctx.grid.shape, only.ids.count)
            expected = _expected(ctx, inputs, program, only)
        with clock.stage("ingest"):
            edges = ingest_types(ctx, inputs, nodes)
            release_memory()
        with clock.stage("csr"):
            graph = build_types(ctx, nodes, edges)
            (located,) = graph.located.values()
            clock.own_nodes = sum(len(of_type.names) for of_type in graph.located.values())
            clock.own_edges = sum(csr.nnz for csr in graph.sub_ranges.values())
            clock.edges = sum(ctx.exchange.all_objects(clock.own_edges))
        del edges, nodes
        release_memory()
        with clock.stage("infer"):
            graphs = layer_graphs(ctx, program, graph, clock)
            loaded = loaded_features(ctx, only)
            node, ranges = only.node, located.ranges
            del only
            embeddings = infer(ctx, program, ranges, graphs, loaded, located.locations, clock)
            del graphs, graph
            release_idle()
            release_memory()
        with clock.stage("publish"):
            compared = None
            if expected is not None:
                tolerance = description.reference_tolerance
                agreement = compare(ctx, expected, ranges, embeddings, tolerance)
                refuse_difference(agreement)
                compared = agreement.to_json()
            uri = version_uri(ctx.job.spec.output.uri, order.version)
            (parts,) = write_parts(ctx, uri, [Rows(node, "", located.names, embeddings)])
            version = None
            if rank == 0:
                width = program.output_width
                written = WrittenType(node, ranges.nodes, width, parts, compared)
                version = publish_version(ctx, order, program, clock, [written])
    skipped = inputs.by_nodes[node.name].reference if expected is None else []
    warnings = [SKIPPED.format(uri=split.uri) for split in skipped[:1]]
    facts = run_facts(ctx, description, program)
    report = gather_report(ctx, order, facts, clock, recorder, version, warnings)
    return None if report is None else keep_report(ctx, report)


def _expected(
    ctx: RunContext, inputs: Inputs, program: Program, nodes: LoadedNodes
) -> Expected | None:
    """What to compare with; None without a reference, and with a fanout: a sample differs.

    Collective: every rank must call.
    """
    reference = inputs.by_nodes[nodes.node.name].reference
    if not reference or ctx.job.spec.inference.fanout != "full":
        return None
    expected = read_expected(ctx, reference, nodes.node, nodes.ids)
    check_width(expected, program)
    return expected


def layer_graphs(ctx: RunContext, program: Program, graph: TypedGraph, clock: Clock) -> Graphs:
    """Layer -> graph: one graph for all layers, or one sample each, made when it is needed.

    Collective: every rank must call, and must call the result with the same layers.
    """
    ((relation, sub_range),) = graph.sub_ranges.items()
    targets, origins = graph.located[relation.destination], graph.located[relation.source]
    inference = ctx.job.spec.inference
    widest = max(program.widths.values())
    tile = -(-widest // ctx.grid.feature)
    group_rows = max(1, inference.group_bytes // (4 * tile))
    pair_rows = max(1, inference.group_bytes // (4 * widest))
    needs = program.edge_needs()

    def build(rows: Csr) -> LayerGraph:
        return LayerGraph(
            exchange=ctx.exchange,
            targets=targets.ranges,
            origins=origins.ranges,
            csr=gather_partition(ctx, targets.ranges, rows),
            group_rows=group_rows,
            pair_rows=pair_rows,
            needs=needs,
        )

    if inference.fanout == "full":
        full = build(sub_range)
        return lambda _layer: full
    fanout = inference.fanout
    current: dict[int, LayerGraph] = {}

    def sampled(layer: int) -> LayerGraph:
        if layer not in current:
            current.clear()
            with clock.stage("sample"):
                sample = sample_layer(sub_range, targets.keys, fanout[layer], inference.seed, layer)
                current[layer] = build(sample)
        return current[layer]

    return sampled
