"""Pods that are deleted, evicted, preempted or shut down: told, not counted, and not for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from embertide.spec.reports import Ending
from tests.support.operator_world import SETTINGS, World

LOST = Ending(reason="WorkerFailed", message="lost worker 1", exit_code=8, rank=0, peer=True)
BAD_ROW = Ending(reason="Input", message="row 7", exit_code=3, rank=1, permanent=True)
LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 64Mi. "
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."


def started(**spec: Any) -> World:
    """A job whose two workers run."""
    world = World(**spec)
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    return world


def with_second(world: World, **changes: Any) -> list[dict[str, Any]]:
    """The workers' pods, with other metadata (``deletionTimestamp``) or status for worker 1."""
    first, second = world.pods(world.running(), world.running())
    deleted = {"deletionTimestamp": changes.pop("deleted")} if "deleted" in changes else {}
    second["metadata"] |= deleted
    second["status"] |= changes
    return [first, second]


def target(reason: str, message: str) -> list[dict[str, Any]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]


def exited(code: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "worker", "state": {"terminated": {"exitCode": code, **more}}}]


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": LOW}, "low on resource: memory"),
        (
            {
                "phase": "Failed",
                "reason": "Evicted",
                "message": LOW,
                "containerStatuses": exited(137),
            },
            "low on resource: memory",
        ),
        (
            {
                "phase": "Failed",
                "reason": "Terminated",
                "message": SHUTDOWN,
                "containerStatuses": exited(143),
            },
            "imminent node shutdown",
        ),
        (
            {
                "conditions": target("TerminationByKubelet", SHUTDOWN),
                "containerStatuses": exited(0),
            },
            "imminent node shutdown",
        ),
        ({"phase": "Failed", "reason": "NodeLost"}, "NodeLost"),
        (
            {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough: cpu"},
            "enough: cpu",
        ),
        (
            {
                "deleted": "2026-11-21T12:00:30Z",
                "conditions": target("PreemptionByScheduler", "preempting to accommodate a pod"),
            },
            "preempting to accommodate",
        ),
        (
            {"deleted": "2026-11-21T12:00:30Z", "phase": "Failed"},
            "its pod was deleted",
        ),
    ],
)
def test_a_pod_that_somebody_ends_is_disrupted(second: dict[str, Any], told: str) -> None:
    world = started(backoffLimit=0)
    world.reconcile(1, pods=with_second(world, **second))
    last = world.status["lastFailure"]
    assert (last["reason"], last["worker"]) == ("WorkerDisrupted", "products-1")
    assert "worker 1 was disrupted: " in last["message"]
    assert told in last["message"]
    assert (world.status["phase"], world.status["failures"]) == ("Restarting", 0)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (
            {
                "phase": "Failed",
                "reason": "Evicted",
                "message": 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ',
            },
            "Evicted",
        ),
        (
            {
                "deleted": "2026-11-21T12:00:30Z",
                "phase": "Failed",
                "reason": "Evicted",
                "message": 'Container worker exceeded its local ephemeral storage limit "1Gi". ',
                "containerStatuses": exited(137),
            },
            "Evicted",
        ),
        (
            {
                "phase": "Failed",
                "reason": "DeadlineExceeded",
                "message": "Pod was active on the node longer than the specified deadline",
            },
            "DeadlineExceeded",
        ),
        (
            {
                "conditions": target("TerminationByKubelet", LOW),
                "containerStatuses": exited(137, reason="OOMKilled"),
            },
            "OutOfMemory",
        ),
        (
            {
                "deleted": "2026-11-21T12:00:30Z",
                "containerStatuses": exited(3, message=BAD_ROW.to_text()),
            },
            "Input",
        ),
    ],
)
def test_what_the_job_itself_did_counts(second: dict[str, Any], reason: str) -> None:
    world = started(backoffLimit=5)
    world.reconcile(1, pods=with_second(world, **second))
    assert world.status["lastFailure"]["reason"] == reason
    assert world.status["failures"] == 1


def test_a_pod_that_is_to_be_disrupted_and_still_works_is_let_work() -> None:
    world = started()
    waiting = target("EvictionByEvictionAPI", "Eviction API: evicting")
    assert world.reconcile(1, pods=with_second(world, conditions=waiting)).scale_to_zero is None
    assert world.status["attemptStartTime"]


def test_a_peer_that_missed_a_disrupted_worker_does_not_count() -> None:
    world = started(backoffLimit=0)
    pods = with_second(world, phase="Failed", reason="Evicted", message=LOW)
    pods[0] = world.pods(world.ended(LOST))[0]
    world.reconcile(1, pods=pods)
    assert world.status["lastFailure"]["reason"] == "WorkerDisrupted"


def test_a_planner_that_is_evicted_does_not_count() -> None:
    world = World(workers={"grid": "auto"}, backoffLimit=0)
    world.reconcile()
    planner = {
        "metadata": {"name": "products-plan", "uid": "plan-1", "labels": {
            "embertide.dev/role": "planner", "embertide.dev/attempt": "1",
        }},
        "status": {"phase": "Failed", "reason": "Evicted", "message": LOW},
    }  # fmt: skip
    world.reconcile(1, pods=[planner])
    last = world.status["lastFailure"]
    assert (last["reason"], world.status["failures"]) == ("WorkerDisrupted", 0)
    assert "the planner was disrupted: The node was low" in last["message"]


def disrupt(world: World) -> float:
    """Delete a pod of the attempt; seconds until the next one starts."""
    world.reconcile(1, pods=with_second(world, deleted="2026-11-21T12:00:30Z"))
    ended = world.now
    while world.status["phase"] == "Restarting":
        world.reconcile(1, pods=[])
    return (world.now - ended).total_seconds()


def test_disruptions_pause_longer_each_time() -> None:
    world = started(backoffLimit=0)
    pauses = []
    for _ in range(5):
        pauses.append(disrupt(world))
        world.reconcile(3, pods=world.pods(world.running(), world.running()))
    assert pauses == [pytest.approx(pause, abs=1.1) for pause in (2, 4, 8, 16, 32)]
    assert (world.status["attempt"], world.status["disruptions"]) == (6, 5)


@pytest.mark.parametrize("works", [True, False])
def test_an_attempt_that_ran_long_begins_the_count_anew(works: bool) -> None:
    world = started()
    for _ in range(3):
        disrupt(world)
    pods = world.pods(world.running(), world.running())
    world.reconcile(3, pods=pods, report=world.report() if works else None)
    world.reconcile(700, report=world.report() if works else None)
    disrupt(world)
    assert world.status["disruptions"] == (1 if works else 4)


def test_a_failure_of_its_own_ends_a_row_of_disruptions() -> None:
    world = started(backoffLimit=5)
    disrupt(world)
    crash = Ending(reason="WorkerFailed", message="died", exit_code=8, rank=1)
    world.reconcile(1, pods=world.pods(world.running(), world.ended(crash)))
    assert "disruptions" not in world.status


def test_too_many_disruptions_in_a_row_fail_the_job() -> None:
    world = started(backoffLimit=0)
    for _ in range(SETTINGS.disruption_limit):
        disrupt(world)
        world.reconcile(3, pods=world.pods(world.running(), world.running()))
    assert world.status["phase"] == "Starting"
    disrupt(world)
    assert world.condition("Failed") == ("True", "TooManyDisruptions")
    message = next(c for c in world.status["conditions"] if c["type"] == "Failed")["message"]
    assert message.startswith("21 attempts in a row were disrupted")
    assert "disruptionLimit is 20" in message
    assert world.status["lastFailure"]["reason"] == "WorkerDisrupted"
    assert len(world.status["versions"]) <= 10


def test_no_more_are_ready_than_are_wanted() -> None:
    world = started()
    assert world.status["workers"]["summary"] == "2/2"
    world.reconcile(1, report=world.report("succeeded", 100))
    assert world.status["workers"]["summary"] == "0/0"


# How long evictions are blocked


def budget_is_deleted(world: World, seconds: float) -> bool:
    """Whether a reconciliation, some seconds later, deletes the budget and nothing else."""
    kinds = [item.kind for item in world.reconcile(seconds).delete]
    assert kinds in ([], ["PodDisruptionBudget"])
    return bool(kinds)


def test_evictions_are_blocked_for_as_long_as_the_settings_say() -> None:
    world = started()
    world.settings = replace(SETTINGS, disruption_budget_seconds=60.0)
    assert not budget_is_deleted(world, 50)
    assert budget_is_deleted(world, 20)
    world.seen.children.pop("PodDisruptionBudget")
    decision = world.reconcile(1)
    assert (decision.delete, decision.apply) == ([], []), "it stays away, and the workers run on"
    # The next attempt has one again.
    world.reconcile(1, pods=with_second(world, deleted="2026-11-21T12:01:20Z"))
    applied = [item["kind"] for item in world.reconcile(30, pods=[]).apply]
    assert "PodDisruptionBudget" in applied


def test_a_queue_that_holds_pods_does_not_use_up_the_time() -> None:
    world = World()
    world.settings = replace(SETTINGS, disruption_budget_seconds=60.0)
    world.reconcile()
    pods = world.pods({}, {})
    for pod in pods:
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        pod["status"]["conditions"].append(gated)
    world.reconcile(1, pods=pods)
    world.reconcile(3600)
    world.reconcile(1, pods=world.pods(world.running(), world.running()))
    assert not budget_is_deleted(world, 30)
    assert budget_is_deleted(world, 60)


def test_evictions_are_not_blocked_where_the_settings_say_so() -> None:
    world = started()
    world.settings = replace(SETTINGS, disruption_budget=False)
    assert budget_is_deleted(world, 1), "that of a job which runs already"
    fresh = World()
    fresh.settings = world.settings
    assert "PodDisruptionBudget" not in [item["kind"] for item in fresh.reconcile().apply]
