"""Reports of runs that never were, for tests of what is drawn of them: any grid, fixed numbers."""

from __future__ import annotations

from typing import Any

from embertide.facts.telemetry.report import (
    LayerFacts,
    PlannedTraffic,
    RankMemory,
    RunFacts,
    RunReport,
    Span,
    Traffic,
    WorkerReport,
)
from embertide.facts.telemetry.self_check import CHECKED, CheckedRows, SelfCheck
from embertide.spec.grid import GridShape

VERSION = "20261121T041922Z-3fa9c1"
NODES, EDGES, LAYERS = 1_048_576, 20_971_520, 2
_STAGES = ("features", "ingest", "csr", "infer", "publish")
_MIB = 1 << 20
SELF_CHECK = SelfCheck(
    state=CHECKED,
    seconds=0.125,
    tolerance=1e-5,
    checked=[
        CheckedRows(
            layer=layer,
            node_type="",
            makes=f"{layer}.relu",
            rows=300,
            nodes=NODES,
            in_edges=4000,
            largest_error=(layer + 1) * 1e-7,
            beyond=0,
        )
        for layer in range(LAYERS)
    ],
    skipped=["n (graph_norm, layer 0) needs a statistic over all nodes"],
)


def make_report(graph: int, feature: int, **changes: Any) -> RunReport:
    """Of a run of two layers in 7.75 s, whose workers waited the longer the lower their rank."""
    grid = GridShape.of(graph, feature)
    ranks = range(grid.workers)
    given = {
        "version": VERSION,
        "uri": f"s3://shop/embeddings/versions/{VERSION}",
        "rows": NODES,
        "dim": 128,
        "manifest_digest": "ab" * 32,
        "grid": grid,
        "nodes": NODES,
        "edges": EDGES,
        "stages": {"features": 1.0, "ingest": 2.0, "csr": 0.5, "infer": 3.25, "publish": 1.0},
        "total_seconds": 7.75,
        "ingest_edges_per_second": EDGES / 2.5,
        "infer_edges_per_second": EDGES * LAYERS / 3.25,
        "traffic": _traffic() if grid.workers > 1 else [],
        "memory": [_memory(rank) for rank in ranks],
        "kernels": "native (avx512, 8 threads)",
        "workers": [_worker(rank, grid.workers) for rank in ranks],
        "planned_memory": dict.fromkeys(_STAGES, 200 * _MIB),
        "planned_traffic": [PlannedTraffic("graph", "spmm", 0, 40 * _MIB, 3)],
        "facts": RunFacts(
            library="pyg",
            input_width=100,
            parameters=29_184,
            layers=[LayerFacts("sage", 256), LayerFacts("sage", 128)],
            graph_layers=LAYERS,
            device="cpu",
            threads=8,
            cores=64,
            group_bytes=8 * _MIB,
            depth=2,
        ),
        "self_check": SELF_CHECK,
        **changes,
    }
    return RunReport(**given)


def make_manifest(**changes: Any) -> dict[str, Any]:
    """Of the version that the run published."""
    part = {"name": "part-00000.parquet", "rows": NODES, "size": 512 * _MIB, "sha256": "cd" * 32}
    return {
        "version": VERSION,
        "created": "2026-11-21T04:19:32.123456Z",
        "job": "products",
        "rows": NODES,
        "dim": 128,
        "ids": "int64",
        "format": "parquet",
        "dtype": "float32",
        "inputs": [
            {"kind": "edges", "uri": "s3://shop/edges/0.parquet", "size": 80 * _MIB, "etag": "e"},
            {"kind": "features", "uri": "s3://shop/x/0.parquet", "size": 400 * _MIB, "etag": "f"},
        ],
        "model": {"uri": "s3://shop/models/sage-7/", "digest": "ef" * 32},
        "reference": {
            "uri": "s3://shop/models/sage-7/reference.parquet",
            "rows": 1000,
            "beyond": 0,
            "largest_difference": 2.5e-6,
            "largest_error": 3.1e-7,
            "tolerance": 1e-3,
            "worst": [[17, 3.1e-7], [4, 1.2e-7]],
        },
        "grid": {"graph": 2, "feature": 2},
        "fanout": "full",
        "seed": 0,
        "parts": [{**part, "ids_name": None, "ids_size": 0, "ids_sha256": ""}],
        "libraries": {"embertide": "0.1.0", "torch": "2.15.0", "python": "3.11.7"},
        **changes,
    }


def _worker(rank: int, world: int) -> WorkerReport:
    wait = 0.5 * (world - rank) / world if world > 1 else 0.0
    spans = [
        Span("features", -1, 0.0, 1.0, wait / 4, 0.0),
        Span("ingest", -1, 1.0, 3.0, wait / 4, 0.0),
        Span("csr", -1, 3.0, 3.5, wait / 4, 0.0),
        Span("infer", -1, 3.5, 6.75, wait, wait),
        Span("infer", 0, 3.75, 5.5, wait / 2, wait),
        Span("infer", 1, 5.5, 6.7, wait / 2, 0.0),
        Span("infer", LAYERS, 6.7, 6.75, 0.0, 0.0),
        Span("publish", -1, 6.75, 7.75, 0.0, 0.0),
    ]
    return WorkerReport(
        rank=rank,
        nodes=NODES // world,
        edges=EDGES // world + 1000 * rank,
        bytes_sent=100 * _MIB + rank,
        bytes_received=100 * _MIB,
        wait_seconds=sum(span.wait_seconds for span in spans if span.layer < 0),
        compute_seconds=wait,
        peers_on_host=world - 1,
        spans=spans,
    )


def _memory(rank: int) -> RankMemory:
    stages = dict.fromkeys(_STAGES, (150 + rank % 40) * _MIB)
    return RankMemory(rank, 300 * _MIB, (450 + rank % 40) * _MIB, 200 * _MIB, stages)


def _traffic() -> list[Traffic]:
    names = [
        ("world", "shuffle", -1),
        ("graph", "ids", -1),
        ("graph", "spmm", 0),
        ("graph", "spmm", 1),
        ("feature", "gemm", 1),
    ]
    waits = [3, 5, 8, 2, 0, 0, 0]
    return [
        Traffic(axis, primitive, layer, 64 * _MIB, 64 * _MIB, 24, 18, 8 * _MIB, 0.5, 0.25, waits)
        for axis, primitive, layer in names
    ]
