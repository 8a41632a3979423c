"""Schedules as the operator lists and shows them, against an API server that can refuse."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from embertide_operator.config.settings import Settings
from embertide_operator.schedules.state import SCHEDULED
from embertide_operator.schedules.sync import Schedules
from tests.support.api_server import ApiServer, api_server

NOW = datetime(2026, 11, 22, 3, 5, 0, tzinfo=UTC)
LAST = "2026-11-22T03:00:00Z"
LABELS = {"embertide.dev/schedule": "nightly"}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


def looking(server: ApiServer, *, writes: bool = True, **settings: Any) -> Schedules:
    chosen = replace(Settings(), **settings)
    return Schedules(server.api(), chosen, lambda: [], lambda: writes)


def put_schedule(server: ApiServer, **annotations: str) -> dict[str, Any]:
    meta = {
        "name": "nightly",
        "namespace": "shop",
        "labels": LABELS,
        "annotations": annotations,
        "creationTimestamp": "2026-11-20T12:00:00Z",
    }
    spec = {"schedule": "0 3 * * *", "timeZone": "UTC"}
    status = {"lastScheduleTime": LAST}
    return server.put("cronjobs", {"metadata": meta, "spec": spec, "status": status})


def put_firing(server: ApiServer, cron_job: dict[str, Any], at: str = LAST, **status: Any) -> None:
    meta = {
        "name": f"nightly-{at[8:10]}",
        "namespace": "shop",
        "labels": LABELS,
        "annotations": {SCHEDULED: at},
        "ownerReferences": [{"uid": cron_job["metadata"]["uid"]}],
        "creationTimestamp": at,
    }
    server.put("jobs", {"metadata": meta, "status": status})


def put_pod(server: ApiServer, state: dict[str, Any]) -> None:
    meta = {
        "name": "nightly-22-x",
        "namespace": "shop",
        "labels": {"batch.kubernetes.io/job-name": "nightly-22"},
        "creationTimestamp": LAST,
    }
    status = {"containerStatuses": [{"name": "submit", "state": state}]}
    server.put("pods", {"metadata": meta, "status": status})


FAILED = {"conditions": [{"type": "Failed", "status": "True", "message": "backoff"}]}


def shown(server: ApiServer) -> dict[str, Any]:
    found = server.find("embeddingschedules", "shop", "nightly")
    assert found is not None
    return found


def submitted(server: ApiServer) -> dict[str, Any]:
    found: dict[str, Any] = shown(server)["status"]["conditions"][0]
    assert found["type"] == "Submitted"
    return found


def events(server: ApiServer) -> list[str]:
    return [item["message"] for item in server.listed("events", "shop", "")[0]]


def test_a_firing_that_failed_is_shown_with_the_pods_words(server: ApiServer) -> None:
    cron_job = put_schedule(server)
    put_firing(server, cron_job, **FAILED)
    text = "embertide: error: job.yaml has 1 problem:\n  spec.output.uri: did you mean {date}?"
    put_pod(server, {"terminated": {"exitCode": 2, "message": text}})
    schedules = looking(server)
    schedules.look(NOW)
    assert "did you mean {date}?" in submitted(server)["message"]
    (owner,) = shown(server)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("CronJob", cron_job["metadata"]["uid"])
    assert len(events(server)) == 1
    assert schedules.statuses[("shop", "nightly")] == shown(server)["status"]
    # The same again writes nothing, also after a restart of the operator.
    writes = server.requests["patch", "embeddingschedules/status"]
    for again in (schedules, looking(server)):
        again.look(NOW + timedelta(seconds=20))
    assert server.requests["patch", "embeddingschedules/status"] == writes
    assert len(events(server)) == 1


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"terminated": {"exitCode": 137}}, "was killed by signal 9"),
        ({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, "no such image"),
        ({"running": {}}, "pod nightly-22-x has not ended"),
    ],
)
def test_why_a_pod_has_not_submitted(server: ApiServer, state: dict[str, Any], why: str) -> None:
    put_firing(server, put_schedule(server))
    put_pod(server, state)
    looking(server).look(NOW)
    assert submitted(server)["reason"] == "NotSubmitted"
    assert why in submitted(server)["message"]


def test_a_pod_that_is_refused(server: ApiServer) -> None:
    put_firing(server, put_schedule(server))
    event = {"message": "exceeded quota: none", "lastTimestamp": LAST}
    server.put("events", {"metadata": {"namespace": "shop", "name": "e"}, **event})
    looking(server).look(NOW)
    assert "exceeded quota: none" in submitted(server)["message"]


def test_schedules_of_another_class_are_anothers(server: ApiServer) -> None:
    put_schedule(server, **{"embertide.dev/operator-class": "gpu"})
    looking(server).look(NOW)
    assert server.find("embeddingschedules", "shop", "nightly") is None
    looking(server, operator_class="gpu").look(NOW)
    assert shown(server)["status"]["schedule"] == "0 3 * * *"


def test_nothing_is_written_by_one_that_may_not(server: ApiServer) -> None:
    put_firing(server, put_schedule(server), **FAILED)
    schedules = looking(server, writes=False)
    schedules.look(NOW)
    assert server.find("embeddingschedules", "shop", "nightly") is None
    assert events(server) == []
    assert schedules.statuses


@pytest.mark.parametrize("code", [403, 404])
def test_without_the_definition_metrics_are_served(
    server: ApiServer, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    put_firing(server, put_schedule(server), **FAILED)
    server.refuse = {("list", "embeddingschedules"): code}
    schedules = looking(server)
    with caplog.at_level(logging.WARNING, "embertide"):
        for second in (0, 20, 40):
            schedules.look(NOW + timedelta(seconds=second))
    assert schedules.statuses[("shop", "nightly")]["failedFirings"] == 1
    warnings = [r.message for r in caplog.records if "schedules are not shown" in r.message]
    assert len(warnings) == 1
    assert len(events(server)) == 1


def test_without_rights_to_cron_jobs_there_is_one_warning(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    put_schedule(server)
    server.refuse = {("list", "cronjobs"): 403}
    schedules = looking(server)
    with caplog.at_level(logging.WARNING, "embertide"):
        schedules.look(NOW)
        schedules.look(NOW)
    assert schedules.statuses == {}
    assert len([r for r in caplog.records if "CronJob cannot be listed" in r.message]) == 1


def test_a_schedule_that_is_gone_is_forgotten(server: ApiServer) -> None:
    put_schedule(server)
    schedules = looking(server)
    schedules.look(NOW)
    server.remove("cronjobs", "shop", "nightly")
    schedules.look(NOW)
    assert schedules.statuses == {}
