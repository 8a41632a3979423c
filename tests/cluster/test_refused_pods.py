"""Pods that are refused for good end their job after mistakeSeconds; a full quota is waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers

pytestmark = pytest.mark.cluster

REFUSED = {
    "account": ({"serviceAccountName": "nope"}, 'serviceaccount "nope" not found'),
    "priority": (
        {"podTemplate": {"spec": {"priorityClassName": "nope"}}},
        "no PriorityClass with name nope was found",
    ),
    "runtime": (
        {"podTemplate": {"spec": {"runtimeClassName": "nope"}}},
        'RuntimeClass "nope" not found',
    ),
    "security": ({"podTemplate": {"spec": {"hostNetwork": True}}}, "violates PodSecurity"),
    "demanding": ({}, "must specify limits.cpu"),
}


@pytest.fixture(scope="module", autouse=True)
def refused(cluster: KubernetesCluster, operator: str, tiny: Inputs) -> Iterator[dict[str, Jobs]]:
    """Jobs whose pods are refused for good, by name: their two minutes pass at once."""
    strict, narrow = (Jobs(cluster, cluster.namespace(name)) for name in ("strict", "narrow"))
    strict.kubectl("create", "quota", "strict", "--hard=limits.cpu=1")
    narrow.kubectl("create", "quota", "narrow", "--hard=pods=1")
    for name, (fields, _) in REFUSED.items():
        strict.apply(tiny.job(name, f"{strict.root}/{name}", workers=workers(**fields)))
    narrow.apply(tiny.job("large", f"{narrow.root}/out", workers=workers(2, 1)))
    yield {"large": narrow, **dict.fromkeys(REFUSED, strict)}
    for jobs in (strict, narrow):
        cluster.discard(jobs.namespace)


def test_a_quota_that_is_full_is_waited_for(big: Inputs, tiny: Inputs, jobs: Jobs) -> None:
    jobs.kubectl("create", "quota", "small", "--hard=pods=3")
    jobs.apply(big.job("first", f"{jobs.root}/first", workers=workers(2, 1)))
    with jobs.held("first", 1, "ingest"):
        jobs.apply(tiny.job("waits", f"{jobs.root}/waits", workers=workers(2, 1)))
        jobs.await_(
            "waits", lambda s: find_condition(s, "WorkersReady").get("reason") == "PodsRefused"
        )
    jobs.complete("first")
    jobs.complete("waits")


@pytest.mark.parametrize("name", REFUSED)
def test_what_never_heals_ends_within_mistake_seconds(name: str, refused: dict[str, Jobs]) -> None:
    status = refused[name].fail(name)
    assert find_condition(status, "Failed")["reason"] == "PodsRefused", status
    assert REFUSED[name][1] in status["lastFailure"]["message"]
    assert "it was not mended within 120 s" in status["lastFailure"]["message"]


def test_a_quota_that_is_smaller_than_the_job_ends_it(refused: dict[str, Jobs]) -> None:
    """Also while the workers that fit run, and wait for the others."""
    status = refused["large"].fail("large")
    assert find_condition(status, "Failed")["reason"] == "PodsRefused"
    assert "1 of 2 pods are created" in status["lastFailure"]["message"]
    assert "exceeded quota: narrow" in status["lastFailure"]["message"]
    assert "it was not mended within 120 s" in status["lastFailure"]["message"]
    assert "StageStarted" in refused["large"].reasons("large"), "one worker ran meanwhile"
