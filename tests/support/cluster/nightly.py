"""One output that a job publishes night after night, from a Delta table of edges that grows."""

from __future__ import annotations

import copy
import io
import time
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embertide.io.storage.protocol import Storage
from embertide.io.versions.layers.catalog import list_layers
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.run_reports import read_report
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Inputs, Jobs, Manifest
from tests.support.patience import BUSY

NODES, DEGREE = 1 << 13, 3
_SIZE = ("--kind=uniform", f"--nodes={NODES}", f"--edge-factor={DEGREE}")
_WIDTHS = ("--layers=3", "--width=16", "--hidden=16", "--embedding=16")
REFRESH = {"keep": True, "mode": "incremental", "resume": "always"}
"""``spec.refresh`` of nights that keep all they can, and compute only what has changed."""
# No memory: the planner's pod chooses it, and is the only one on a night without changes.
WORKERS = {"grid": {"graph": 1, "feature": 1}, "resources": {"requests": {"cpu": "50m"}}}


@dataclass
class Nights:
    """Edges in a Delta table; features and model as ``embertide synth`` has written them.

    Attributes:
        inputs: as synthesized; its edges are the table's first commit.
        rows: all edges of the table.
        model: URI of the folder that the next night's job names.
    """

    cluster: KubernetesCluster
    inputs: Inputs
    place: str
    rows: pa.Table
    model: str

    @classmethod
    def make(cls, cluster: KubernetesCluster, name: str) -> Self:
        """A graph in which few rows depend on one edge, and its first commit."""
        inputs = Inputs.make(cluster, name, *_SIZE, *_WIDTHS)
        spec = inputs.manifest["spec"]
        data = [
            inputs.storage.read(o.uri)
            for o in inputs.storage.list(spec["input"]["edges"][0]["uri"])
        ]
        rows = pa.concat_tables(pq.read_table(io.BytesIO(part)) for part in data)
        nights = cls(cluster, inputs, cluster.s3.uri(name), rows, spec["model"]["uri"])
        nights._append(rows)
        return nights

    def commit(self, seed: int, count: int = 5) -> None:
        """Append some edges to the table, in one commit."""
        g = np.random.default_rng(seed)
        ends = {name: g.integers(0, NODES, count) for name in self.rows.column_names}
        more = pa.table(ends).cast(self.rows.schema)
        self._append(more)
        self.rows = pa.concat_tables([self.rows, more])

    def train(self, seed: int) -> None:
        """Another model, with the same steps and other weights."""
        name = f"{self.place.rpartition('/')[2]}-model-{seed}"
        other = Inputs.make(self.cluster, name, *_SIZE, *_WIDTHS, f"--seed={seed}")
        self.model = other.manifest["spec"]["model"]["uri"]

    def job(self, name: str, output: str, **spec: Any) -> Manifest:
        """The job of a night, on the table as it is then."""
        job = self._manifest(self.inputs.job(name, output, **spec))
        job["spec"]["input"]["edges"] = [{"uri": f"{self.place}/table", "format": "delta"}]
        return job

    def check(self, output: str) -> None:
        """The current version holds the embeddings of the slow float64 reference."""
        uri = f"{self.place}/snapshot/edges.parquet"
        stream = io.BytesIO()
        pq.write_table(self.rows, stream)
        self.inputs.storage.write(uri, stream.getvalue())
        manifest = self._manifest(self.inputs.manifest)
        manifest["spec"]["input"]["edges"][0]["uri"] = uri
        replace(self.inputs, manifest=manifest).check(output)

    def manifest_of(self, output: str, version: str) -> dict[str, Any]:
        """The manifest of a version."""
        return read_manifest(self.inputs.storage, output, version)[0]

    def report_of(self, output: str, version: str) -> dict[str, Any]:
        """The report of the run that computed a version."""
        return read_report(self.inputs.storage, output, version).to_json()

    def _manifest(self, manifest: Manifest) -> Manifest:
        """A copy with the night's model."""
        changed = copy.deepcopy(manifest)
        changed["spec"]["model"]["uri"] = self.model
        return changed

    def _append(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        s3 = self.cluster.s3
        options = s3.environment | {
            "AWS_REGION": s3.region, "AWS_ENDPOINT_URL": s3.endpoint, "AWS_ALLOW_HTTP": "true"
        }  # fmt: skip
        write_deltalake(f"{self.place}/table", rows, storage_options=options, mode="append")


def kill_once_a_layer_is_kept(jobs: Jobs, storage: Storage, job: str, output: str) -> None:
    """Kill the worker of a job's first attempt after it has sealed a layer, before it publishes."""
    before = {kept.key for kept in list_layers(storage, output)}
    jobs.await_(job, lambda status: status.get("plan"))
    # From a stage before: the layers take less than the time between two reports of progress.
    with jobs.held(job, 1, "csr") as held:
        deadline = time.monotonic() + 60 * BUSY
        while not any(k.layers for k in list_layers(storage, output) if k.key not in before):
            assert time.monotonic() < deadline
            held.go_on_for(0.005)
        assert held.stage in ("csr", "infer")
        jobs.cluster.kill_in_pod(jobs.namespace, f"{job}-0", "embertide-0")
