"""Deadlines: the operator's own clock, without the time in a queue, and never by blindness."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from embertide.spec.status import JobStatus
from tests.support.operator_world import World

MINUTES_AHEAD = (-10, 0, 10)


def running(**spec: Any) -> World:
    world = World(**spec)
    world.reconcile()
    world.reconcile(1, pods=world.pods(world.running(), world.running()))
    return world


def gated(world: World) -> list[dict[str, Any]]:
    """Pods that a queue holds."""
    pods = world.pods({}, {})
    why = "Scheduling is blocked due to non-empty scheduling gates"
    for pod in pods:
        pod["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": why}
        ]
    return pods


@pytest.mark.parametrize("minutes", MINUTES_AHEAD)
def test_workers_clocks_change_nothing(minutes: int) -> None:
    """Ten minutes of difference would end a job that goes on, or keep one that does not."""
    world = running(progressDeadlineSeconds=60, backoffLimit=0)
    ahead = timedelta(minutes=minutes)
    for percent in range(10, 40):
        world.reconcile(20, report=world.report(percent=percent, at=world.now + ahead))
        assert world.status["phase"] == "Running"
    seen = world.status["progress"]["lastUpdateTime"]
    assert seen == world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    stuck = world.report(percent=39, at=world.now + ahead)
    world.reconcile(59, report=stuck)
    assert world.status["phase"] == "Running"
    world.reconcile(2, report=stuck)
    assert world.status["lastFailure"]["reason"] == "ProgressDeadlineExceeded"


def test_a_worker_that_repeats_itself_with_a_new_time_is_stuck() -> None:
    world = running(progressDeadlineSeconds=60, backoffLimit=0)
    for _ in range(5):
        world.reconcile(20, report=world.report(at=world.now))
    assert world.status["lastFailure"]["reason"] == "ProgressDeadlineExceeded"


def test_time_in_a_queue_counts_for_no_deadline() -> None:
    world = World(preRunningDeadlineSeconds=30, activeDeadlineSeconds=40)
    world.reconcile()
    for _ in range(10):
        world.reconcile(60, pods=gated(world))
        assert (world.status["phase"], world.status["stage"]) == ("Starting", "SchedulingGated")
    assert world.events.count("SchedulingGated") == 1
    assert JobStatus.model_validate(world.status).to_object() == world.status
    world.reconcile(10, pods=world.pods({}, {}))
    assert world.status["queued"] == {"seconds": 610, "attemptSeconds": 610}
    world.reconcile(10, pods=world.pods(world.running(), world.running()))
    world.reconcile(1, report=world.report())
    assert world.status["phase"] == "Running"
    world.reconcile(15, report=world.report(percent=50))
    assert world.status["phase"] == "Running"
    world.reconcile(20, report=world.report(percent=60))
    assert world.condition("Failed") == ("True", "DeadlineExceeded")


def test_after_the_queue_the_deadline_counts_on() -> None:
    world = World(preRunningDeadlineSeconds=30)
    world.reconcile()
    world.reconcile(20, pods=gated(world))
    world.reconcile(500, pods=world.pods({}, {}))
    world.reconcile(29)
    assert world.status["phase"] == "Starting"
    world.reconcile(2)
    assert world.condition("Failed") == ("True", "PreRunningDeadlineExceeded")


def test_a_worker_that_waits_for_another_is_not_running() -> None:
    world = World(preRunningDeadlineSeconds=30)
    world.reconcile()
    for _ in range(2):
        (first, second) = world.pods(world.running(), {})
        no_room = {"status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        second["status"]["conditions"] = [{"type": "PodScheduled", **no_room}]
        waits = world.report(stage="start", percent=0)
        world.reconcile(14, pods=[first, second], report=waits)
        assert (world.status["phase"], world.status["stage"]) == ("Starting", "Unschedulable")
    world.reconcile(3)
    assert world.condition("Failed") == ("True", "PreRunningDeadlineExceeded")


def test_the_next_attempt_has_its_own_time_in_the_queue() -> None:
    world = World(preRunningDeadlineSeconds=30)
    world.reconcile()
    world.reconcile(1, pods=gated(world))
    world.reconcile(100, pods=world.pods({}, {}))
    world.reconcile(1, pods=world.pods(world.running(), world.ended(None, exitCode=1)))
    world.reconcile(1, pods=[])
    world.reconcile(10, pods=[])
    assert world.status["attempt"] == 2
    assert world.status["queued"] == {"seconds": 101, "attemptSeconds": 0}


def test_the_planner_in_a_queue_is_not_late() -> None:
    world = World(workers={"grid": "auto"}, preRunningDeadlineSeconds=30)
    world.reconcile()
    (pod, _) = gated(world)
    pod["metadata"]["labels"]["embertide.dev/role"] = "planner"
    world.reconcile(1, pods=[pod])
    world.reconcile(600, pods=[pod])
    assert world.status["phase"] == "Planning"


def test_a_job_that_waits_again_is_not_late() -> None:
    """It had started, its spec was refused meanwhile, and another one runs now."""
    world = running(activeDeadlineSeconds=60)
    world.reconcile(1, name_conflicts=["Service/products"], pods=[])
    world.reconcile(1, name_conflicts=[], competing_job="shop/first is publishing to s3://shop/x")
    world.reconcile(500)
    assert "Failed" not in [c["type"] for c in world.status["conditions"]]


BLIND = {"unreachable_seconds": 30.0, "unreachable_why": "connection timed out", "report": None}


def test_a_worker_that_cannot_be_asked_is_told() -> None:
    world = running()
    short = BLIND | {"unreachable_seconds": 5.0}
    assert world.reconcile(5, **short).draft.events == []
    decision = world.reconcile(25, **BLIND)
    (event,) = decision.draft.events
    assert (event.kind, event.reason) == ("Warning", "WorkerUnreachable")
    for words in ("connection timed out", "port 8080", "NetworkPolicy", "mesh"):
        assert words in event.message
    assert world.condition("Progressing") == ("Unknown", "WorkerUnreachable")
    assert world.status["stage"] == "WorkerUnreachable"
    assert world.reconcile(25, **BLIND).draft.events == []


def test_being_blind_is_not_being_stuck() -> None:
    world = running(progressDeadlineSeconds=60, backoffLimit=0)
    world.reconcile(2, report=world.report())
    for _ in range(20):
        world.reconcile(30, **BLIND)
    assert world.condition("Progressing") == ("Unknown", "WorkerUnreachable")
    answer = {"unreachable_seconds": 0.0, "unreachable_why": "", "report": world.report()}
    world.reconcile(5, **answer)
    assert world.condition("Progressing") == ("True", "Running")
    assert world.status["stage"] == "infer"
    world.reconcile(59, **answer)
    assert world.status["phase"] == "Running"
    world.reconcile(5, **answer)
    assert world.status["lastFailure"]["reason"] == "ProgressDeadlineExceeded"


def test_a_new_operator_is_as_blind_as_the_one_before() -> None:
    world = running()
    world.reconcile(30, **BLIND)
    world.reconcile(1, unreachable_seconds=0.0, unreachable_why="")
    world.reconcile(5, unreachable_seconds=4.0, unreachable_why="connection timed out")
    world.reconcile(9, **BLIND)
    assert world.events.count("WorkerUnreachable") == 1
    assert world.condition("Progressing") == ("Unknown", "WorkerUnreachable")


def test_a_worker_that_is_not_ready_is_not_unreachable() -> None:
    """Its deadline counts, from when it was ready for the last time."""
    world = running(progressDeadlineSeconds=60, backoffLimit=0)
    world.reconcile(2, report=world.report())
    world.reconcile(30, **BLIND)
    unready = world.pods({}, world.running())
    world.reconcile(1, pods=unready, unreachable_seconds=0.0, unreachable_why="")
    assert world.condition("Progressing") == ("True", "Running")
    world.reconcile(61)
    assert world.status["lastFailure"]["reason"] == "ProgressDeadlineExceeded"


def test_a_blind_job_still_has_an_end() -> None:
    world = running(activeDeadlineSeconds=600)
    world.reconcile(30, **BLIND)
    world.reconcile(600, **BLIND)
    assert world.condition("Failed") == ("True", "DeadlineExceeded")
    other = running(backoffLimit=0)
    other.reconcile(30, **BLIND)
    other.reconcile(30, pods=other.pods(other.running(), other.ended(None, exitCode=1)), **BLIND)
    assert other.condition("Failed") == ("True", "BackoffLimitExceeded")


def test_an_operator_that_was_away_asks_before_it_judges() -> None:
    world = running(activeDeadlineSeconds=45, progressDeadlineSeconds=45)
    world.reconcile(90)
    assert world.status["phase"] == "Starting"
    world.reconcile(1, report=world.report())
    assert world.condition("Failed") == ("True", "DeadlineExceeded")


DUE = "2026-11-21T12:00:30Z"


@pytest.mark.parametrize("ahead", [-600.0, 0.0, 600.0])
def test_a_stuck_pod_is_judged_by_the_servers_clock(ahead: float) -> None:
    world = running()
    world.now -= timedelta(seconds=ahead)  # the operator's clock, where the server's is 12:00:01
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["deletionTimestamp"] = DUE
    world.reconcile(1, pods=pods, server_ahead=ahead)
    assert world.reconcile(80, pods=pods[1:]).delete == []
    (stuck,) = world.reconcile(10, pods=pods[1:]).delete
    assert (stuck.name, stuck.force) == ("products-1", True)


def test_a_pod_on_a_lost_node_is_removed_sooner() -> None:
    world = running()
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["deletionTimestamp"] = DUE
    pods[1]["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    )
    world.reconcile(1, pods=pods)
    assert world.reconcile(35, pods=pods[1:]).delete == []
    assert len(world.reconcile(5, pods=pods[1:]).delete) == 1
