"""Schedules that never get as far as a job are seen: object, Event and metrics say why, at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Inputs, Jobs, Manifest, find_condition, workers
from tests.support.cluster.schedules import create_example

pytestmark = pytest.mark.cluster


def create_schedule(tiny: Inputs, jobs: Jobs, schedule: str, **edge: Any) -> None:
    """The example, for jobs over the tiny graph; ``edge``: fields of its edges."""
    job = tiny.job("products", f"{jobs.root}/out", workers=workers(1, 1))
    job["spec"]["input"]["edges"][0] |= edge
    age = {"embertide.dev/max-age": "2m"}
    create_example(jobs, job["spec"], schedule=schedule, timeZone="UTC", annotations=age)


def shown(jobs: Jobs) -> Manifest:
    """The status of the schedule, {} before there is one."""
    items = jobs.cluster.get("-n", jobs.namespace, "embeddingschedules")["items"]
    return next((item.get("status", {}) for item in items), {})


def await_not_submitted(jobs: Jobs, seconds: float = 150) -> Manifest:
    """Until the schedule says that its last firing made no job: within two firings."""

    def look() -> Manifest | None:
        status = shown(jobs)
        return status if find_condition(status, "Submitted").get("status") == "False" else None

    found = jobs.cluster.wait_for(look, seconds, "Submitted=False")
    assert found is not None
    return found


@pytest.fixture(scope="module", autouse=True)
def firing(cluster: KubernetesCluster, operator: str, tiny: Inputs) -> Iterator[dict[str, Jobs]]:
    """Schedules that fire each minute and make no job, by name: one minute passes for both."""
    places = {name: Jobs(cluster, cluster.namespace(name)) for name in ("misspelt", "refused")}
    places["refused"].kubectl("create", "quota", "none", "--hard=pods=0")
    for name, jobs in places.items():
        edge = {"uri": f"{jobs.root}/{{dtae}}/"} if name == "misspelt" else {}
        create_schedule(tiny, jobs, "* * * * *", **edge)
    yield places
    for jobs in places.values():
        cluster.discard(jobs.namespace)


def test_a_schedule_that_works(tiny: Inputs, jobs: Jobs) -> None:
    create_schedule(tiny, jobs, "0 0 1 1 *")
    jobs.cluster.wait_for(lambda: shown(jobs), 60, "it is shown")
    status = shown(jobs)
    assert find_condition(status, "Submitted")["reason"] == "NotFiredYet"
    assert status["nextFiringTime"].endswith("-01-01T00:00:00Z")
    assert (status["maxAgeSeconds"], status["output"]) == (120, "s3://shop/embeddings/products")
    assert find_condition(status, "Fresh")["reason"] == "WithinMaxAge"
    jobs.kubectl("create", "job", "now", "--from=cronjob/products")
    (name,) = jobs.cluster.wait_for(jobs.statuses, 60, "a job by hand") or ()
    jobs.complete(name)
    jobs.cluster.wait_for(lambda: shown(jobs).get("lastSuccessTime"), 60, "its success is known")


def test_a_misspelt_placeholder(firing: dict[str, Jobs]) -> None:
    jobs = firing["misspelt"]
    status = await_not_submitted(jobs)
    condition = find_condition(status, "Submitted")
    assert condition["reason"] == "SubmitFailed"
    assert "did you mean {date}?" in condition["message"]
    assert status["failedFirings"] >= 1
    events = jobs.kubectl("get", "events", "--field-selector=involvedObject.kind=CronJob")
    assert "did you mean {date}?" in events
    text = jobs.kubectl("get", "esch", "products")
    assert "SubmitFailed" in text
    assert "* * * * *" in text
    assert jobs.statuses() == {}
    # It goes with its CronJob.
    jobs.kubectl("delete", "cronjob", "products")
    jobs.cluster.wait_for(lambda: not shown(jobs), 60, "the schedule is gone")


def test_a_quota_that_refuses_the_pod(firing: dict[str, Jobs]) -> None:
    """The Job hangs for ten minutes, and with Forbid no other firing takes place."""
    jobs = firing["refused"]
    status = await_not_submitted(jobs)
    condition = find_condition(status, "Submitted")
    assert condition["reason"] == "NotSubmitted"
    assert "exceeded quota: none" in condition["message"]
    jobs.kubectl("patch", "cronjob", "products", "-p", '{"spec": {"suspend": true}}')
    jobs.cluster.wait_for(lambda: shown(jobs).get("suspended"), 60, "it is suspended")
    assert "nextFiringTime" not in shown(jobs)
