"""A published version is success, whatever else is true of the job, and however it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from embertide.spec.reports import Ending
from embertide.spec.status import JobStatus
from embertide_operator.job.events import event_object
from embertide_operator.job.status import PendingEvent
from tests.support.operator_world import NOW, World

CRASH = Ending(reason="WorkerFailed", message="worker 1 died", exit_code=8, rank=1)
BAD_ROW = Ending(reason="Input", message="row 7", exit_code=3, rank=1, permanent=True)
LIMITS = {"activeDeadlineSeconds": 60, "progressDeadlineSeconds": 60, "backoffLimit": 0}

Change = Callable[[World], dict[str, Any]]
"""Changes the job, and returns what is seen differently."""


def running(**spec: Any) -> World:
    """A job whose two workers run, two seconds after it has started."""
    world = World(**LIMITS | spec)
    world.reconcile()
    world.reconcile(1, pods=world.pods(world.running(), world.running()))
    world.reconcile(1, report=world.report())
    return world


def nothing(world: World) -> dict[str, Any]:
    return {}


def spec_changed(**fields: Any) -> Change:
    def change(world: World) -> dict[str, Any]:
        world.job["spec"] |= fields
        world.job["metadata"]["generation"] += 1
        return {}

    return change


def workers_ended(ending: Ending) -> Change:
    """Worker 1 ends with this, and rank 0 stays."""

    def change(world: World) -> dict[str, Any]:
        return {"pods": [*world.seen.pods[:1], *world.pods({}, world.ended(ending))[1:]]}

    return change


def pod_deleted(world: World) -> dict[str, Any]:
    world.seen.pods[1]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    return {}


def name_conflict(world: World) -> dict[str, Any]:
    return {"name_conflicts": ["Service/products"]}


def competing(world: World) -> dict[str, Any]:
    return {"competing_job": "shop/first is publishing to s3://shop/embeddings"}


def old_pod(world: World) -> dict[str, Any]:
    """A pod of an earlier attempt is still there."""
    (pod,) = world.pods(world.running())
    pod["metadata"]["labels"]["embertide.dev/attempt"] = "0"
    pod["metadata"]["name"] = "products-1"
    return {"pods": [world.seen.pods[0], pod]}


def pods_gone(world: World) -> dict[str, Any]:
    return {"pods": world.seen.pods[:1], "children": {}}


# What is true beside -> how many seconds after the last look, and what changed meanwhile.
CASES: dict[str, tuple[float, Change]] = {
    "nothing": (1, nothing),
    "the active deadline is over": (90, nothing),
    "no progress was seen for too long": (61, nothing),
    "suspended": (1, spec_changed(suspend=True)),
    "suspended and too late": (90, spec_changed(suspend=True)),
    "the spec changed": (1, spec_changed(workers={"grid": {"graph": 3}, "image": "other:2"})),
    "the spec is wrong": (1, spec_changed(workers={"podTemplate": {"spec": 1}})),
    "the name is another's": (1, name_conflict),
    "a job competes": (1, competing),
    "a worker crashed, backoffLimit is 0": (1, workers_ended(CRASH)),
    "a failure that is not retried": (1, workers_ended(BAD_ROW)),
    "a pod was disrupted": (1, pod_deleted),
    "an old pod is left": (1, old_pod),
    "the children are gone": (1, pods_gone),
}  # fmt: skip


@pytest.mark.parametrize("channel", ["status", "container"])
@pytest.mark.parametrize("case", CASES)
def test_published_is_complete(case: str, channel: str) -> None:
    seconds, change = CASES[case]
    world = running()
    if channel == "status":
        seen = {"report": world.report("succeeded", 100)}
        world.reconcile(seconds, **change(world) | seen)
    else:
        pods = world.pods(world.published(held=False), world.running())
        world.seen.pods[:] = pods
        world.reconcile(seconds, **{"report": None} | change(world))
    assert world.status["phase"] == "Succeeded"
    assert world.condition("Complete") == ("True", "Published")
    assert world.condition("Published") == ("True", "Published")
    assert world.condition("Ready") == ("True", "Complete")
    assert world.status["output"]["version"] == world.status["versions"][-1]
    assert world.status["attempt"] == 1
    assert {"Failed", "Stalled"}.isdisjoint(c["type"] for c in world.status["conditions"])
    assert world.events[-2:] == ["Published", "Completed"]
    assert JobStatus.model_validate(world.status).to_object() == world.status


@pytest.mark.parametrize("ending", [CRASH, BAD_ROW])
def test_an_attempt_that_failed_and_published_while_it_was_stopped(ending: Ending) -> None:
    """Rank 0 may be past the last look when its peers are gone; its pods are being stopped."""
    world = running(backoffLimit=1)
    world.reconcile(1, pods=world.pods(world.running(), world.ended(ending)))
    assert world.status["phase"] in ("Restarting", "Failed")
    pods = world.pods(world.published(held=False))
    pods[0]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:40Z"
    world.reconcile(1, pods=pods, report=None)
    assert world.condition("Complete") == ("True", "Published")
    assert "Failed" not in [c["type"] for c in world.status["conditions"]]
    world.reconcile(60, pods=[])
    assert (world.status["phase"], world.status["attempt"]) == ("Succeeded", 1)


def test_the_report_of_the_run_is_waited_for_a_moment() -> None:
    """The operator was away, and rank 0's container was started again: it tells the rest."""
    world = running()
    pods = world.pods(world.published(), world.running())
    assert world.reconcile(90, pods=pods, report=None).scale_to_zero is None
    assert world.condition("Published") == ("True", "Published")
    assert world.status["phase"] != "Succeeded"
    world.reconcile(1, report=world.report("succeeded", 100))
    assert world.condition("Complete") == ("True", "Published")
    assert world.events.count("Published") == 1


def test_the_container_alone_is_enough() -> None:
    world = running()
    pods = world.pods(world.published(), world.running())
    world.reconcile(1, pods=pods, report=None)
    world.reconcile(6, report=None)
    assert world.condition("Complete") == ("True", "Published")
    assert "report" not in world.status
    assert world.status["output"]["rows"] == 10


def test_a_version_that_was_seen_once_is_complete_without_its_pods() -> None:
    world = running()
    world.reconcile(1, pods=world.pods(world.published(), world.running()), report=None)
    world.reconcile(1, pods=[], report=None)
    assert world.condition("Complete") == ("True", "Published")


@pytest.mark.parametrize(
    "other", [{"job_uid": "another"}, {"attempt": 7}, {"exit": 1}, {"label": "0"}]
)
def test_a_message_that_is_not_of_this_attempt_says_nothing(other: dict[str, Any]) -> None:
    world = running()
    said = {key: other[key] for key in ("job_uid", "attempt") if key in other}
    pods = world.pods(world.published(held=False, **said), world.running())
    if "exit" in other:
        pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = 1
    if "label" in other:
        pods[0]["metadata"]["labels"]["embertide.dev/attempt"] = other["label"]
    world.reconcile(1, pods=pods, report=None)
    assert "Published" not in [c["type"] for c in world.status["conditions"]]


def test_a_message_without_the_uri_stands_for_the_jobs_output() -> None:
    world = running()
    world.reconcile(1, pods=world.pods(world.published(held=False, uri="")), report=None)
    version = world.status["versions"][-1]
    assert world.status["output"]["uri"] == f"s3://shop/embeddings/versions/{version}"


def test_a_container_that_published_is_no_failure_of_the_attempt() -> None:
    """Not even where the message is another's: the attempt is judged by its own workers."""
    world = running()
    pods = world.pods(world.published(attempt=7), world.running())
    world.reconcile(1, pods=pods, report=world.report())
    assert (world.status["phase"], world.status["failures"]) == ("Running", 0)


def test_the_failure_that_is_shown_goes_with_success() -> None:
    world = running(backoffLimit=1)
    crash = CRASH.model_copy(update={"log": "the last line"})
    world.reconcile(1, pods=world.pods(world.running(), world.ended(crash)))
    assert world.status["failure"] == "WorkerFailed: worker 1 died"
    for _ in range(20):
        world.reconcile(2, pods=[], report=None)
    world.reconcile(1, pods=world.pods(world.running(), world.running()))
    assert (world.status["attempt"], world.status["failure"]) == (2, "WorkerFailed: worker 1 died")
    world.reconcile(1, report=world.report("succeeded", 100))
    assert world.status["phase"] == "Succeeded"
    assert {"failure", "failureLog"}.isdisjoint(world.status)
    assert world.status["lastFailure"]["message"] == "worker 1 died"


def test_the_failure_that_is_shown_is_why_the_job_failed() -> None:
    world = running(backoffLimit=0)
    world.reconcile(1, pods=world.pods(world.running(), world.ended(CRASH)))
    assert world.status["failure"] == "WorkerFailed: worker 1 died"
    late = running(backoffLimit=3)
    late.reconcile(1, pods=late.pods(late.running(), late.ended(CRASH)))
    late.reconcile(90, pods=[], report=None)
    assert late.status["failure"] == (
        "DeadlineExceeded: the job exceeded spec.activeDeadlineSeconds, 60 s"
    )


def test_no_stage_starts_after_the_end() -> None:
    """Events have times in seconds, so those of one second are sorted by name."""
    world = running()
    world.reconcile(1, report=world.report("succeeded", 100, stage="publish"))
    assert world.events[-2:] == ["Published", "Completed"]
    assert world.status["progress"]["stage"] == world.status["stage"] == "publish"
    names = [
        event_object(world.job, PendingEvent("Normal", "StageStarted", ""), NOW)["metadata"]["name"]
        for _ in range(50)
    ]
    assert names == sorted(names)
    assert len(set(names)) == 50


@pytest.mark.parametrize("channel", ["status", "container"])
def test_old_versions_that_stay_are_a_condition(channel: str) -> None:
    problem = "version x of s3://shop/embeddings is published, but versions beyond the newest 3 ..."
    world = running()
    if channel == "status":
        report = world.report("succeeded", 100)
        output = report.output.model_copy(update={"not_removed": problem})
        world.reconcile(1, report=report.model_copy(update={"output": output}))
    else:
        world.reconcile(
            90, pods=world.pods(world.published(held=False, not_removed=problem)), report=None
        )
    assert world.status["phase"] == "Succeeded"
    assert world.condition("Pruned") == ("False", "RemovalFailed")
    assert world.condition("Ready") == ("True", "Complete")
    assert "RemovalFailed" in world.events
