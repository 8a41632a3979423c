"""The log of a failed job outlives its pods; of a job that runs, its pods have it."""

from __future__ import annotations

import json

import pytest

from tests.support.cluster.jobs import Inputs, Jobs, workers

pytestmark = pytest.mark.cluster


def logs_of(jobs: Jobs, job: str, *options: str) -> str:
    """What ``embertide logs`` prints."""
    return jobs.python("-m", "embertide", "logs", job, "-n", jobs.namespace, *options)


def test_the_log_of_a_failed_job_outlives_its_pods(small: Inputs, jobs: Jobs) -> None:
    wrong = small.job("wrong", f"{jobs.root}/out", workers=workers(2, 1))
    wrong["spec"]["input"]["nodes"][0]["features"]["vectorColumn"] = "nowhere"
    jobs.apply(wrong)
    failed = jobs.fail("wrong")
    assert failed["attempt"] == 1, "another would fail the same way"
    jobs.await_no_pods()
    heading, *lines = logs_of(jobs, "wrong").splitlines()
    assert heading == f"==> {failed['lastFailure']['worker']}: failed: Input <=="
    assert "serving on port" in lines[0]
    assert lines[-1].endswith(f"failed: Input: {failed['lastFailure']['message']}")
    everything = jobs.kubectl("get", "ej,cm,events", "-o", "yaml") + "\n".join(lines)
    assert jobs.cluster.s3.secret_key not in everything
    assert jobs.cluster.s3.access_key not in everything


def test_of_a_container_killed_as_a_whole_the_kubelet_has_the_log(big: Inputs, jobs: Jobs) -> None:
    jobs.apply(big.job("target", f"{jobs.root}/out", workers=workers(2, 1), backoffLimit=0))
    with jobs.held("target", 1, "ingest"):
        jobs.cluster.kill_in_pod(jobs.namespace, "target-1", "python")
    assert jobs.fail("target")["lastFailure"]["worker"] == "target-1"
    jobs.await_no_pods()
    heading, *lines = logs_of(jobs, "target").splitlines()
    assert heading.startswith("==> target-1: failed: WorkerFailed")
    assert any("waiting for 2 workers" in line for line in lines)


def test_pods_that_run_are_asked(big: Inputs, jobs: Jobs) -> None:
    jobs.apply(big.job("busy", f"{jobs.root}/out", workers=workers(2, 1)))
    with jobs.held("busy", 1, "ingest") as held:
        for rank in range(2):
            assert jobs.ask(f"busy-{rank}", "/healthz").strip() == "ok"
            assert json.loads(jobs.ask(f"busy-{rank}"))["rank"] == rank
            assert 'axis="graph"' in jobs.ask(f"busy-{rank}", "/metrics")
        status = jobs.await_("busy", lambda s: (s["progress"] or {}).get("stage") == held.stage)
        assert 10 < status["progress"]["percent"] < 100
        text = logs_of(jobs, "busy", "--tail", "500")
        shown = jobs.kubectl("logs", "--selector=embertide.dev/job=busy", "--prefix", "--tail=50")
    for rank in (0, 1):
        assert f"==> busy-{rank}: Running <==" in text
        assert f"[pod/busy-{rank}/worker]" in shown
    assert text.count("all workers joined; running") == 2
    jobs.complete("busy")
    assert "StageStarted" in jobs.reasons("busy")
