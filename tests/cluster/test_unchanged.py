"""A night on which nothing has changed: the version is confirmed, and no worker starts."""

from __future__ import annotations

import json
import secrets

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers

pytestmark = pytest.mark.cluster

AUTO = {"refresh": {"mode": "auto"}, "freshness": {"maxAge": "1h"}}


@pytest.fixture
def inputs(cluster: KubernetesCluster) -> Inputs:
    """Of one test, which changes them."""
    size = ("--scale=6", "--width=8", "--hidden=8")
    return Inputs.make(cluster, f"unchanged-{secrets.token_hex(4)}", *size)


def test_nights_with_and_without_changes(inputs: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    planned = AUTO | {"workers": {"grid": "auto"}}
    jobs.apply(inputs.job("day-0", output, **planned))
    jobs.complete("day-0")
    (version,) = inputs.versions(output)
    assert jobs.status("day-0")["output"].get("confirmed") is None

    jobs.apply(inputs.job("day-1", output, **planned))
    jobs.complete("day-1")
    status = jobs.status("day-1")
    assert (status["output"]["version"], status["output"]["confirmed"]) == (version, True)
    assert find_condition(status, "Complete")["reason"] == "Confirmed"
    assert find_condition(status, "Fresh")["status"] == "True"
    assert jobs.reasons("day-1")[-2:] == ["Confirmed", "Completed"]
    assert "WorkersReady" not in jobs.reasons("day-1")
    jobs.await_no_pods()
    pointer = json.loads(inputs.storage.read(f"{output}/LATEST"))
    assert (pointer["version"], pointer["checkedAt"] > pointer["movedAt"]) == (version, True)

    # Rank 0 decides where no planner runs, and the other worker is stopped with it.
    jobs.apply(inputs.job("day-2", output, **AUTO, workers=workers(2, 1)))
    jobs.complete("day-2")
    assert jobs.status("day-2")["output"]["version"] == version
    assert find_condition(jobs.status("day-2"), "Complete")["reason"] == "Confirmed"
    jobs.await_no_pods()
    assert inputs.versions(output) == [version]

    place = inputs.manifest["spec"]["input"]["edges"][0]["uri"]
    (edges,) = inputs.storage.list(place)
    inputs.storage.write(f"{place}more.parquet", inputs.storage.read(edges.uri))
    jobs.apply(inputs.job("day-3", output, **planned))
    jobs.complete("day-3")
    assert find_condition(jobs.status("day-3"), "Complete")["reason"] == "Published"
    assert len(inputs.versions(output)) == 2
    inputs.check(output)
