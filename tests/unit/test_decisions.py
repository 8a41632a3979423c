"""The operator's decisions over the life of a job: what is seen, and all that follows, as texts."""

from __future__ import annotations

from typing import Any

import pytest

from embertide_operator.decide.earlier_versions import with_next
from embertide_operator.decide.pod_identity import lost_pods
from embertide_operator.decide.pushing import is_unsettled, other_pusher
from embertide_operator.job.events import event_object
from embertide_operator.job.status import PendingEvent
from embertide_operator.metrics.job_series import essentials, job_series
from embertide_operator.runtime.lost_pods import event_of_end
from tests.support.decisions import life, lived
from tests.support.expected import FOLDER, Expected, inputs
from tests.support.operator_world import NOW, raw_job

CASES = [
    (f"decisions/{path.name}", name)
    for path in sorted((FOLDER / "decisions").glob("*.txt"))
    for name in inputs(f"decisions/{path.name}")
]

INDEX = {"uri": "postgresql://shop@db/shop", "credentialsSecret": "index"}
PUSHED = {"after": 5, "pods": [{"role": "push", "done": {"pushed": {"names": ["products"]}}}]}


@pytest.mark.tier(1)  # all of them: each is quick
@pytest.mark.parametrize(("file", "name"), CASES)
def test_what_follows_from_what_is_seen(file: str, name: str, expected: Expected) -> None:
    case = inputs(file)[name]
    expected.check(file, name, f"{case}--\n{life(case)}", inputs(file))


def test_events_of_one_second_are_sorted_by_name_in_their_order() -> None:
    names = [
        event_object(raw_job(), PendingEvent("Normal", "StageStarted", ""), NOW)["metadata"]["name"]
        for _ in range(50)
    ]
    assert names == sorted(names)
    assert len(set(names)) == 50


def test_only_events_about_the_pod_itself_say_why_it_is_gone() -> None:
    def event(reason: str, uid: str) -> dict[str, Any]:
        return {"reason": reason, "message": "low", "involvedObject": {"uid": uid}}

    known = event("Evicted", "8a1b2c3d-0000")
    events = [event("Pulled", "8a1b2c3d-0000"), event("Evicted", "ffff"), known]
    assert event_of_end(events, "8a1b2c3d") == known
    assert event_of_end(events[:2], "8a1b2c3d") is None


def test_nothing_is_lost_between_attempts() -> None:
    world = lived("ready", {"after": 1, "pods": ["running"]}, {"after": 1, "pods": []})
    assert world.status["phase"] == "Restarting"
    assert lost_pods(world.seen) == {}


def test_the_next_version_is_added_at_the_end() -> None:
    assert with_next([], "a") == ["a"]
    assert with_next(["a"], "b") == ["a", "b"]
    many = [f"v{number:02}" for number in range(40)]
    assert with_next(many, "next") == ["v00", *many[-8:], "next"]


def test_a_push_is_unsettled_until_it_has_ended() -> None:
    assert is_unsettled(lived("pushing", push=INDEX).job)
    assert not is_unsettled(lived("pushing", PUSHED, push=INDEX).job)


def test_one_job_of_an_output_pushes_at_a_time() -> None:
    """Two pods that load the table of one version would be in each other's way."""
    busy, waiting = lived("pushing", push=INDEX).job, lived("completed", push=INDEX)
    waiting.job["metadata"] |= {"name": "later", "uid": "another"}
    waiting.reconcile(1)
    jobs = [busy, waiting.job]
    assert other_pusher(waiting.job, jobs, lambda _job: []) == "shop/products"
    assert other_pusher(busy, jobs, lambda _job: []) == ""
    elsewhere = busy | {"spec": busy["spec"] | {"output": {"uri": "s3://shop/other"}}}
    assert other_pusher(waiting.job, [elsewhere], lambda _job: []) == ""


def test_metrics_say_how_old_the_pushed_version_is() -> None:
    world = lived("pushing", PUSHED, push=INDEX)
    found = {
        sample.name.removeprefix("embertide_push_"): sample.value
        for family in job_series([essentials(world.job)]).families()
        for sample in family.samples
        if sample.name.startswith("embertide_push_")
    }
    assert (found["rows"], found["duration_seconds"], found["failures"]) == (10, 1.5, 0)
    assert found["last_success_timestamp_seconds"] > 1e9
    assert 0 < world.now.timestamp() - found["version_timestamp_seconds"] < 60
