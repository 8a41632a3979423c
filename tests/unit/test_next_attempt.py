"""A new attempt shows nothing of the one before it, whatever ended that one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from embertide.spec.reports import Ending
from tests.support.operator_world import World

CRASH = Ending(reason="WorkerFailed", message="worker 1 died", exit_code=8, rank=1)
LIMITS = {"progressDeadlineSeconds": 60, "backoffLimit": 3}


def crash(world: World) -> None:
    world.reconcile(1, pods=world.pods(world.running(), world.ended(CRASH)))


def delete_pod(world: World) -> None:
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    world.reconcile(1, pods=pods)


def stall(world: World) -> None:
    world.reconcile(61)


def suspend_and_resume(world: World) -> None:
    world.job["spec"]["suspend"] = True
    world.reconcile(1)
    world.reconcile(1, pods=[])
    world.job["spec"]["suspend"] = False


def change_spec(world: World) -> None:
    world.job["spec"]["workers"] = {**world.job["spec"]["workers"], "image": "other:2"}
    world.job["metadata"]["generation"] += 1
    world.reconcile(1)


def lose_rank_0(world: World) -> None:
    """It does not answer, and then its pod goes."""
    world.reconcile(1, unreachable_seconds=20.0, unreachable_why="no answer within 5 s")
    delete_pod(world)


@pytest.mark.parametrize(
    "end", [crash, delete_pod, stall, suspend_and_resume, change_spec, lose_rank_0]
)
def test_nothing_of_the_attempt_before_is_shown(end: Callable[[World], None]) -> None:
    world = World(**LIMITS)
    world.reconcile()
    world.reconcile(2, pods=world.pods(world.running(), world.running()))
    # The operator asks by the attempt of the status, so it has this answer until that is the next.
    world.reconcile(2, report=world.report(stage="infer", percent=52))
    assert (world.status["phase"], world.status["stage"]) == ("Running", "infer")
    end(world)
    assert "progress" not in world.status
    told = len(world.events)
    for _ in range(20):
        if world.status["attempt"] == 2:
            break
        world.reconcile(2, pods=[])
    assert (world.status["attempt"], world.status["phase"]) == (2, "Starting")
    assert "progress" not in world.status
    assert "stage" not in world.status
    assert world.condition("Progressing") == ("True", "AttemptStarted")
    assert not {"StageStarted", "WorkerUnreachable"} & set(world.events[told:])
