"""A job in a queue of Kueue, whose own controller admits it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers
from tests.support.cluster.kueue import kueue, set_quota
from tests.support.go_programs import program

pytestmark = [pytest.mark.cluster, pytest.mark.needs("kueue")]

QUEUE = "kueue.x-k8s.io/queue-name"


def test_a_job_waits_for_its_quota_and_runs(tiny: Inputs, jobs: Jobs, tmp_path: Path) -> None:
    """All of its workers or none."""
    job = tiny.job("queued", f"{jobs.root}/out", workers=workers(2, 1))
    job["metadata"]["labels"] = {QUEUE: "nightly"}
    with kueue(jobs.cluster, program("kueue"), jobs.namespace, tmp_path):
        jobs.apply(job)
        jobs.await_("queued", waits)
        jobs.cluster.wait_for(lambda: len(jobs.pods()) == 2, 30, "both pods")
        for pod in jobs.pods():
            assert pod["metadata"]["labels"][QUEUE] == "nightly"
            assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"
            assert pod["spec"]["schedulingGates"]
        # Room for one worker is none for a job of two.
        set_quota(jobs.cluster, "60m", "2Gi")
        assert all(pod["spec"].get("schedulingGates") for pod in jobs.pods())
        set_quota(jobs.cluster, "1", "2Gi")
        jobs.complete("queued")
        jobs.await_no_pods()


def waits(status: dict[str, object]) -> bool:
    return find_condition(status, "WorkersReady").get("reason") == "SchedulingGated"
