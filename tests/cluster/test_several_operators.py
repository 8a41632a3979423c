"""Several operators: two releases that watch the same namespace, and the replicas of one."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import (
    CHART,
    NAMESPACE,
    RELEASE,
    options,
    release_values,
)
from tests.support.cluster.jobs import Inputs, Jobs, workers

pytestmark = pytest.mark.cluster

LEASE_SECONDS = 6
_TERMS = {
    "leaseDurationSeconds": LEASE_SECONDS,
    "renewDeadlineSeconds": 4,
    "retryPeriodSeconds": 0.5,
}
_WRITES = ("create", "patch", "update", "delete")


class Second:
    """A release of the same name in a namespace of its own, that watches one more."""

    def __init__(self, cluster: KubernetesCluster, watched: str) -> None:
        self.cluster, self.watched = cluster, watched
        self.namespace = cluster.namespace("second")
        self.place = (RELEASE, "--namespace", self.namespace)

    def install(self) -> None:
        """With another pull policy, so that it would want another StatefulSet."""
        values = release_values(self.cluster) | {
            "watchNamespaces": [self.watched],
            "crds": {"install": False},
            "replicas": 2,
            "leaderElection": _TERMS,
        }
        values["worker"] = values["worker"] | {"pullPolicy": "IfNotPresent"}
        name, *rest = self.place
        self.cluster.helm("install", name, str(CHART), *rest, *options(values), "--wait")

    def writes(self, user_namespace: str) -> Counter[str]:
        """What an operator has written in the watched namespace, by resource."""
        user = f"system:serviceaccount:{user_namespace}:{RELEASE}-operator"
        found: Counter[str] = Counter()
        for event in self.cluster.audit_events(user):
            target, code = event.get("objectRef") or {}, event["responseStatus"]["code"]
            if target.get("namespace") == self.watched and event["verb"] in _WRITES and code < 400:
                name = target.get("name", "")
                found[f"{target['resource']}/{name}".rstrip("/")] += 1
        return found

    def lease(self) -> dict[str, Any]:
        """``spec`` of its Lease."""
        group = "/apis/coordination.k8s.io/v1"
        path = f"{group}/namespaces/{self.namespace}/leases/{RELEASE}-operator"
        spec: dict[str, Any] = self.cluster.read(path)["spec"]
        return spec

    def await_leader(self, *without: str, seconds: float = 60.0) -> str:
        """The pod that holds the Lease, once it is none of these."""
        return self.cluster.wait_for(
            lambda: (holder := self.lease().get("holderIdentity")) not in without and holder,
            seconds,
            "another replica leads",
        )

    def pods(self) -> dict[str, dict[str, Any]]:
        """Its pods by name."""
        return _operators(self.cluster, self.namespace)


@pytest.fixture(scope="module")
def shared(cluster: KubernetesCluster, operator: str) -> Iterator[Jobs]:
    """A namespace that the operator for all namespaces and the second one watch."""
    del operator
    jobs = Jobs(cluster, cluster.namespace("shared"))
    yield jobs
    cluster.discard(jobs.namespace)


@pytest.fixture(scope="module")
def second(cluster: KubernetesCluster, shared: Jobs) -> Iterator[Second]:
    """The second release."""
    made = Second(cluster, shared.namespace)
    try:
        made.install()
        yield made
    finally:
        name, *rest = made.place
        cluster.helm("uninstall", name, *rest, "--ignore-not-found")
        cluster.discard(made.namespace)


def test_a_job_that_two_operators_watch_is_written_by_one(
    shared: Jobs, second: Second, tiny: Inputs
) -> None:
    """Before there were claims, the two applied the StatefulSet in turns, every two seconds."""
    shared.apply(tiny.job("one", f"{shared.root}/one", workers=workers()))
    status = shared.complete("one")
    sets = f"/apis/apps/v1/namespaces/{shared.namespace}/statefulsets"
    shared.cluster.wait_for(lambda: not shared.cluster.read(sets)["items"], 60, "no children")
    writers = {
        NAMESPACE: second.writes(NAMESPACE),
        second.namespace: second.writes(second.namespace),
    }
    (mine,) = (place for place, found in writers.items() if found["statefulsets/one"])
    assert status["operator"] == f"{mine}/{RELEASE}-operator"
    assert writers[mine]["statefulsets/one"] == 3, "applied, scaled to zero, deleted"
    (other,) = writers.keys() - {mine}
    assert writers[other].keys() <= {"configmaps", "configmaps/operators.embertide.dev"}
    assert status["attempt"] == 1


def test_both_name_each_other_at_the_start(shared: Jobs, second: Second) -> None:
    cluster = shared.cluster
    logs = (
        (NAMESPACE, f"{second.namespace}/{RELEASE}-operator"),
        (second.namespace, f"{NAMESPACE}/{RELEASE}-operator"),
    )
    for place, other in logs:
        said = ("-n", place, "logs", "--selector=app.kubernetes.io/component=operator", "--tail=-1")
        cluster.wait_for(
            lambda said=said, other=other: (
                f"operator {other}, which watches" in cluster.kubectl(*said)
            ),
            60,
            f"the operator in {place} names {other}",
        )


def test_a_job_goes_on_when_its_operator_is_uninstalled(
    shared: Jobs, second: Second, small: Inputs
) -> None:
    """And when the leader is stopped as if its machine hung, and when its Deployment is rolled."""
    cluster, output = shared.cluster, f"{shared.root}/moved"
    with _without_the_first(cluster) as bring_back:
        shared.apply(small.job("moved", output, workers=workers(2, 1)))
        _move(shared, second, bring_back)
    status = shared.complete("moved")
    assert (status["attempt"], status["failures"]) == (1, 0)
    assert "TakenOver" in shared.reasons("moved")
    small.check(output)


def _move(shared: Jobs, second: Second, bring_back: Callable[[], None]) -> None:
    """Stop one leader after the other, uninstall the second release, and bring the first back."""
    cluster = shared.cluster
    with shared.held("moved", 1, "infer"):
        assert shared.status("moved")["operator"] == f"{second.namespace}/{RELEASE}-operator"
        hung = second.await_leader()
        cluster.kill_in_pod(second.namespace, hung, "embertide_operator", signal.SIGSTOP)
        began = time.monotonic()
        next_one = second.await_leader(hung)
        assert time.monotonic() - began < LEASE_SECONDS + 3
        cluster.kill_in_pod(second.namespace, hung, "embertide_operator", signal.SIGCONT)
        cluster.wait_for(lambda: _restarts(second, hung) == 1, 30, "the one that hung ended itself")
        rolled = ("-n", second.namespace, "rollout")
        deployment = f"deployment/{RELEASE}-operator"
        passed_on = second.lease()["leaseTransitions"]
        cluster.kubectl(*rolled, "restart", deployment)
        cluster.kubectl(*rolled, "status", deployment, "--timeout=120s")
        newest = second.await_leader(next_one, hung, "")
        assert newest in second.pods()
        assert second.lease()["leaseTransitions"] > passed_on
        name, *rest = second.place
        cluster.helm("uninstall", name, *rest, "--wait")
        bring_back()
        own = f"{NAMESPACE}/{RELEASE}-operator"
        shared.await_("moved", lambda status: status["operator"] == own, 180)


@contextmanager
def _without_the_first(cluster: KubernetesCluster) -> Iterator[Callable[[], None]]:
    """The first release has no pod, also none that is ending, until it is brought back."""
    scale = ("-n", NAMESPACE, "scale", f"deployment/{RELEASE}-operator")
    cluster.kubectl(*scale, "--replicas=0")

    def bring_back() -> None:
        cluster.kubectl(*scale, "--replicas=1")

    try:
        # An operator that is told to end still reconciles what comes in its last moments.
        cluster.wait_for(lambda: not _operators(cluster, NAMESPACE), 60, "the first one is gone")
        yield bring_back
    finally:
        bring_back()


def _operators(cluster: KubernetesCluster, namespace: str) -> dict[str, dict[str, Any]]:
    """The operator's pods in a namespace by name."""
    label = ("-l", "app.kubernetes.io/component=operator")
    found = cluster.get("-n", namespace, "pods", *label)["items"]
    return {pod["metadata"]["name"]: pod for pod in found}


def _restarts(second: Second, pod: str) -> int:
    """How often the container of a pod was started again."""
    statuses = second.pods()[pod]["status"].get("containerStatuses") or [{"restartCount": 0}]
    return int(statuses[0]["restartCount"])
