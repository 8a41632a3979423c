"""How old an output is: the objective, the condition Fresh, and what is known of every output."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from embertide.errors import VersionPassed
from embertide.spec.freshness import Freshness, duration_seconds
from embertide.submit.wait import refuse_held
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.transport import ApiError
from embertide_operator.config.settings import Settings
from embertide_operator.job.conditions import is_outdated, objective_of, published_at
from embertide_operator.job.status import timestamp
from embertide_operator.metrics.outputs import (
    OutputRecord,
    Outputs,
    changes,
    follow,
    parse,
    without_abandoned,
)
from tests.support.operator_world import NOW, World, raw_job

HOUR, DAY = 3600.0, 86400.0
OUTPUT = "s3://shop/embeddings"


def published(**spec: Any) -> World:
    """A job that has just published, and whose pods are gone."""
    world = World(**spec)
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    world.reconcile(1, report=world.report("succeeded", 100))
    world.reconcile(1, pods=[], report=None)
    return world


def failed(name: str, hours: float) -> dict[str, Any]:
    """A job that failed so many hours after it was created."""
    job = raw_job()
    job["metadata"]["name"] = name
    at = timestamp(NOW + timedelta(hours=hours))
    conditions = [{"type": "Failed", "status": "True", "reason": "Input", "message": "row 7"}]
    return job | {"status": {"completionTime": at, "conditions": conditions}}


@pytest.mark.parametrize(
    ("text", "seconds"), [("26h", 93600), ("90m", 5400), ("45s", 45), ("2d", 172800)]
)
def test_durations(text: str, seconds: int) -> None:
    assert duration_seconds(text) == seconds
    assert objective_of(raw_job(freshness={"maxAge": text})) == seconds


@pytest.mark.parametrize("text", ["26h\n", "0h", "1.5h", "26", "h", "-1h", "123456789s", "26 h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValidationError, match="must be a whole number above 0 and a unit"):
        Freshness.model_validate({"maxAge": text})


@pytest.mark.parametrize("spec", [{}, {"freshness": None}, {"freshness": {"maxAge": "soon"}}])
def test_without_an_objective_there_is_no_condition(spec: dict[str, Any]) -> None:
    assert objective_of(raw_job(**spec)) is None


def test_the_latest_success_of_any_job_counts() -> None:
    """An older job of the same output turns fresh again with the next one's version."""
    world = published(freshness={"maxAge": "1h"})
    world.reconcile(2 * HOUR)
    assert world.condition("Fresh") == ("False", "TooOld")
    newer = timestamp(world.now)
    assert is_outdated(world.job, newer, world.now)
    world.reconcile(1, last_success=newer)
    assert world.condition("Fresh") == ("True", "WithinMaxAge")
    assert not is_outdated(world.job, newer, world.now)


def test_a_long_location_is_not_set_anew_each_time() -> None:
    world = published(freshness={"maxAge": "1h"}, output={"uri": "s3://shop/" + "x" * 2000})
    assert not is_outdated(world.job, "", world.now)


def test_a_version_that_is_not_current_refreshes_nothing() -> None:
    world = World(freshness={"maxAge": "1h"})
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    report = world.report("succeeded", 100)
    behind = report.output.model_copy(update={"current": False, "not_current": "V is current"})
    world.reconcile(1, report=report.model_copy(update={"output": behind}))
    assert world.condition("Published") == ("True", "NotCurrent")
    message = next(c for c in world.status["conditions"] if c["type"] == "Published")["message"]
    assert message.endswith("; it is not current: V is current")
    assert world.events[-2:] == ["NotCurrent", "Completed"]
    with pytest.raises(VersionPassed, match="it is not current: V is current"):
        refuse_held("products", world.status)
    assert world.condition("Fresh") == ("False", "NeverPublished")
    assert published_at(world.job) == ""


def test_records_follow_jobs_and_survive_them() -> None:
    job = published(freshness={"maxAge": "26h"}).job
    records = follow({}, [job])
    (record,) = records.values()
    assert record.key == ("shop", OUTPUT)
    assert (record.job, record.max_age) == ("products", 93600)
    assert record.version == job["status"]["output"]["version"]
    assert record.last_success == job["status"]["completionTime"]
    assert follow(records, [job]) == records
    assert follow(records, []) == records, "a deleted job takes nothing along"
    again = follow(records, [failed("next", 24)])
    assert again["shop", OUTPUT].last_success == record.last_success
    assert again["shop", OUTPUT].last_failure == timestamp(NOW + timedelta(hours=24))


def test_the_newest_job_says_the_objective() -> None:
    old, new = raw_job(freshness={"maxAge": "1h"}), raw_job(freshness={"maxAge": "2h"})
    new["metadata"] |= {"name": "new", "creationTimestamp": "2026-11-22T11:59:00Z"}
    for jobs in ([old, new], [new, old]):
        (record,) = follow({}, jobs).values()
        assert record.max_age == 7200
        assert (record.first_job, record.last_job) == (
            "2026-11-21T11:59:00Z",
            "2026-11-22T11:59:00Z",
        )


def test_of_jobs_created_in_the_same_second_one_is_the_newest() -> None:
    """Else their records would be written in turn, again and again."""
    jobs = [raw_job(freshness={"maxAge": f"{hours}h"}) for hours in (1, 2)]
    jobs[1]["metadata"]["name"] = "second"
    records = follow({}, jobs)
    assert all(follow(records, [job]) == records for job in jobs)


def test_abandoned_outputs_are_forgotten() -> None:
    job = published(freshness={"maxAge": "26h"}).job
    records = follow({}, [job])

    def kept(jobs: list[dict[str, Any]], days: float, retention_days: float) -> bool:
        now = NOW + timedelta(days=days)
        return bool(without_abandoned(records, jobs, now, retention_days * DAY))

    assert kept([], 13, 14)
    assert not kept([], 15, 14)
    assert kept([job], 15, 14), "as long as it has a job"
    assert kept([], 3, 1), "three times the objective"
    assert not kept([], 4, 1)


def test_records_are_written_as_they_are_read() -> None:
    records = follow({}, [published(freshness={"maxAge": "26h"}).job])
    written = changes({}, records)
    data = {key: text for key, text in written.items() if text is not None}
    assert parse(data) == records
    assert changes(records, records) == {}
    assert changes(records, {}) == dict.fromkeys(data)
    assert parse(data | {"note": "by hand", "old": '{"namespace": "shop"}'}) == records


class OneConfigMap(KubernetesApi):
    """An API server that has one ConfigMap, or none."""

    def __init__(self, data: dict[str, str] | None, code: int = 0) -> None:
        self.data, self.code = data, code

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert (kind, namespace, name) == ("ConfigMap", "embertide", "outputs")
        if self.code:
            raise ApiError(self.code, "no")
        return None if self.data is None else {"data": self.data}

    def patch_data(self, namespace: str, name: str, data: dict[str, str | None]) -> None:
        if self.code or self.data is None:
            raise ApiError(self.code or 404, "no")
        merged = self.data | data
        self.data = {key: text for key, text in merged.items() if text is not None}


SETTINGS = Settings(own_namespace="embertide", outputs_config_map="outputs")


def test_another_operator_goes_on_where_one_ended() -> None:
    api, job = OneConfigMap({}), published().job
    first = Outputs(api, SETTINGS)
    first.note(job)
    second = Outputs(api, SETTINGS)
    second.note_all([], NOW + timedelta(days=1))
    assert second.records == first.records
    assert second.last_success(job) == job["status"]["completionTime"]
    second.note_all([], NOW + timedelta(days=15))
    assert (second.records, api.data) == ({}, {})


def test_a_job_does_not_wait_for_a_missing_config_map() -> None:
    for api in (OneConfigMap(None), OneConfigMap({}, 403)):
        outputs, job = Outputs(api, SETTINGS), published().job
        outputs.note(job)
        assert outputs.last_success(job) == job["status"]["completionTime"]


@pytest.mark.parametrize("code", [0, 403])
def test_records_are_written_once_the_config_map_can_be(code: int) -> None:
    """As after somebody deleted it, or its role, and the chart brought it back, empty."""
    api, job = OneConfigMap({}), published().job
    outputs = Outputs(api, SETTINGS)
    outputs.note(job)
    api.data, api.code = (None if code == 0 else api.data), code
    outputs.note(failed("next", 24))
    api.data, api.code = ({} if code == 0 else api.data), 0
    outputs.note_all([job], NOW)
    assert parse(api.data or {}) == outputs.records
    assert outputs.records["shop", OUTPUT].last_failure


def test_a_refusal_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    outputs = Outputs(OneConfigMap({}, 403), SETTINGS)
    for hours in (1, 2, 3):
        outputs.note(failed("next", hours))
    assert [record.getMessage().count("cannot be written") for record in caplog.records] == [0, 1]


def test_what_was_not_kept_is_kept_by_the_next_try() -> None:
    """A job must not be deleted before its success is on record."""
    api, job = OneConfigMap({}, 503), published().job
    outputs = Outputs(api, SETTINGS)
    for _ in range(2):
        with pytest.raises(ApiError):
            outputs.note(job)
    api.code = 0
    outputs.note(job)
    assert len(api.data or {}) == 1


def test_records_have_short_keys() -> None:
    record = OutputRecord("shop", "s3://" + "x" * 2000, "t", "t", "products")
    assert record.data_key.isalnum()
    assert len(record.data_key) == 32
