"""The operator on the cluster, installed as users do it: by the chart, with helm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.paths import ROOT

RELEASE = "embertide"
NAMESPACE = "embertide"
_CHART = ROOT / "charts" / "embertide"
# Quicker than by default, so that tests wait for what they test and not for a timer.
_QUICK = {"backoffSeconds": 0.1, "resyncSeconds": 5, "staleSeconds": 20}


def install(cluster: KubernetesCluster, release: str) -> str:
    """Install the chart, or bring it up to date; returns the name that its objects have."""
    repository, tag = cluster.operator_image.rsplit(":", 1)
    values = {
        "image.repository": repository,
        "image.tag": tag,
        "image.pullPolicy": "Never",
        "worker.image": cluster.worker_image,
        "worker.pullPolicy": "Never",
        **_QUICK,
    }
    # As JSON: --set would make strings of fractions, which the chart's schema refuses.
    options = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    namespace = ("--namespace", NAMESPACE, "--create-namespace")
    cluster.helm("upgrade", "--install", release, str(_CHART), *namespace, *options)
    name = f"{release}-operator"
    rollout = ("rollout", "status", f"deployment/{name}", "--timeout=180s")
    cluster.kubectl("-n", NAMESPACE, *rollout)
    return name


@contextmanager
def operator_away(cluster: KubernetesCluster, deployment: str) -> Iterator[None]:
    """Scaled to zero, and its pod gone; back at the end."""
    scale = ("-n", NAMESPACE, "scale", "deployment", deployment)
    pods = ("pod", "-l", "app.kubernetes.io/component=operator")
    cluster.kubectl(*scale, "--replicas=0")
    try:
        cluster.kubectl("-n", NAMESPACE, "wait", "--for=delete", *pods, "--timeout=180s")
        yield
    finally:
        cluster.kubectl(*scale, "--replicas=1")
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", f"deployment/{deployment}")
