"""A run from start to end, as every rank executes it.

features -> ids -> edges -> row ranges -> CSR -> layer graphs -> layers -> parts -> version.
A check goes as far as the layers, once for each program.
"""

from __future__ import annotations

from embertide.context import RunContext
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr
from embertide.kernels.hashing import Words
from embertide.kernels.memory import release_idle
from embertide.models.order import order_steps
from embertide.models.read import read_files
from embertide.planning.inputs import Inputs, check_model
from embertide.planning.order import WorkOrder
from embertide.primitives.graph import LayerGraph
from embertide.primitives.idmap import NodeIds
from embertide.readers.splits import assign_splits
from embertide.spec.version_names import version_uri
from embertide.stages.csr import build_graph, choose_ranges, gather_partition
from embertide.stages.features import (
    load_features,
    loaded_features,
    locate_features,
    map_ids,
)
from embertide.stages.infer import Graphs, infer
from embertide.stages.ingest import ingest
from embertide.stages.publish import publish_version, write_parts
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
            layer_names, library = files.layer_names, files.library
            tolerance = files.reference_tolerance
            del files
            mine = assign_splits(inputs.features, world)[rank]
            raw = load_features(ctx, mine, inputs.schema)
            table = assign_splits(inputs.table, world)[rank]
            ids, dense = map_ids(ctx, raw, inputs.feature_rows, table)
            raw.ids.clear()
            clock.nodes = ids.count
            check_model(ctx.job, inputs.width, program, ctx.grid.shape, ids.count)
            expected = _expected(ctx, inputs, program, ids)
        with clock.stage("ingest"):
            edges = ingest(ctx, assign_splits(inputs.edges, world)[rank], ids)
            release_memory()
        with clock.stage("csr"):
            ranges = choose_ranges(ctx, edges, ids.count)
            sub_range = build_graph(ctx, edges, ranges)
            locations = locate_features(ctx, ranges, ids, dense)
            names, keys = ids.original(ranges)
            clock.own_nodes, clock.own_edges = len(names), sub_range.nnz
            clock.edges = sum(ctx.exchange.all_objects(sub_range.nnz))
        del edges, ids
        release_memory()
        with clock.stage("infer"):
            graphs = layer_graphs(ctx, program, ranges, sub_range, keys, clock)
            del sub_range
            loaded = loaded_features(ctx, raw, dense)
            del raw, dense
            embeddings = infer(ctx, program, ranges, graphs, loaded, locations, clock)
            del graphs, locations
            release_idle()
            release_memory()
        with clock.stage("publish"):
            compared = None
            if expected is not None:
                agreement = compare(ctx, expected, ranges, embeddings, tolerance)
                refuse_difference(agreement)
                compared = agreement.to_json()
            uri = version_uri(ctx.job.spec.output.uri, order.version)
            parts = write_parts(ctx, uri, names, embeddings)
            version = None
            if rank == 0:
                version = publish_version(ctx, order, program, clock, parts, compared)
    skipped = inputs.reference if expected is None else []
    warnings = [SKIPPED.format(uri=split.uri) for split in skipped[:1]]
    facts = run_facts(ctx, library, layer_names, program)
    report = gather_report(ctx, order, facts, clock, recorder, version, warnings)
    return None if report is None else keep_report(ctx, report)


def _expected(ctx: RunContext, inputs: Inputs, program: Program, ids: NodeIds) -> Expected | None:
    """What to compare with; None without a reference, and with a fanout: a sample differs.

    Collective: every rank must call.
    """
    if not inputs.reference or ctx.job.spec.inference.fanout != "full":
        return None
    expected = read_expected(ctx, inputs.reference, ids)
    check_width(expected, program)
    return expected


def layer_graphs(
    ctx: RunContext, program: Program, ranges: RowRanges, sub_range: Csr, keys: Words, clock: Clock
) -> Graphs:
    """Layer -> graph: one graph for all layers, or one sample each, made when it is needed.

    Collective: every rank must call, and must call the result with the same layers.

    Args:
        sub_range: the CSR of our sub-range of rows.
        keys: [N/(P*M)] a stable 64-bit key of each of its nodes.
    """
    inference = ctx.job.spec.inference
    widest = max(program.widths.values())
    tile = -(-widest // ctx.grid.feature)
    group_rows = max(1, inference.group_bytes // (4 * tile))
    pair_rows = max(1, inference.group_bytes // (4 * widest))
    needs = program.edge_needs()

    def build(rows: Csr) -> LayerGraph:
        return LayerGraph(
            exchange=ctx.exchange,
            ranges=ranges,
            csr=gather_partition(ctx, ranges, rows),
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
                sample = sample_layer(sub_range, keys, fanout[layer], inference.seed, layer)
                current[layer] = build(sample)
        return current[layer]

    return sampled
