"""EmbeddingJobs as tests see them: apply one, follow it with kubectl, look at what it published."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
import yaml

from embertide.errors import ObjectMissing
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import list_versions
from embertide.io.versions.reading import iter_embeddings
from embertide.models.read import read_model
from embertide.models.reference import run_reference
from embertide.spec import naming
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.workers import StorageSettings
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.holding import Held, standing_still
from tests.support.exact import assert_exact
from tests.support.patience import BUSY

Manifest = dict[str, Any]
_POLL_SECONDS = 0.1
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Of containers that Pod Security *restricted* lets in."""


@dataclass(frozen=True)
class Inputs:
    """A graph, features and a model in the cluster's S3 server, made by ``embertide synth``."""

    manifest: Manifest
    storage: Storage

    @classmethod
    def make(cls, cluster: KubernetesCluster, name: str, *size: str) -> Self:
        """``size``: options of ``embertide synth``."""
        place = f"s3://{cluster.s3.bucket}/{name}"
        command = [sys.executable, "-m", "embertide", "synth", place, "-q", *size]
        subprocess.run([*command, "--endpoint-url", cluster.s3.endpoint], check=True)
        settings = StorageSettings(endpoint_url=cluster.s3.endpoint, region=cluster.s3.region)
        storage = open_storage(settings)
        manifest = yaml.safe_load(storage.read(f"{place}/job.yaml"))
        return cls(manifest, storage)

    def job(self, name: str, output: str, **spec: Any) -> Manifest:
        """A manifest on these inputs: one worker with 1 GiB, and a version from every run, unless
        ``spec`` says otherwise."""
        job = copy.deepcopy(self.manifest)
        job["metadata"] = {"name": name}
        job["spec"]["output"] = {"uri": output}
        job["spec"]["storage"]["credentialsSecret"] = "s3"
        job["spec"]["workers"] = workers()
        job["spec"]["refresh"] = {"mode": "full"}
        job["spec"] |= spec
        return job

    @cached_property
    def reference(self) -> np.ndarray:
        """[N, D'] of the slow float64 reference, by node."""
        spec = EmbeddingJob.model_validate(self.manifest).spec
        edges = self._table(spec.input.edges[0].location)
        given = spec.input.nodes[0].features
        assert given is not None
        features = self._table(given.location)
        values = features.column("x").combine_chunks().flatten().to_numpy()
        x = values.reshape(len(features), -1)[np.argsort(features.column("id"))]
        ends = [torch.tensor(edges.column(name).to_numpy()) for name in ("src", "dst")]
        assert spec.model.uri is not None
        plan = read_model(self.storage, spec.model.uri)
        layer = (ends[0], ends[1], None)
        return run_reference(plan, [layer] * plan.layers, torch.from_numpy(x)).numpy()

    def _table(self, uri: str) -> Any:
        import io

        import pyarrow as pa
        import pyarrow.parquet as pq

        objects = sorted(info.uri for info in self.storage.list(uri))
        return pa.concat_tables(pq.read_table(io.BytesIO(self.storage.read(o))) for o in objects)

    def check(self, output: str) -> None:
        """The current version holds the reference's embeddings of all nodes."""
        batches = list(iter_embeddings(self.storage, output))
        ids = np.concatenate([ids for ids, _ in batches])
        found = np.concatenate([values for _, values in batches])[np.argsort(ids)]
        assert np.array_equal(np.sort(ids), np.arange(len(self.reference)))
        assert_exact(found, self.reference)

    def versions(self, output: str) -> list[str]:
        """Names of the complete versions."""
        return [info.version for info in list_versions(self.storage, output)]

    def leftovers(self, output: str) -> list[str]:
        """Objects of versions that are not complete."""
        complete = self.versions(output)
        try:
            found = [info.uri for info in self.storage.list(f"{output}/versions/")]
        except ObjectMissing:
            return []
        return [uri for uri in found if not any(version in uri for version in complete)]


def workers(graph: int = 1, feature: int = 1, **fields: Any) -> Manifest:
    """spec.workers of small pods: several fit on the node."""
    resources = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}}
    grid = {"graph": graph, "feature": feature}
    return {"grid": grid, "resources": resources} | fields


class Jobs:
    """The jobs of one namespace."""

    def __init__(self, cluster: KubernetesCluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.root = cluster.s3.uri(namespace)
        group = f"{naming.GROUP}/{naming.API_VERSION_NAME}"
        self._path = f"/apis/{group}/namespaces/{namespace}/{naming.PLURAL}"

    def kubectl(self, *args: str, **options: Any) -> str:
        """kubectl in this namespace; its standard output."""
        return self.cluster.kubectl("-n", self.namespace, *args, **options)

    def python(self, *arguments: str) -> str:
        """What Python prints for somebody who has the cluster's kubeconfig and the store's keys."""
        s3 = self.cluster.s3
        places = {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_REGION": s3.region}
        env = os.environ | places | {"KUBECONFIG": str(self.cluster.kubeconfig)}
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    def apply(self, *manifests: Manifest) -> None:
        """``kubectl apply``."""
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))

    def patch(self, name: str, spec: Manifest) -> None:
        """Change fields of a job's spec."""
        self.kubectl("patch", "ej", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def status(self, name: str) -> Manifest:
        """A job's status, {} while it has none."""
        status: Manifest = self.cluster.read(f"{self._path}/{name}").get("status", {})
        return status

    def all(self) -> dict[str, Manifest]:
        """Every job by its name."""
        return {job["metadata"]["name"]: job for job in self.cluster.read(self._path)["items"]}

    def statuses(self) -> dict[str, Manifest]:
        """Every job's status by the job's name."""
        return {name: job.get("status", {}) for name, job in self.all().items()}

    def await_(
        self, name: str, condition: Callable[[Manifest], Any], seconds: float = 180.0
    ) -> Manifest:
        """Wait until a job's status fulfils a condition; the status is shown when it does not.

        Args:
            seconds: that it takes at most on a machine that does nothing else.
        """
        seconds *= BUSY
        deadline = time.monotonic() + seconds
        while True:
            status = self.status(name)
            if condition(status):
                return status
            if time.monotonic() > deadline:
                shown = yaml.safe_dump(status)
                pods = self.kubectl("describe", "pods")
                raise AssertionError(f"{name} after {seconds:.0f} s:\n{shown}\n{pods[-3000:]}")
            time.sleep(_POLL_SECONDS)

    def complete(self, name: str, seconds: float = 240.0) -> Manifest:
        """Wait for Complete; an end in failure is one at once."""
        status = self.await_(name, lambda s: s.get("phase") in ("Succeeded", "Failed"), seconds)
        assert status["phase"] == "Succeeded", yaml.safe_dump(status)
        return status

    def fail(self, name: str, seconds: float = 240.0) -> Manifest:
        """Wait for Failed."""
        status = self.await_(name, lambda s: s.get("phase") in ("Succeeded", "Failed"), seconds)
        assert status["phase"] == "Failed", yaml.safe_dump(status)
        return status

    def await_failures(self, name: str, count: int) -> Manifest:
        """Wait until so many attempts have failed."""
        return self.await_(name, lambda status: status.get("failures") == count)

    def pods(self) -> list[Manifest]:
        """All pods of the namespace."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        found: list[Manifest] = self.cluster.read(path)["items"]
        return found

    def await_no_pods(self, seconds: float = 120.0) -> None:
        """Wait until none is left, terminating ones included."""
        self.cluster.wait_for(lambda: not self.pods(), seconds, "pods are gone")

    def reasons(self, name: str) -> list[str]:
        """Reasons of a job's Events, oldest first."""
        selector = f"involvedObject.kind=EmbeddingJob,involvedObject.name={name}"
        text = self.kubectl("get", "events", f"--field-selector={selector}", "-o", "json")
        events = json.loads(text)["items"]
        events.sort(key=lambda event: event["metadata"]["creationTimestamp"])
        return [event["reason"] for event in events]

    def ask(self, pod: str, path: str = "/status") -> str:
        """A worker's answer over HTTP, "" while there is none."""
        places = {p["metadata"]["name"]: p["status"].get("podIP") for p in self.pods()}
        if not (address := places.get(pod)):
            return ""
        try:
            with urllib.request.urlopen(f"http://{address}:8080{path}", timeout=2) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    @contextmanager
    def held(
        self, name: str, attempt: int, stage: str, rank: int = 0, seconds: float = 180.0
    ) -> Iterator[Held]:
        """From when a rank is in a stage of an attempt, its workers stand still for a while."""
        status = self.await_(name, lambda s: s.get("attempt") == attempt, seconds)
        graph, feature = map(int, status["plan"]["grid"].split("x"))

        def uids() -> list[str]:
            found = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}
            return [found.get(f"{name}-{number}", "no pod") for number in range(graph * feature)]

        with standing_still(uids, attempt, rank, stage, seconds) as held:
            yield held


def find_condition(status: Manifest, kind: str) -> Manifest:
    """A condition in a status, {} without it."""
    return next((c for c in status.get("conditions", []) if c["type"] == kind), {})
