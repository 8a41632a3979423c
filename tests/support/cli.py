"""A stand-in for the engine, and what it answers; runs of the real one are tested elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Any

from embertide.spec.grid import GridShape
from embertide.telemetry.progress import Progress
from embertide.telemetry.report import Estimate, InputSize, RunReport

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
