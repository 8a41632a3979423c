"""A week's nights of one output: a first run, a commit, no change, a killed worker, a new model."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from embertide.io.versions.layers.catalog import list_layers
from embertide.spec import naming
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Jobs, Manifest, find_condition
from tests.support.cluster.nightly import (
    NODES,
    REFRESH,
    WORKERS,
    Nights,
    kill_once_a_layer_is_kept,
)

pytestmark = pytest.mark.cluster


class Week:
    """The nights' jobs, and what is recorded of each."""

    def __init__(self, jobs: Jobs, nights: Nights) -> None:
        self.jobs, self.nights = jobs, nights
        self.output = f"{jobs.root}/embeddings"

    def begin(self, day: str) -> None:
        spec = {"refresh": REFRESH, "workers": WORKERS, "freshness": {"maxAge": "1h"}}
        self.jobs.apply(self.nights.job(day, self.output, **spec))

    def end(self, day: str) -> Manifest:
        """The status of a night's job that is complete, and whose version is right."""
        status = self.jobs.complete(day)
        self.nights.check(self.output)
        return status

    def night(self, day: str) -> Manifest:
        self.begin(day)
        return self.end(day)

    def refresh_of(self, status: Manifest) -> tuple[dict[str, Any], dict[str, Any]]:
        """What manifest and report of the version record of rows that were taken over."""
        version = status["output"]["version"]
        entry = self.nights.manifest_of(self.output, version)["refresh"]
        return entry, self.nights.report_of(self.output, version)["refresh"]

    def pods_of(self, day: str) -> set[str]:
        """Names of a job's pods of which there were events."""
        text = self.jobs.kubectl(
            "get", "events", "--field-selector=involvedObject.kind=Pod", "-o", "json"
        )
        names = {event["involvedObject"]["name"] for event in json.loads(text)["items"]}
        return {name for name in names if name.startswith(f"{day}-")}


@pytest.fixture
def week(cluster: KubernetesCluster, jobs: Jobs) -> Week:
    return Week(jobs, Nights.make(cluster, f"nightly-{secrets.token_hex(4)}"))


def test_five_nights(week: Week) -> None:
    jobs, nights = week.jobs, week.nights

    # The first night computes all rows, and keeps them.
    status = week.night("day-0")
    first = status["output"]["version"]
    assert week.pods_of("day-0") == {"day-0-0", naming.planner_name("day-0")}
    entry, report = week.refresh_of(status)
    assert entry == {"mode": "full", "full": first}
    assert (report["mode"], report["why"]) == ("full", "")
    assert not {"refreshedRows", "resumedLayer", "fullRun"} & status["report"].keys()
    assert jobs.reasons("day-0")[-2:] == ["Published", "Completed"]

    # A commit: the rows that it reaches are computed, the others are those of the first night.
    nights.commit(1)
    status = week.night("day-1")
    second = status["output"]["version"]
    rows = status["report"]["refreshedRows"]
    assert 0 < rows < NODES // 4
    entry, report = week.refresh_of(status)
    assert entry == {"mode": "incremental", "full": first, "from": first, "rows": rows, "of": NODES}
    assert (report["base"], 0 < report["edges"] < report["all_edges"] / 4) == (first, True)
    published = find_condition(status, "Published")
    computed = f"; computed {rows:,} rows, and took over the others, unchanged"
    assert (published["reason"], computed in published["message"]) == ("Published", True)

    # No change: the planner confirms the version, and there is never a worker's pod.
    status = week.night("day-2")
    assert (status["output"]["version"], status["output"]["confirmed"]) == (second, True)
    assert find_condition(status, "Complete")["reason"] == "Confirmed"
    assert find_condition(status, "Fresh")["status"] == "True"
    assert "WorkersReady" not in jobs.reasons("day-2")
    pointer = json.loads(nights.inputs.storage.read(f"{week.output}/LATEST"))
    assert (pointer["version"], pointer["checkedAt"] > pointer["movedAt"]) == (second, True)
    assert jobs.reasons("day-2")[-2:] == ["Confirmed", "Completed"]
    assert week.pods_of("day-2") == {naming.planner_name("day-2")}
    assert nights.inputs.versions(week.output) == [first, second]

    # A commit, and the worker is killed once a layer is kept: the next attempt goes on after it.
    nights.commit(3)
    week.begin("day-3")
    kill_once_a_layer_is_kept(jobs, nights.inputs.storage, "day-3", week.output)
    status = week.end("day-3")
    assert (status["attempt"], status["failures"]) == (2, 1)
    layer = status["report"]["resumedLayer"]
    assert layer >= 1
    published = find_condition(status, "Published")["message"]
    assert f"; resumed after layer {layer}, which an earlier attempt had kept" in published
    entry, report = week.refresh_of(status)
    assert (entry["mode"], entry["from"], entry["full"]) == ("incremental", second, first)
    third = status["output"]["version"]
    assert nights.report_of(week.output, third)["kept"]["resumed"] == layer

    # A new model: no row can be taken over.
    nights.train(4)
    status = week.night("day-4")
    last = status["output"]["version"]
    why = status["report"]["fullRun"]
    assert "refreshedRows" not in status["report"]
    entry, report = week.refresh_of(status)
    assert (entry, report["why"]) == ({"mode": "full", "full": last}, why)
    assert f"; computed all rows: {why}" in find_condition(status, "Published")["message"]
    assert nights.inputs.versions(week.output) == [first, second, third, last]
    key = nights.manifest_of(week.output, last)["layers"]["key"]
    kept = {layers.key: layers for layers in list_layers(nights.inputs.storage, week.output)}
    assert (kept[key].layers, kept[key].with_digests) == ([1, 2, 3], True)
    jobs.await_no_pods()
