"""Pods that are refused for good end their job after mistakeSeconds; a full quota is waited for."""

from __future__ import annotations

import pytest

from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers

pytestmark = pytest.mark.cluster

REFUSED = {
    "account": ({"serviceAccountName": "nope"}, 'serviceaccount "nope" not found'),
    "priority": (
        {"podTemplate": {"spec": {"priorityClassName": "nope"}}},
        "no PriorityClass with name nope was found",
    ),
    "security": ({"podTemplate": {"spec": {"hostNetwork": True}}}, "violates PodSecurity"),
    "demanding": ({}, "must specify limits.cpu"),
}


def test_what_never_heals_ends_within_mistake_seconds(tiny: Inputs, jobs: Jobs) -> None:
    jobs.kubectl("create", "quota", "strict", "--hard=limits.cpu=1")
    for name, (fields, _) in REFUSED.items():
        jobs.apply(tiny.job(name, f"{jobs.root}/{name}", workers=workers(**fields)))
    for name, (_, words) in REFUSED.items():
        status = jobs.fail(name)
        assert find_condition(status, "Failed")["reason"] == "PodsRefused", status
        assert words in status["lastFailure"]["message"]
        assert "it was not mended within 120 s" in status["lastFailure"]["message"]


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
