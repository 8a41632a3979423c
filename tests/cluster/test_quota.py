"""A quota of CPU and memory limits: what is made here passes it, a job says what it lacks."""

from __future__ import annotations

import json

import pytest

from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers

pytestmark = pytest.mark.cluster

HARD = "limits.cpu=4,limits.memory=8Gi,requests.cpu=2,requests.memory=8Gi,pods=10"


@pytest.fixture
def quota(jobs: Jobs) -> Jobs:
    """A namespace with the quota of a managed cluster."""
    jobs.kubectl("create", "quota", "q", f"--hard={HARD}")
    hard = f"/api/v1/namespaces/{jobs.namespace}/resourcequotas/q"
    jobs.cluster.wait_for(lambda: jobs.cluster.read(hard)["status"].get("hard"), 30, "the quota")
    return jobs


def test_a_job_with_the_default_grid_is_planned_and_runs(tiny: Inputs, quota: Jobs) -> None:
    limits = {"cpu": "500m", "memory": "2Gi"}
    resources = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": limits}
    quota.apply(tiny.job("auto", f"{quota.root}/auto", workers={"resources": resources}))
    quota.await_("auto", lambda s: s.get("phase") == "Planning")
    status = quota.complete("auto")
    assert (status["attempt"], status["plan"]["grid"]) == (1, "1x1")
    assert status["plan"]["memoryPerWorkerBytes"] > 0
    assert "Planned" in quota.reasons("auto"), "with resources alone a planner runs"
    tiny.check(f"{quota.root}/auto")


def test_a_job_without_a_limit_of_cpu_says_what_to_set(tiny: Inputs, quota: Jobs) -> None:
    quota.apply(tiny.job("silent", f"{quota.root}/silent"))
    status = quota.await_("silent", lambda s: s.get("stage") == "PodsRefused")
    said = find_condition(status, "WorkersReady")["message"]
    assert "must specify limits.cpu for: worker" in said
    assert "; set limits.cpu in spec.workers.resources, or for all jobs in worker.podT" in said
    quota.kubectl("delete", "ej", "silent")


def test_an_exceeded_quota_says_what_to_do(tiny: Inputs, quota: Jobs) -> None:
    limits = {"cpu": "5", "memory": "1Gi"}
    resources = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": limits}
    place = {"grid": {"graph": 1}, "resources": resources}
    quota.apply(tiny.job("large", f"{quota.root}/large", workers=place))
    status = quota.await_("large", lambda s: s.get("stage") == "PodsRefused")
    assert "; lower spec.workers.resources, use fewer workers" in json.dumps(status)
    quota.kubectl("delete", "ej", "large")


def test_a_quota_that_is_full_is_waited_for(big: Inputs, tiny: Inputs, jobs: Jobs) -> None:
    jobs.kubectl("create", "quota", "small", "--hard=pods=3")
    jobs.apply(big.job("first", f"{jobs.root}/first", workers=workers(2, 1)))
    with jobs.held("first", 1, "ingest"):
        jobs.apply(tiny.job("waits", f"{jobs.root}/waits", workers=workers(2, 1)))
        status = jobs.await_(
            "waits", lambda s: find_condition(s, "WorkersReady").get("reason") == "PodsRefused"
        )
        assert "exceeded quota: small" in find_condition(status, "WorkersReady")["message"]
    jobs.complete("first")
    jobs.complete("waits")
