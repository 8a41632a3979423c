"""Workers that die, in every stage and every way; the job ends well or says exactly why not."""

from __future__ import annotations

import time

import pytest

from embertide.versions.layers.catalog import list_layers
from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers

pytestmark = pytest.mark.cluster

STAGES = ("features", "ingest", "csr", "infer", "publish")


def test_a_worker_killed_in_each_stage(big: Inputs, jobs: Jobs) -> None:
    """One rank after the other; rank 0 while it publishes."""
    output = f"{jobs.root}/out"
    jobs.apply(big.job("target", output, workers=workers(2, 1), backoffLimit=len(STAGES)))
    for attempt, stage in enumerate(STAGES, start=1):
        rank = (attempt + 1) % 2
        with jobs.held("target", attempt, stage, rank) as held:
            now = held.stage
            jobs.cluster.kill_in_pod(jobs.namespace, f"target-{rank}", f"embertide-{rank}")
        status = jobs.await_failures("target", attempt)
        assert status["lastFailure"]["worker"] == f"target-{rank}", (stage, status)
        assert f"was killed by SIGKILL during {now}" in status["lastFailure"]["message"]
    assert jobs.complete("target")["attempt"] == len(STAGES) + 1
    big.check(output)
    assert big.leftovers(output) == []
    assert len(big.versions(output)) == 1


def test_the_next_attempt_goes_on_after_the_last_layer_that_was_kept(
    big: Inputs, jobs: Jobs
) -> None:
    """A worker is killed in the last layer: the next attempt computes that one alone."""
    output = f"{jobs.root}/out"
    job = big.job("target", output, workers=workers(2, 1), refresh={"resume": "always"})
    jobs.apply(job)
    with jobs.held("target", 1, "infer", 1) as held:
        deadline = time.monotonic() + 180
        while [kept.layers for kept in list_layers(big.storage, output)] != [[1, 2]]:
            assert time.monotonic() < deadline
            held.go_on_for(0.005)
        jobs.cluster.kill_in_pod(jobs.namespace, "target-1", "embertide-1")
    status = jobs.complete("target")
    assert status["attempt"] == 2
    assert status["report"]["resumedLayer"] == 2
    published = find_condition(status, "Published")["message"]
    assert "; resumed after layer 2, which an earlier attempt had kept" in published
    big.check(output)
    assert list_layers(big.storage, output) == []
    assert len(big.versions(output)) == 1


def test_a_container_killed_as_a_whole(big: Inputs, jobs: Jobs) -> None:
    jobs.apply(big.job("target", f"{jobs.root}/out", workers=workers(2, 1)))
    with jobs.held("target", 1, "ingest"):
        jobs.cluster.kill_in_pod(jobs.namespace, "target-1", "python")
    status = jobs.await_("target", lambda s: s["failures"] == 1)
    assert status["lastFailure"]["worker"] == "target-1"
    jobs.complete("target")


@pytest.mark.parametrize("limit", ["20Mi", "200Mi", "450Mi"])
def test_out_of_memory_is_told_as_such(limit: str, big: Inputs, jobs: Jobs) -> None:
    """Whichever process the kernel kills: the container's first, the fork server, the worker."""
    small_limit = {"requests": {"cpu": "50m", "memory": "20Mi"}, "limits": {"memory": limit}}
    hungry = workers(1, 1, resources=small_limit)
    jobs.apply(big.job("hungry", f"{jobs.root}/out", workers=hungry, backoffLimit=0))
    status = jobs.fail("hungry")
    assert status["lastFailure"]["reason"] == "OutOfMemory"
    assert "ran out of memory" in status["lastFailure"]["message"]
    assert limit in status["lastFailure"]["message"]
    (failed,) = [item for item in status["conditions"] if item["type"] == "Failed"]
    assert "OutOfMemory: worker 0" in failed["message"]
    assert big.versions(f"{jobs.root}/out") == []


def test_bad_input_fails_at_once_and_names_the_object(small: Inputs, jobs: Jobs) -> None:
    job = small.job("bad", f"{jobs.root}/out", workers=workers(2, 1))
    job["spec"]["input"]["nodes"][0]["features"]["vectorColumn"] = "nowhere"
    jobs.apply(job)
    status = jobs.fail("bad")
    assert (status["attempt"], status["lastFailure"]["reason"]) == (1, "Input")
    assert "nowhere" in status["lastFailure"]["message"]
    assert "s3://" in status["lastFailure"]["message"]


def test_wrong_credentials_fail_at_once_and_are_not_shown(small: Inputs, jobs: Jobs) -> None:
    secret = ["create", "secret", "generic", "wrong", "--from-literal=AWS_ACCESS_KEY_ID=somebody"]
    jobs.kubectl(*secret, "--from-literal=AWS_SECRET_ACCESS_KEY=not-the-secret")
    job = small.job("denied", f"{jobs.root}/out")
    job["spec"]["storage"]["credentialsSecret"] = "wrong"
    jobs.apply(job)
    status = jobs.fail("denied")
    assert status["lastFailure"]["reason"] == "AccessDenied"
    everything = jobs.kubectl("get", "ej,sts,pods,cm,events", "-o", "yaml")
    assert "not-the-secret" not in everything


def test_s3_down_for_a_while(big: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(big.job("patient", output, backoffLimit=10))
    with jobs.held("patient", 1, "ingest"):
        jobs.cluster.stop_s3()
    back = time.monotonic() + 15
    try:
        status = jobs.await_("patient", lambda s: s["failures"] and time.monotonic() > back)
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
