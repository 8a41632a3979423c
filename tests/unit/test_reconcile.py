"""The operator's decisions, from what was seen to what is done: the life of one job."""

from __future__ import annotations

from datetime import timedelta

import pytest
from operator_world import UID, World

from embertide.spec.reports import Ending
from embertide.spec.status import JobStatus

LOST = Ending(reason="WorkerFailed", message="lost worker 1", exit_code=8, rank=0, peer=True)
BAD_ROW = Ending(reason="Input", message="row 7", exit_code=3, rank=1, permanent=True)
CRASH = Ending(reason="WorkerFailed", message="worker 1 died", exit_code=8, rank=1)


def started(**spec: object) -> World:
    """A job whose two workers run."""
    world = World(**spec)
    world.look()
    world.look(3, pods=world.pods(world.running(), world.running()))
    return world


def applied(world: World, seconds: float = 0.0, **seen: object) -> list[str]:
    return [child["kind"] for child in world.look(seconds, **seen).apply]


def test_the_first_look_starts_an_attempt() -> None:
    world = World()
    assert applied(world) == ["ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"]
    assert world.status["attempt"] == 1
    assert len(world.status["versions"]) == 1
    assert world.status["plan"]["grid"] == "2x1"
    assert world.condition("Accepted") == ("True", "Valid")
    assert world.events == ["Accepted", "AttemptStarted"]


def test_a_second_look_changes_nothing() -> None:
    world = World()
    world.look()
    before = dict(world.status)
    again = world.look()
    assert (again.apply, again.delete, again.draft.events) == ([], [], [])
    assert again.draft.fields == before


def test_children_that_were_never_made_are_made_by_the_next_look() -> None:
    """The operator died between writing the status and applying the children."""
    world = World()
    world.look()
    assert len(applied(world, children={})) == 4
    assert world.status["attempt"] == 1


def test_a_job_runs_to_its_end() -> None:
    world = started()
    assert world.condition("WorkersReady") == ("True", "AllReady")
    assert world.status["workers"]["summary"] == "2/2"
    world.look(5, report=world.report())
    assert world.status["phase"] == "Running"
    assert world.status["progress"]["done"] == "40%"
    done = world.look(5, report=world.report("succeeded", 100))
    assert world.status["phase"] == "Succeeded"
    assert world.status["output"]["rows"] == 10
    assert world.condition("Complete") == ("True", "Published")
    assert done.scale_to_zero is not None
    rest = world.look(5, pods=[], report=None)
    assert (rest.apply, rest.scale_to_zero, rest.delete) == ([], None, [])
    assert rest.requeue_after is None
    assert world.events[-2:] == ["Published", "Completed"]


def test_the_first_dead_worker_is_named_not_those_who_missed_it() -> None:
    world = started()
    world.look(1, pods=world.pods(world.ended(LOST), world.running()))
    assert world.status["phase"] != "Restarting", "the cause is still to come"
    world.look(1, pods=world.pods(world.ended(LOST), world.ended(CRASH)))
    assert world.status["lastFailure"] == {
        "worker": "products-1", "reason": "WorkerFailed", "message": "worker 1 died", "exitCode": 8,
    }  # fmt: skip
    assert world.status["phase"] == "Restarting"


def test_peers_alone_end_an_attempt_after_a_while() -> None:
    world = started()
    pods = world.pods(world.ended(LOST), world.running())
    world.look(1, pods=pods)
    world.look(6, pods=pods)
    assert world.status["lastFailure"]["message"] == "lost worker 1"


def test_the_next_attempt_waits_until_all_old_pods_are_gone() -> None:
    world = started()
    pods = world.pods(world.ended(CRASH), world.running())
    assert world.look(1, pods=pods).scale_to_zero is not None
    waiting = world.look(300, pods=pods[1:])
    assert waiting.apply == []
    assert world.status["attempt"] == 1
    assert applied(world, 1, pods=[])[-1] == "StatefulSet"
    assert world.status["attempt"] == 2
    assert len(set(world.status["versions"])) == 2


def test_attempts_pause_longer_each_time() -> None:
    world = started(backoffLimit=5)
    pauses = []
    for _ in range(3):
        world.look(1, pods=world.pods(world.running(), world.ended(CRASH)))
        failed = world.now
        while world.status["phase"] == "Restarting":
            world.look(1, pods=[])
        pauses.append((world.now - failed).total_seconds())
    assert pauses == [pytest.approx(10, abs=1), pytest.approx(20, abs=1), pytest.approx(40, abs=1)]


def test_after_backoff_limit_the_job_has_failed() -> None:
    world = started(backoffLimit=0)
    world.look(1, pods=world.pods(world.running(), world.ended(CRASH)))
    assert world.condition("Failed") == ("True", "BackoffLimitExceeded")
    assert world.status["lastFailure"]["message"] == "worker 1 died"
    assert "Published" not in [c["type"] for c in world.status["conditions"]]


def test_what_a_retry_cannot_mend_fails_at_once() -> None:
    world = started()
    world.look(1, pods=world.pods(world.ended(LOST), world.ended(BAD_ROW)))
    assert world.condition("Failed") == ("True", "Input")
    assert world.status["phase"] == "Failed"


def test_a_pod_that_was_taken_away_does_not_count() -> None:
    world = started(backoffLimit=0)
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    world.look(1, pods=pods)
    assert world.status["lastFailure"]["reason"] == "WorkerDisrupted"
    assert (world.status["phase"], world.status["failures"]) == ("Restarting", 0)


def test_a_pod_on_a_lost_node_is_removed_by_force() -> None:
    world = started()
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    world.look(1, pods=pods)
    assert world.look(1, pods=pods[1:]).delete == []
    (stuck,) = world.look(120, pods=pods[1:]).delete
    assert (stuck.name, stuck.uid, stuck.force) == ("products-1", "pod-1", True)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ({"reason": "OOMKilled", "exitCode": 137}, "OutOfMemory"),
        ({"reason": "StartError", "exitCode": 128, "message": "no such file"}, "CannotStart"),
        ({"exitCode": 139}, "WorkerFailed"),
    ],
)
def test_a_container_that_left_no_word(end: dict[str, object], reason: str) -> None:
    world = started()
    world.look(1, pods=world.pods(world.running(), world.ended(None, **end)))
    assert world.status["lastFailure"]["reason"] == reason
    assert "worker 1" in world.status["lastFailure"]["message"]


def test_suspending_stops_the_workers_and_resuming_starts_anew() -> None:
    world = started()
    world.job["spec"]["suspend"] = True
    assert world.look(1).scale_to_zero is not None
    assert world.condition("Suspended") == ("True", "Suspended")
    world.look(1, pods=[])
    assert world.status["phase"] == "Suspended"
    world.job["spec"]["suspend"] = False
    assert applied(world, 60)[-1] == "StatefulSet"
    assert (world.status["attempt"], world.status["failures"]) == (2, 0)
    assert world.status["startTime"] == "2026-11-21T12:01:05Z"
    assert world.events[-3:] == ["Suspended", "Resumed", "AttemptStarted"]


def test_a_second_job_with_the_same_output_waits_and_says_so() -> None:
    world = World()
    world.look(competing_job="shop/first is publishing to s3://shop/embeddings")
    assert (world.status["phase"], world.status["attempt"]) == ("Pending", 0)
    assert world.condition("Progressing") == ("False", "OutputInUse")
    world.look(5)
    assert world.events == ["Accepted", "Waiting"]
    assert applied(world, 5, competing_job="")[-1] == "StatefulSet"


def test_deadlines() -> None:
    slow = started(activeDeadlineSeconds=60)
    slow.look(90, report=slow.report())
    assert slow.condition("Failed") == ("True", "DeadlineExceeded")

    stuck = started(progressDeadlineSeconds=30)
    at = stuck.now
    stuck.look(5, report=stuck.report(at=at))
    stuck.look(60, report=stuck.report(at=at))
    assert stuck.status["lastFailure"]["reason"] == "ProgressDeadlineExceeded"
    assert stuck.status["phase"] == "Restarting"

    never = World(preRunningDeadlineSeconds=30)
    never.look()
    never.look(20, pod_creation_error="exceeded quota: pods")
    assert never.condition("WorkersReady") == ("False", "PodsRefused")
    never.look(20, pod_creation_error="exceeded quota: pods")
    assert never.condition("Failed") == ("True", "PreRunningDeadlineExceeded")
    failed = next(c for c in never.status["conditions"] if c["type"] == "Failed")
    assert "exceeded quota: pods" in failed["message"]


def test_why_pods_do_not_run_is_said() -> None:
    world = World()
    world.look()
    pods = world.pods({}, {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}})
    pods[0]["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
    ]
    world.look(3, pods=pods)
    assert world.condition("WorkersReady") == ("False", "Unschedulable")
    world.look(3, pods=pods[1:])
    assert world.condition("WorkersReady") == ("False", "ImagePullBackOff")


def test_time_to_live() -> None:
    world = started(ttlSecondsAfterFinished=60)
    world.look(1, report=world.report("succeeded", 100))
    assert world.look(30, pods=[]).delete == []
    (removed,) = world.look(40).delete
    assert (removed.kind, removed.uid) == ("EmbeddingJob", UID)


def test_a_wrong_spec_is_rejected_and_may_be_mended() -> None:
    world = World(workers={"podTemplate": {"spec": {"restartPolicy": "Never"}}})
    decision = world.look()
    assert decision.apply == []
    assert world.condition("Accepted") == ("False", "InvalidSpec")
    message = world.status["conditions"][0]["message"]
    assert "spec.workers.podTemplate.spec.restartPolicy" in message
    world.job = {**World().job, "status": world.status}
    assert applied(world, 1)[-1] == "StatefulSet"


def test_an_object_of_somebody_else_is_not_taken_over() -> None:
    world = World()
    decision = world.look(name_conflicts=["Service/products"])
    assert decision.apply == []
    assert world.condition("Accepted") == ("False", "NameTaken")


def test_a_changed_spec_starts_anew_without_counting() -> None:
    world = started()
    world.job["spec"]["workers"] = {**world.job["spec"]["workers"], "image": "other:2"}
    assert world.look(1).scale_to_zero is not None
    assert applied(world, 2, pods=[])[-1] == "StatefulSet"
    assert (world.status["attempt"], world.status["failures"]) == (2, 0)


def test_limits_may_change_while_workers_run() -> None:
    world = started()
    world.job["spec"] |= {"backoffLimit": 9, "activeDeadlineSeconds": 9999}
    changed = world.look(1)
    assert changed.scale_to_zero is None
    assert world.status["attempt"] == 1


def test_a_deleted_job_is_left_to_the_garbage_collector() -> None:
    world = started()
    world.job["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:10Z"
    decision = world.look(1)
    assert (decision.apply, decision.scale_to_zero, decision.delete) == ([], None, [])


def test_progress_is_not_written_for_the_clock_alone() -> None:
    world = started()
    world.look(1, report=world.report(at=world.now))
    first = dict(world.status["progress"])
    world.look(1, report=world.report(at=world.now + timedelta(seconds=1)))
    assert world.status["progress"] == first


def test_everything_that_is_written_is_in_the_schema() -> None:
    """The API server drops fields that the schema lacks, and with them what we remember."""
    world = started()
    world.look(1, pods=world.pods(world.running(), world.ended(CRASH)))
    assert JobStatus.model_validate(world.status).to_object() == world.status
    world.look(20, pods=[])
    world.look(1, report=world.report("succeeded", 100))
    assert JobStatus.model_validate(world.status).to_object() == world.status


def test_what_happens_to_workers_after_the_version_is_published_is_no_failure() -> None:
    world = started()
    pods = world.pods(world.running(), world.ended(CRASH))
    world.look(1, pods=pods, report=world.report("succeeded", 100))
    assert (world.status["phase"], world.status["failures"]) == ("Succeeded", 0)


def test_a_grid_that_was_changed_between_attempts_is_the_next_ones() -> None:
    world = started()
    world.look(1, pods=world.pods(world.running(), world.ended(CRASH)))
    assert world.status["phase"] == "Restarting"
    world.job["spec"]["workers"] = {**world.job["spec"]["workers"], "grid": {"graph": 3}}
    world.job["metadata"]["generation"] = 2
    world.look(1, pods=[])
    statefulset = world.look(30).apply[-1]
    assert statefulset["spec"]["replicas"] == 3
    assert world.status["plan"]["grid"] == "3x1"


def test_a_spec_that_was_changed_while_it_was_planned_is_planned_anew() -> None:
    world = World(workers={"grid": "auto"})
    world.look()
    assert world.status["phase"] == "Planning"
    world.job["spec"]["workers"] = {"grid": "auto", "count": 2}
    world.job["metadata"]["generation"] = 2
    world.look(1)
    world.look(1)
    assert (world.status["attempt"], world.status["failures"]) == (2, 0)
    assert world.status["phase"] == "Planning"
