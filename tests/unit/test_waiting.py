"""Jobs whose inputs are late, beside others: their room, their output, their place in the line."""

from __future__ import annotations

import copy
from typing import Any

from embertide_operator.decide.validate import read_job
from embertide_operator.job.observe import waits_for_inputs
from embertide_operator.pods.children import config_map
from embertide_operator.runtime.admission import Admission, Verdict
from embertide_operator.runtime.capacity import Limits
from tests.support.operator_world import SETTINGS, UID, raw_job


def given_input(**ready: Any) -> dict[str, Any]:
    """spec.input whose edges wait."""
    found: dict[str, Any] = copy.deepcopy(raw_job()["spec"]["input"])
    found["edges"][0]["ready"] = ready
    return found


def job(
    name: str, second: int, status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    found = raw_job(**spec)
    found["metadata"] |= {
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": f"2026-11-21T11:00:{second:02}Z",
    }
    return found | {"status": status or {}}


LATE = {"phase": "Waiting", "inputs": {"since": "2026-11-21T12:00:00Z"}}
IN_TIME = {"phase": "Pending", "inputs": {"readyTime": "2026-11-21T12:00:00Z"}}


def test_pods_read_what_to_wait_for() -> None:
    spec = read_job(raw_job(input=given_input(object="_SUCCESS")), SETTINGS)
    assert not isinstance(spec, list)
    assert '"ready":{"object":"_SUCCESS"}' in config_map(spec, UID)["data"]["job.json"]


def test_which_jobs_wait() -> None:
    assert waits_for_inputs(job("a", 1, input=given_input()))
    assert not waits_for_inputs(job("a", 1, IN_TIME, input=given_input()))
    assert not waits_for_inputs(job("a", 1))
    features = given_input()
    features["nodes"][0]["features"]["ready"] = features["edges"][0].pop("ready")
    assert waits_for_inputs(job("a", 1, input=features))


def test_a_waiting_job_takes_no_room() -> None:
    admission = Admission(Limits(total=1))
    late = job("late", 1, LATE, input=given_input(), output={"uri": "s3://shop/late"})
    other = job("other", 2, output={"uri": "s3://shop/other"})
    for item in (late, other):
        admission.note(item)
    assert admission.ask(late) == Verdict()
    assert admission.ask(other) == Verdict()
    assert admission.waiting() == 1
    # Once its inputs are ready it stands in the line, as the older one before others.
    ready = job("late", 1, IN_TIME, input=given_input(), output={"uri": "s3://shop/late"})
    admission.note(ready)
    assert "at most 1 jobs run at once" in admission.ask(ready).queued


def test_a_younger_job_does_not_overtake_to_the_output() -> None:
    admission = Admission(Limits(total=5))
    late = job("late", 1, LATE, input=given_input())
    next_day = job("next", 2)
    for item in (late, next_day):
        admission.note(item)
    assert admission.ask(next_day).competing.startswith("shop/late waits for its inputs")
    # The end of the older one wakes the younger one.
    failed = LATE | {"phase": "Failed", "conditions": [{"type": "Failed", "status": "True"}]}
    woken = admission.note(job("late", 1, failed, input=given_input()))
    assert ("shop", "next") in woken
    assert admission.ask(next_day) == Verdict()


def test_a_waiting_job_waits_for_an_older_one_of_its_output() -> None:
    admission = Admission(Limits())
    running = job("first", 1, {"phase": "Running"})
    late = job("late", 2, input=given_input())
    for item in (running, late):
        admission.note(item)
    assert admission.ask(late).competing.startswith("shop/first is publishing")
