"""Workers that die, in every stage and every way; the job ends well or says exactly why not."""

from __future__ import annotations

import pytest

from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers

pytestmark = pytest.mark.cluster

STAGES = ("infer", "publish")
ALL = ("features", "ingest", "csr", *STAGES)


@pytest.mark.parametrize("stages", [STAGES, pytest.param(ALL, marks=pytest.mark.tier(3))])
def test_a_worker_killed_in_each_stage(big: Inputs, jobs: Jobs, stages: tuple[str, ...]) -> None:
    """One rank after the other; rank 0 while it publishes."""
    output = f"{jobs.root}/out"
    jobs.apply(big.job("target", output, workers=workers(2, 1), backoffLimit=len(stages)))
    for attempt, stage in enumerate(stages, start=1):
        rank = (len(stages) - attempt) % 2
        with jobs.held("target", attempt, stage, rank) as held:
            now = held.stage
            jobs.cluster.kill_in_pod(jobs.namespace, f"target-{rank}", f"embertide-{rank}")
        status = jobs.await_failures("target", attempt)
        assert status["lastFailure"]["worker"] == f"target-{rank}", (stage, status)
        assert f"was killed by SIGKILL during {now}" in status["lastFailure"]["message"]
    assert jobs.complete("target")["attempt"] == len(stages) + 1
    big.check(output)
    assert big.leftovers(output) == []
    assert len(big.versions(output)) == 1


def test_out_of_memory_is_told_as_such(big: Inputs, jobs: Jobs) -> None:
    """Whichever process the kernel kills: the container's first, the fork server, the worker."""
    limits = {"first": "20Mi", "server": "200Mi", "worker": "450Mi"}
    requests = {"cpu": "50m", "memory": "20Mi"}
    for name, limit in limits.items():
        small = workers(resources={"requests": requests, "limits": {"memory": limit}})
        jobs.apply(big.job(name, f"{jobs.root}/{name}", workers=small, backoffLimit=0))
    for name, limit in limits.items():
        status = jobs.fail(name)
        assert status["lastFailure"]["reason"] == "OutOfMemory"
        assert "ran out of memory" in status["lastFailure"]["message"]
        assert limit in status["lastFailure"]["message"]
        assert "OutOfMemory: worker 0" in find_condition(status, "Failed")["message"]
        assert big.versions(f"{jobs.root}/{name}") == []


def test_s3_down_for_a_while(big: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(big.job("patient", output, backoffLimit=10))
    with jobs.held("patient", 1, "ingest"):
        jobs.cluster.stop_s3()
    try:
        status = jobs.await_("patient", lambda s: s["failures"])
        assert status["lastFailure"]["reason"] == "StoreUnavailable"
    finally:
        jobs.cluster.start_s3()
    jobs.complete("patient")
    big.check(output)


def test_the_kubelet_stops_and_comes_back(big: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(big.job("lonely", output, workers=workers(2, 1)))
    with jobs.held("lonely", 1, "ingest"):
        jobs.cluster.kill_kubelet()
    try:
        jobs.kubectl("wait", "--for=condition=Ready=Unknown", "node/node-1", "--timeout=180s")
        jobs.complete("lonely")
    finally:
        jobs.cluster.start_kubelet()
    jobs.kubectl("wait", "--for=condition=Ready", "node/node-1", "--timeout=180s")
    jobs.await_no_pods()
    big.check(output)
    assert len(big.versions(output)) == 1
