"""A job whose inputs are late: who looks, how often, what the status says, and how it ends."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from embertide.spec.reports import Ending, InputsReport, MissingInput
from embertide_operator.decide.decision import Decision
from embertide_operator.decide.validate import read_job
from embertide_operator.job.observe import waits_for_inputs
from embertide_operator.job.status import parse_time
from embertide_operator.pods.children import config_map
from embertide_operator.runtime.admission import Admission, Limits, Verdict
from tests.support.operator_world import NOW, SETTINGS, UID, World, raw_job

MARKER = "s3://shop/edges/_SUCCESS is not there"


def given_input(**ready: Any) -> dict[str, Any]:
    """spec.input whose edges wait."""
    found: dict[str, Any] = copy.deepcopy(raw_job()["spec"]["input"])
    found["edges"][0]["ready"] = ready
    return found


def waiting(**ready: Any) -> World:
    return World(input=given_input(**({"object": "_SUCCESS", "within": "2h"} | ready)))


def missing(why: str = MARKER, seconds: int = 7200, field: str = "edges[0]") -> InputsReport:
    return InputsReport.of([MissingInput(field=field, why=why, within_seconds=seconds)])


READY = InputsReport.of([])


def looker(state: dict[str, Any], **status: Any) -> dict[str, Any]:
    """The pod that looks."""
    meta = {
        "name": "products-inputs",
        "uid": "look-1",
        "labels": {"embertide.dev/job-uid": UID, "embertide.dev/role": "inputs"},
        "ownerReferences": [],
    }
    status = {
        "phase": "Running",
        "containerStatuses": [{"name": "worker", "state": state}],
    } | status
    return {"metadata": meta, "status": status}


def looked(report: InputsReport | Ending, code: int = 0) -> dict[str, Any]:
    return looker({"terminated": {"exitCode": code, "message": report.to_text()}})


def pods_of(decision: Decision) -> list[dict[str, Any]]:
    return [child for child in decision.apply if child["kind"] == "Pod"]


def look(world: World, report: InputsReport | Ending, code: int = 0) -> Decision:
    """From when the next look is due to what its pod says."""
    due = world.status["inputs"].get("nextLookTime")
    seconds = max(0.0, (parse_time(due) - world.now).total_seconds()) if due else 0.0
    decision = world.reconcile(seconds, pods=[])
    assert len(pods_of(decision)) == 1, world.status
    return world.reconcile(3, pods=[looked(report, code)])


def first_look(report: InputsReport | Ending | None = None, **ready: Any) -> World:
    world = waiting(**ready)
    assert len(pods_of(world.reconcile())) == 1
    world.reconcile(3, pods=[looked(report or missing())])
    return world


def test_a_job_that_waits_for_nothing_starts_at_once() -> None:
    world = World()
    world.reconcile()
    assert world.status["phase"] == "Starting"
    assert "inputs" not in world.status


def test_the_first_look() -> None:
    world = waiting()
    decision = world.reconcile()
    (pod,) = pods_of(decision)
    assert [child["kind"] for child in decision.apply] == ["ConfigMap", "Pod"]
    assert pod["metadata"]["name"] == "products-inputs"
    assert pod["spec"]["containers"][0]["args"] == ["look"]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["activeDeadlineSeconds"] == 300
    assert (world.status["phase"], world.status["stage"]) == ("Waiting", "InputsNotReady")
    assert world.status["attempt"] == 0
    assert "startTime" not in world.status
    job = read_job(world.job, SETTINGS)
    assert not isinstance(job, list)
    assert '"ready":{"object":"_SUCCESS"}' in config_map(job, UID)["data"]["job.json"]


def test_what_is_missing_and_since_when() -> None:
    world = waiting()
    world.reconcile()
    decision = world.reconcile(3, pods=[looked(missing())])
    assert [(d.kind, d.name) for d in decision.delete] == [("Pod", "products-inputs")]
    inputs = world.status["inputs"]
    assert inputs["missing"] == f"edges[0]: {MARKER} (since 2026-11-21 12:00:00Z)"
    assert inputs["fields"] == ["edges[0]"]
    assert world.condition("InputsReady") == ("False", "InputsNotReady")
    assert world.condition("Progressing") == ("False", "InputsNotReady")
    assert world.condition("Ready") == ("False", "Waiting")
    assert world.events.count("InputsNotReady") == 1
    # Nothing more until the next look, and no second Event for the same.
    decision = world.reconcile(1, pods=[])
    assert (decision.apply, decision.delete) == ([], [])
    assert 10 <= (decision.requeue_after or 0) <= 15
    look(world, missing())
    assert world.events.count("InputsNotReady") == 1
    look(world, missing(field="nodes[0].features"))
    assert world.events.count("InputsNotReady") == 2


def test_few_looks() -> None:
    world = first_look()
    while world.now < NOW + timedelta(seconds=7000):
        look(world, missing())
    assert 25 < world.status["inputs"]["looks"] < 45
    assert world.status["phase"] == "Waiting"


def test_ready_and_started() -> None:
    world = first_look()
    decision = look(world, READY)
    assert [d.name for d in decision.delete] == ["products-inputs"]
    assert (world.status["phase"], decision.requeue_after) == ("Pending", 0.0)
    assert world.condition("InputsReady") == ("True", "InputsReady")
    assert "missing" not in world.status["inputs"]
    # The pod is gone before workers start.
    world.reconcile(1, pods=[looked(READY)])
    assert world.status["attempt"] == 0
    world.reconcile(1, pods=[])
    assert (world.status["phase"], world.status["attempt"]) == ("Starting", 1)
    assert world.events[-1] == "AttemptStarted"


def test_the_end_of_patience() -> None:
    world = first_look(within="10m")
    for _ in range(40):
        if world.status["phase"] != "Waiting":
            break
        look(world, missing(seconds=600))
    assert world.status["phase"] == "Failed"
    assert 600 <= (world.now - NOW).total_seconds() < 610
    assert world.condition("Failed") == ("True", "InputsNotReady")
    message = world.status["lastFailure"]["message"]
    assert message.startswith(
        f"inputs were not ready within 600 s (ready.within): edges[0]: {MARKER}"
    )
    assert world.status["attempt"] == 0
    assert world.events[-1] == "Failed"


def test_what_may_be_missing_is_waited_for_and_let_go() -> None:
    """An optional input holds the job until its time is over; another one still counts."""
    optional = MissingInput(field="edges[0]", why=MARKER, within_seconds=600, optional=True)
    world = first_look(InputsReport.of([optional]), within="10m")
    for _ in range(40):
        if world.status["phase"] != "Waiting":
            break
        look(world, InputsReport.of([optional]))
    assert world.status["phase"] == "Pending"
    assert 600 <= (world.now - NOW).total_seconds() < 620
    assert world.condition("InputsReady") == ("True", "InputsReady")
    world = first_look(InputsReport.of([optional]), within="10m")
    both = InputsReport.of([optional, *missing(seconds=900, field="edges[1]").missing])
    for _ in range(40):
        if world.status["phase"] != "Waiting":
            break
        look(world, both)
    assert world.status["phase"] == "Failed"
    assert "within 900 s (ready.within): edges[1]: " in world.status["lastFailure"]["message"]


def test_a_job_that_has_to_wait_does_not_look() -> None:
    world = waiting()
    decision = world.reconcile(competing_job="shop/older is publishing to s3://shop/x")
    assert pods_of(decision) == []
    assert (world.status["phase"], world.status["stage"]) == ("Pending", "OutputInUse")
    decision = world.reconcile(60, competing_job="")
    assert len(pods_of(decision)) == 1
    # Its time begins with the first look.
    assert world.status["inputs"]["since"] == "2026-11-21T12:01:00Z"


def test_what_ends_a_job_at_once() -> None:
    world = waiting()
    world.reconcile()
    denied = Ending(reason="AccessDenied", message="no key", exit_code=5, permanent=True)
    world.reconcile(3, pods=[looked(denied, 5)])
    assert world.condition("Failed") == ("True", "AccessDenied")
    assert world.status["lastFailure"]["exitCode"] == 5


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (
            looked(Ending(reason="StoreUnavailable", message="no answer", exit_code=5), 5),
            "could not be looked at: no answer",
        ),
        (looker({"terminated": {"exitCode": 137}}), "was killed by signal 9"),
        (looker({"terminated": {"exitCode": 0, "message": "{"}}), "could not be looked at"),
        (looker({}, phase="Failed", message="Pod was active too long"), "was active too long"),
    ],
)
def test_a_look_that_sees_nothing_is_taken_again(pod: dict[str, Any], why: str) -> None:
    world = waiting()
    world.reconcile()
    world.reconcile(3, pods=[pod])
    assert world.status["phase"] == "Waiting"
    assert why in world.status["inputs"]["missing"]
    look(world, READY)
    assert world.status["inputs"]["readyTime"]


def test_a_pod_that_cannot_start() -> None:
    world = waiting()
    world.reconcile()
    stuck = looker({"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}})
    world.reconcile(3, pods=[stuck])
    assert world.status["stage"] == "CreateContainerConfigError"
    assert "the look at the inputs cannot start: no secret" in world.status["obstacle"]["message"]
    world.reconcile(3, pods=[looked(missing())])
    assert world.status["stage"] == "InputsNotReady"
    assert all(c["type"] != "WorkersReady" for c in world.status["conditions"])
    world.reconcile(60, pods=[])
    world.reconcile(3, pods=[stuck])
    world.reconcile(SETTINGS.mistake_seconds + 1, pods=[stuck])
    assert world.condition("Failed") == ("True", "CreateContainerConfigError")


def test_a_pod_without_a_node_ends_with_patience() -> None:
    world = waiting(within="10m")
    world.reconcile()
    pending = looker({}, phase="Pending")
    pending["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
    ]
    world.reconcile(3, pods=[pending])
    assert world.status["stage"] == "Unschedulable"
    world.reconcile(598, pods=[pending])
    assert world.condition("Failed") == ("True", "InputsNotReady")
    assert "full" in world.status["lastFailure"]["message"]


def test_suspended_and_resumed() -> None:
    world = first_look()
    world.job["spec"]["suspend"] = True
    world.reconcile(5, pods=[])
    assert world.status["phase"] == "Suspended"
    world.job["spec"]["suspend"] = False
    decision = world.reconcile(3600)
    assert len(pods_of(decision)) == 1
    assert world.status["inputs"]["since"] == "2026-11-21T13:00:08Z"


def test_a_retry_does_not_look_again() -> None:
    world = first_look(READY)
    world.reconcile(1, pods=[])
    assert world.status["attempt"] == 1
    failed = world.ended(Ending(reason="WorkerFailed", message="gone", exit_code=8, rank=0))
    world.reconcile(3, pods=world.pods(failed, world.running()))
    decision = world.reconcile(30, pods=[])
    assert world.status["attempt"] == 2
    assert pods_of(decision) == []


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
