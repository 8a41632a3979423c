"""Many jobs at once on a node with room for a few."""

from __future__ import annotations

import urllib.request

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import leading_pod
from tests.support.cluster.jobs import Inputs, Jobs, workers

pytestmark = [pytest.mark.cluster, pytest.mark.tier(3)]

JOBS = 8
_ROOM = {"requests": {"cpu": "300m", "memory": "64Mi"}, "limits": {"memory": "2Gi"}}


def test_more_jobs_than_the_node_has_room_for(tiny: Inputs, jobs: Jobs, operator: str) -> None:
    before = operator_bytes(jobs.cluster)
    names = [f"job-{number:02}" for number in range(JOBS)]
    small_pods = workers(resources=_ROOM)
    jobs.apply(*(tiny.job(name, f"{jobs.root}/{name}", workers=small_pods) for name in names))

    def unfinished() -> list[str]:
        phases = {name: status.get("phase") for name, status in jobs.statuses().items()}
        assert "Failed" not in phases.values(), phases
        return [name for name in names if phases[name] != "Succeeded"]

    jobs.cluster.wait_for(lambda: not unfinished(), 900, "all jobs are done", pause=2.0)
    for name in names[::5]:
        tiny.check(f"{jobs.root}/{name}")
    assert [status["attempt"] for status in jobs.statuses().values()] == [1] * JOBS
    assert operator_bytes(jobs.cluster) - before < 32 << 20


def operator_bytes(cluster: KubernetesCluster) -> int:
    """Resident memory of the operator's process, as it reports it."""
    address = leading_pod(cluster)["status"]["podIP"]
    with urllib.request.urlopen(f"http://{address}:8080/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith("process_resident_memory")]
    return int(float(value))
