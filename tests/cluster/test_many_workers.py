"""A job of a thousand workers that find no node: it waits for room, and goes away fast."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers

pytestmark = pytest.mark.cluster

THOUSAND = 1000
GONE_SECONDS = 40
"""The controllers, at 20 requests a second, take 50 and more."""
_NOWHERE = {"spec": {"nodeSelector": {"no-such-node": "true"}}}
"""So that no kubelet has to start a thousand pods."""


def many(inputs: Inputs, jobs: Jobs, name: str, graph: int = THOUSAND) -> dict[str, Any]:
    place = workers(graph, 1, podTemplate=_NOWHERE)
    job = inputs.job(name, f"{jobs.root}/{name}", workers=place)
    del job["spec"]["input"]["nodes"][0]["count"]  # more workers than nodes would be refused
    return job


def count(cluster: KubernetesCluster, namespace: str) -> int:
    """How many pods a namespace has, without reading them all."""
    page = cluster.read(f"/api/v1/namespaces/{namespace}/pods?limit=1")
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def await_thousand(jobs: Jobs) -> None:
    """Until job ``many`` has its pods; one that was refused never has."""

    def are_there() -> bool:
        accepted = find_condition(jobs.status("many"), "Accepted")
        assert accepted.get("status") != "False", accepted
        return count(jobs.cluster, jobs.namespace) >= THOUSAND

    jobs.cluster.wait_for(are_there, 400, "a thousand pods", pause=2.0)


def await_none(jobs: Jobs) -> None:
    """Until all pods are gone, which takes the garbage collector alone a minute."""
    jobs.cluster.wait_for(
        lambda: count(jobs.cluster, jobs.namespace) == 0, GONE_SECONDS, "all gone"
    )


@pytest.mark.timeout(900)
def test_workers_beyond_the_limit_wait_until_a_thousand_pods_are_gone(
    tiny: Inputs, jobs: Jobs
) -> None:
    """The release of the tests lets 1,400 workers run; of a deleted job they go in seconds."""
    jobs.apply(many(tiny, jobs, "many"))
    await_thousand(jobs)
    jobs.apply(many(tiny, jobs, "second", 401))
    status = jobs.await_("second", lambda s: find_condition(s, "Progressing"))
    assert find_condition(status, "Progressing")["message"] == (
        "waiting for room: it takes 401 workers, and at most 1400 workers run at once;"
        " position 1 of 1"
    )
    jobs.patch("second", {"suspend": True})
    jobs.kubectl("delete", "ej", "many", "--wait=false")
    await_none(jobs)
    jobs.patch("second", {"suspend": False})
    jobs.await_("second", lambda status: status.get("phase") == "Starting", 120)
    jobs.kubectl("delete", "ej", "second", "--wait=false")
    jobs.await_no_pods()


@pytest.mark.tier(3)
@pytest.mark.timeout(900)
def test_a_thousand_pods_of_a_suspended_job_are_gone_in_seconds(tiny: Inputs, jobs: Jobs) -> None:
    """Its StatefulSet is scaled to zero, and then makes no new ones."""
    jobs.apply(many(tiny, jobs, "many"))
    await_thousand(jobs)
    jobs.patch("many", {"suspend": True})
    await_none(jobs)
    jobs.await_("many", lambda status: status.get("phase") == "Suspended", 60)
