"""The story of a run, top-down, as every worker tells it.

features -> ids -> edges -> row ranges -> CSR -> layer graphs -> layers -> parts -> version.
"""

from __future__ import annotations

import platform
import time
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import torch

import embertide
from embertide.context import RunContext
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr
from embertide.kernels.hashing import Words
from embertide.models.program import Program
from embertide.models.read import read_model
from embertide.planning.inputs import check_model
from embertide.planning.order import WorkOrder
from embertide.primitives.graph import LayerGraph, edge_needs
from embertide.primitives.idmap import NodeIds
from embertide.readers.splits import assign_splits
from embertide.spec.version_names import version_uri
from embertide.stages.csr import build_graph, choose_ranges, gather_partition
from embertide.stages.features import (
    load_features,
    locate_features,
    map_ids,
    place_features,
)
from embertide.stages.infer import Graphs, infer
from embertide.stages.ingest import ingest
from embertide.stages.publish import deliver
from embertide.stages.sample import sample_layer
from embertide.telemetry.clock import Clock
from embertide.telemetry.memory import release_memory
from embertide.telemetry.recorder import CountingRecorder
from embertide.telemetry.report import RunReport
from embertide.versions.catalog import VersionInfo
from embertide.versions.publish import publish

NOT_CURRENT = (
    "the version is published but not current: while this run went on, a later run published or"
    " someone rolled back; `embertide versions` lists both, `embertide rollback` switches"
)


def run(
    ctx: RunContext, order: WorkOrder, recorder: CountingRecorder, clock: Clock
) -> RunReport | None:
    """Compute and publish one version. Every worker calls; rank 0 gets the report.

    Raises:
        EmbertideError: on the worker that found a problem, or on all.
    """
    begin = time.perf_counter()
    rank, world, inputs = ctx.grid.rank, ctx.grid.world, order.inputs
    with clock.memory:
        with clock.stage("features"):
            program = read_model(ctx.storage, ctx.job.spec.model.uri)
            mine = assign_splits(inputs.features, world)[rank]
            raw = load_features(ctx, mine, program.input_width)
            table = assign_splits(inputs.table, world)[rank]
            ids, dense = map_ids(ctx, raw, inputs.feature_rows, table)
            raw.ids.clear()
            clock.nodes = ids.count
            check_model(ctx.job, inputs.width, program, ctx.grid.shape, ids.count)
        with clock.stage("ingest"):
            edges = ingest(ctx, assign_splits(inputs.edges, world)[rank], ids)
        with clock.stage("csr"):
            ranges = choose_ranges(ctx, edges, ids.count)
            part = build_graph(ctx, edges, ranges)
            place = locate_features(ctx, ranges, ids, dense)
            names, keys = ids.original(ranges)
            edge_count = clock.edges = sum(ctx.exchange.all_objects(part.nnz))
        del edges
        release_memory()
        with clock.stage("infer"):
            graphs = layer_graphs(ctx, program, ranges, part, keys, clock)
            del part
            loaded = place_features(ctx, raw, dense)
            del raw, dense
            embeddings = infer(ctx, program, ranges, graphs, loaded, place)
            del graphs, place
            release_memory()
        with clock.stage("publish"):
            uri = version_uri(ctx.job.spec.output.uri, order.version)
            digests = deliver(ctx, uri, names, embeddings)
            done = _publish(ctx, order, program, ids, edge_count, digests) if rank == 0 else None
    return _report(ctx, order, program, ids.count, edge_count, done, clock, begin, recorder)


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
    needs = edge_needs(program)

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


def _publish(
    ctx: RunContext, order: WorkOrder, program: Program, ids: NodeIds, edges: int, parts: list[Any]
) -> VersionInfo:
    """Write the version's manifest and make it visible."""
    spec, node = ctx.job.spec, ctx.job.spec.input.nodes[0]
    manifest = {
        "job": ctx.job.metadata.name,
        "rows": ids.count,
        "dim": program.output_width,
        "edges": edges,
        "ids": node.ids,
        "format": spec.output.format,
        "dtype": spec.output.dtype,
        "inputs": order.inputs.objects(),
        "model": {"uri": spec.model.uri, "digest": program.digest},
        "grid": ctx.grid.shape.model_dump(),
        "fanout": spec.inference.fanout,
        "seed": spec.inference.seed,
        "parts": [asdict(part) for part in parts],
        "libraries": {
            "embertide": embertide.__version__,
            "torch": torch.__version__,
            "pyarrow": pa.__version__,
            "python": platform.python_version(),
        },
    }
    return publish(
        ctx.storage, spec.output.uri, order.version, manifest, keep=spec.output.keep_versions
    )


def _report(
    ctx: RunContext,
    order: WorkOrder,
    program: Program,
    nodes: int,
    edges: int,
    published: VersionInfo | None,
    clock: Clock,
    begin: float,
    recorder: CountingRecorder,
) -> RunReport | None:
    """Gather every worker's numbers at rank 0."""
    mine = clock.rank_memory(ctx.grid.rank, order.planned_bytes)
    everyone = ctx.exchange.all_objects((clock.seconds, mine, recorder.totals))
    if published is None:
        return None
    totals = CountingRecorder()
    for _, _, counted in everyone:
        for label, traffic in counted.items():
            totals.at(label).add(traffic)
    stages = {
        name: max(seconds.get(name, 0.0) for seconds, _, _ in everyone) for name in clock.seconds
    }
    return RunReport(
        version=order.version,
        uri=version_uri(ctx.job.spec.output.uri, order.version),
        rows=nodes,
        dim=program.output_width,
        manifest_digest=published.manifest_digest,
        grid=ctx.grid.shape,
        nodes=nodes,
        edges=edges,
        stages=stages,
        total_seconds=time.perf_counter() - begin,
        ingest_edges_per_second=edges / max(1e-9, stages["ingest"] + stages["csr"]),
        infer_edges_per_second=edges * program.layers / max(1e-9, stages["infer"]),
        traffic=totals.traffic(),
        memory=[memory for _, memory, _ in everyone],
        warnings=[] if published.current else [NOT_CURRENT],
        current=published.current,
    )
