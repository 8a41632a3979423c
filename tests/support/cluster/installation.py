"""The operator on the cluster, installed as users do it: by the chart, with helm."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.paths import ROOT
from tests.support.patience import WAIT_SECONDS

RELEASE = "embertide"
NAMESPACE = "embertide"
CHART = ROOT / "charts" / "embertide"
# Quicker than by default, so that tests wait for what they test and not for a timer.
_QUICK = {"backoffSeconds": 0.1, "resyncSeconds": 5, "staleSeconds": 20, "claimSeconds": 8}


def install(cluster: KubernetesCluster, release: str) -> str:
    """Install the chart, or bring it up to date; returns the name that its objects have.

    Its namespace enforces Pod Security *restricted*.
    """
    cluster.make_namespace(NAMESPACE)
    place = (release, str(CHART), "--namespace", NAMESPACE)
    cluster.helm("upgrade", "--install", *place, *options(release_values(cluster)))
    name = f"{release}-operator"
    rollout = ("rollout", "status", f"deployment/{name}", f"--timeout={WAIT_SECONDS:.0f}s")
    cluster.kubectl("-n", NAMESPACE, *rollout)
    return name


def release_values(cluster: KubernetesCluster) -> dict[str, Any]:
    """The values of a release on the test cluster: its images, and short times."""
    repository, tag = cluster.operator_image.rsplit(":", 1)
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "worker": {"image": cluster.worker_image, "pullPolicy": "Never"},
        # Tests look into the operator's pod; test_several_operators.py has more than one.
        "replicas": 1,
        "maxWorkersPerJob": 1024,
        "maxRunningWorkers": 1400,
        **_QUICK,
    }


def options(values: Mapping[str, Any]) -> list[str]:
    """helm's options for values."""
    pairs = (f"{key}={json.dumps(value)}" for key, value in values.items())
    return [part for pair in pairs for part in ("--set-json", pair)]


def leading_pod(cluster: KubernetesCluster, namespace: str = NAMESPACE) -> dict[str, Any]:
    """The operator's pod that leads; one that is about to end or waits is none."""
    lease = ("-n", namespace, "get", "lease", f"{RELEASE}-operator", "-o", "json")

    def found() -> dict[str, Any]:
        told = cluster.try_kubectl(*lease)
        holder = json.loads(told.stdout)["spec"].get("holderIdentity") if told.stdout else ""
        pods = cluster.read(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return next((pod for pod in pods if pod["metadata"]["name"] == holder), {})

    return cluster.wait_for(found, 60, "a replica of the operator leads")


@contextmanager
def operator_away(cluster: KubernetesCluster, deployment: str) -> Iterator[None]:
    """Scaled to zero, and its pod gone; back at the end."""
    scale = ("-n", NAMESPACE, "scale", "deployment", deployment)
    pods = ("pod", "-l", "app.kubernetes.io/component=operator")
    cluster.kubectl(*scale, "--replicas=0")
    try:
        cluster.kubectl(
            "-n", NAMESPACE, "wait", "--for=delete", *pods, f"--timeout={WAIT_SECONDS:.0f}s"
        )
        yield
    finally:
        cluster.kubectl(*scale, "--replicas=1")
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", f"deployment/{deployment}")
