"""Workers with less memory than their tensors take, on a volume that the operator gives them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from embertide.io.versions.run_reports import read_report
from embertide.spec import naming
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Inputs, Jobs, Manifest
from tests.support.cluster.layout import FIRST

pytestmark = pytest.mark.cluster

GRID = {"graph": 1, "feature": 1}
MEMORY = 500 << 20
"""Bytes of a worker; with all tensors in memory it needs 526 MiB."""
CLASS = "local-disk"


@pytest.fixture(scope="module")
def wide(cluster: KubernetesCluster) -> Inputs:
    """Features and tensors of 64 MiB each."""
    nodes = 1 << 17
    size = (f"--nodes={nodes}", "--edge-factor=4", "--width=128", "--hidden=128", "--layers=2")
    return Inputs.make(cluster, "wide", *size)


def spilling(wide: Inputs, name: str, output: str, **fields: object) -> Manifest:
    """A job whose plan needs more than the memory of its workers."""
    resources = {"requests": {"cpu": "50m"}}
    given = {"grid": GRID, "memory": f"{MEMORY >> 20}MiB", "resources": resources, **fields}
    job = wide.job(name, output, workers=given)
    job["spec"]["output"]["compare"] = False
    return job


def worker_pod(jobs: Jobs, name: str) -> Manifest:
    """The pod of a job's only worker, as the API server has it."""
    pods = jobs.cluster.wait_for(
        lambda: [pod for pod in jobs.pods() if pod["metadata"]["name"] == f"{name}-0"], 120, "pod"
    )
    pod: Manifest = pods[0]
    return pod


def check_run(wide: Inputs, status: Manifest, output: str) -> None:
    """The right embeddings, by a run with tensors on disk that took no more than it was given."""
    wide.check(output)
    memory = status["report"]["memory"]
    assert memory["plannedBytes"] < MEMORY
    assert memory["containerPeakBytes"] <= status["plan"]["memoryPerWorkerBytes"]
    report = read_report(wide.storage, output, status["output"]["version"])
    assert all(worker.scratch_bytes_written > 0 for worker in report.workers)


@pytest.mark.tier(3)
def test_tensors_are_on_the_nodes_disk(wide: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(spilling(wide, "spilled", output))
    status = jobs.await_("spilled", lambda s: s.get("plan"))
    scratch = status["plan"]["scratchBytesPerWorker"]
    with jobs.held("spilled", 1, "infer"):
        pod = worker_pod(jobs, "spilled")
        (container,) = pod["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert volumes["scratch"]["emptyDir"] == {"sizeLimit": str(scratch)}
        assert container["resources"]["requests"]["ephemeral-storage"] == str(scratch)
        limit = status["plan"]["memoryPerWorkerBytes"]
        assert container["resources"]["limits"]["memory"] == str(limit)
    check_run(wide, jobs.complete("spilled"), output)


@pytest.fixture
def disk(cluster: KubernetesCluster) -> Iterator[str]:
    """A StorageClass with one volume, a folder of the node; its capacity is what is left of it."""
    folder = cluster.layout.state / "local-disk"
    folder.mkdir()
    manifests = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": CLASS},
            "spec": persistent(folder),
        },
    ]
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))
    yield CLASS
    cluster.kubectl("delete", f"pv/{CLASS}", f"storageclass/{CLASS}")
    shutil.rmtree(folder)


def persistent(folder: Path) -> Manifest:
    """The spec of a volume that is a folder of the node."""
    host = {"key": "kubernetes.io/hostname", "operator": "In", "values": [FIRST.name]}
    return {
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": CLASS,
        "local": {"path": str(folder)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
    }


def test_tensors_are_on_a_volume_of_a_storage_class(wide: Inputs, jobs: Jobs, disk: str) -> None:
    """At the folder that the job names; the claim goes with the pod."""
    output, folder = f"{jobs.root}/out", "/mnt/nvme"
    jobs.apply(spilling(wide, "claimed", output, scratch=folder, scratchStorageClass=disk))
    jobs.await_("claimed", lambda s: s.get("plan"))
    with jobs.held("claimed", 1, "infer"):
        pod = worker_pod(jobs, "claimed")
        (container,) = pod["spec"]["containers"]
        paths = {m["mountPath"] for m in container["volumeMounts"] if m["name"] == "scratch"}
        assert paths == {naming.SCRATCH_FOLDER, folder}
        assert "ephemeral-storage" not in container["resources"]["requests"]
        (claim,) = jobs.cluster.get("-n", jobs.namespace, "pvc")["items"]
        assert (claim["status"]["phase"], claim["spec"]["storageClassName"]) == ("Bound", disk)
    check_run(wide, jobs.complete("claimed"), output)
    jobs.await_no_pods()
    jobs.cluster.wait_for(
        lambda: not jobs.cluster.get("-n", jobs.namespace, "pvc")["items"], 60, "no claim"
    )
