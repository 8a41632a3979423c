"""A stand-in for the engine, and what it answers; runs of the real one are tested elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Any

from embertide.facts.telemetry.estimate import Estimate, GridNeeds, InputSize
from embertide.facts.telemetry.progress import Progress
from embertide.facts.telemetry.report import PlannedTraffic, RankMemory, RunReport, Traffic
from embertide.spec.grid import GridShape

JOB = """\
apiVersion: embertide.dev/v1alpha1
kind: EmbeddingJob
metadata: {name: toy}
spec:
  input:
    edges: [{uri: edges.parquet, format: parquet}]
    nodes: [{features: {uri: x.parquet, vectorColumn: x}}]
  model: {uri: model}
  output: {uri: out}
  workers: {grid: {graph: 3, feature: 1}}
"""
REPORT = RunReport(
    version="20261121T041922Z-3fa9c1",
    uri="file:///out/versions/20261121T041922Z-3fa9c1",
    rows=10,
    dim=4,
    manifest_digest="sha256:00",
    grid=GridShape.of(2, 2),
    nodes=10,
    edges=20,
    stages={"ingest": 1.0},
    total_seconds=1.0,
    start_seconds=6.5,
    ingest_edges_per_second=20.0,
    infer_edges_per_second=20.0,
)
ESTIMATE = Estimate(
    inputs=[InputSize("file:///e.parquet", 10, "edges")],
    total_bytes=10,
    nodes=10,
    nodes_exact=True,
    edges=20,
    edges_exact=True,
    width=4,
    grid=GridShape.of(2, 2),
    memory_per_worker_bytes={"ingest": 100},
    peak_memory_per_worker_bytes=100,
)

LONG_URI = "s3://shop/a-rather-long-prefix-for-embeddings/of/products"
LARGE_REPORT = RunReport(
    kernels="native (avx512, 8 threads)",
    version="20261121T041922Z-3fa9c1",
    uri=f"{LONG_URI}/versions/20261121T041922Z-3fa9c1",
    rows=1_048_576_000,
    dim=128,
    manifest_digest="sha256:00",
    grid=GridShape.of(8, 2),
    nodes=1_048_576_000,
    edges=20_971_520_000,
    stages={"features": 321.5, "ingest": 1003.25, "csr": 512.0, "infer": 7450.0, "publish": 600.0},
    total_seconds=9886.75,
    ingest_edges_per_second=13_840_000.0,
    infer_edges_per_second=8_445_000.0,
    traffic=[
        Traffic("world", "features", 0, 536 << 30, 536 << 30, 123_456, 9, 8 << 20, 1234.5, 0.0),
        Traffic("graph", "spmm", 1, 1700 << 30, 1700 << 30, 1_234_567, 9, 8 << 20, 500.25, 6543.25),
        Traffic("feature", "gemm", 1, 1023 << 30, 1023 << 30, 60, 9, 8 << 20, 61.0, 0.0),
    ],
    memory=[RankMemory(r, 660 << 20, 1020 << 30, 1019 << 30) for r in (0, 15)],
    warnings=[
        "the version is published but not current: while this run went on, a later run published"
    ],
)


def _needs(graph: int, feature: int, gib: int, *, chosen: bool = False) -> GridNeeds:
    return GridNeeds(
        grid=GridShape.of(graph, feature),
        chosen=chosen,
        worker_bytes=gib << 30,
        machine_bytes=graph * feature * gib << 30,
        container_bytes=(gib << 30) * 5 // 4,
        traffic_total_bytes=graph * feature * (77 << 30),
        seconds=(1234.0, 5678.0),
    )


LARGE_ESTIMATE = Estimate(
    inputs=[InputSize(f"{LONG_URI}/edges/{i}.parquet", 900 << 20, "edges") for i in range(9)]
    + [InputSize("s3://shop/x.npy", 1023 << 30, "features")],
    total_bytes=1030 << 30,
    nodes=1_048_576_000,
    nodes_exact=True,
    edges=20_971_520_000,
    edges_exact=False,
    width=128,
    grid=GridShape.of(8, 2),
    memory_per_worker_bytes={"features": 5 << 30, "ingest": 1023 << 20, "infer": 77 << 30},
    peak_memory_per_worker_bytes=77 << 30,
    traffic=[
        PlannedTraffic("world", "shuffle", -1, 1000 << 30, 123_456),
        PlannedTraffic("feature", "scalars", 2, 1023 << 20, 15),
    ],
    traffic_total_bytes=16 * (77 << 30),
    output_uri=LONG_URI,
    output_bytes=508 << 30,
    output_width=128,
    output_problem="no",
    seconds=(1234.0, 5678.0),
    start_seconds=(3.0, 7.0),
    seconds_basis="assumes 4 M edges/s ingested by each of 2 cores; then half to double of that",
    grids=[_needs(1, 1, 900), _needs(2, 1, 450), _needs(8, 2, 78, chosen=True)],
    notes=["16 workers share 2 cores of this machine"],
)


@dataclasses.dataclass
class Engine:
    """Stands in for the engine: remembers how it was called, fails when told."""

    calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    error: BaseException | None = None

    def run_job(self, job: Any, **options: Any) -> RunReport:
        self.calls.append({"job": job, **options})
        options["on_progress"](Progress("ingest", fraction=0.5))
        if self.error is not None:
            raise self.error
        return REPORT

    def estimate_job(self, job: Any, **options: Any) -> Estimate:
        self.calls.append({"job": job, **options})
        return ESTIMATE
