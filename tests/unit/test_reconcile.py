"""The operator's decisions, from what was seen to what is done: the life of one job."""

from __future__ import annotations

from datetime import timedelta

import pytest

from embertide.spec.reports import Ending
from embertide.spec.status import JobStatus
from tests.support.operator_world import UID, World

LOST = Ending(reason="WorkerFailed", message="lost worker 1", exit_code=8, rank=0, peer=True)
BAD_ROW = Ending(reason="Input", message="row 7", exit_code=3, rank=1, permanent=True)
CRASH = Ending(reason="WorkerFailed", message="worker 1 died", exit_code=8, rank=1)


def started(**spec: object) -> World:
    """A job whose two workers run."""
    world = World(**spec)
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    return world


def applied(world: World, seconds: float = 0.0, **seen: object) -> list[str]:
    return [child["kind"] for child in world.reconcile(seconds, **seen).apply]


def test_the_first_reconciliation_starts_an_attempt() -> None:
    world = World()
    assert applied(world) == ["ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"]
    assert world.status["attempt"] == 1
    assert len(world.status["versions"]) == 1
    assert world.status["plan"]["grid"] == "2x1"
    assert world.condition("Accepted") == ("True", "Valid")
    assert world.events == ["Accepted", "AttemptStarted"]


def test_a_job_of_several_node_types_starts() -> None:
    nodes = [{"name": name, "count": 9} for name in ("user", "item")]
    ends = {"sourceType": "user", "destinationType": "item"}
    edges = [{"name": name, "uri": "s3://shop/e/", "format": "npy", **ends} for name in "ab"]
    world = World(
        input={"nodes": nodes, "edges": edges},
        output={"uri": "s3://shop/out", "nodeTypes": ["item"]},
    )
    assert applied(world)[-1] == "StatefulSet"
    assert world.condition("Accepted") == ("True", "Valid")


def test_a_second_reconciliation_changes_nothing() -> None:
    world = World()
    world.reconcile()
    world.reconcile()  # notes which StatefulSet it is
    before = dict(world.status)
    again = world.reconcile()
    assert (again.apply, again.delete, again.draft.events) == ([], [], [])
    assert again.draft.fields == before


def test_missing_children_are_created_by_the_next_reconciliation() -> None:
    """The operator died between writing the status and applying the children."""
    world = World()
    world.reconcile()
    assert len(applied(world, children={})) == 4
    assert world.status["attempt"] == 1


def test_a_job_runs_to_its_end() -> None:
    world = started()
    assert world.condition("WorkersReady") == ("True", "AllReady")
    assert world.status["workers"]["summary"] == "2/2"
    world.reconcile(5, report=world.report())
    assert world.status["phase"] == "Running"
    assert world.status["progress"]["done"] == "40%"
    done = world.reconcile(5, report=world.report("succeeded", 100))
    assert world.status["phase"] == "Succeeded"
    assert world.status["output"]["rows"] == 10
    assert world.condition("Complete") == ("True", "Published")
    assert done.scale_to_zero is not None
    rest = world.reconcile(5, pods=[], report=None)
    assert (rest.apply, rest.scale_to_zero) == ([], None)
    assert rest.requeue_after is None
    assert world.events[-2:] == ["Published", "Completed"]


def test_the_first_dead_worker_is_named_not_those_who_missed_it() -> None:
    world = started()
    world.reconcile(1, pods=world.pods(world.ended(LOST), world.running()))
    assert world.status["phase"] != "Restarting", "the cause is still to come"
    world.reconcile(1, pods=world.pods(world.ended(LOST), world.ended(CRASH)))
    assert world.status["lastFailure"] == {
        "worker": "products-1", "reason": "WorkerFailed", "message": "worker 1 died", "exitCode": 8,
    }  # fmt: skip
    assert world.status["phase"] == "Restarting"


def test_peers_alone_end_an_attempt_after_a_while() -> None:
    world = started()
    pods = world.pods(world.ended(LOST), world.running())
    world.reconcile(1, pods=pods)
    world.reconcile(6, pods=pods)
    assert world.status["lastFailure"]["message"] == "lost worker 1"


def test_the_next_attempt_waits_until_all_old_pods_are_gone() -> None:
    world = started()
    pods = world.pods(world.ended(CRASH), world.running())
    assert world.reconcile(1, pods=pods).scale_to_zero is not None
    waiting = world.reconcile(300, pods=pods[1:])
    assert waiting.apply == []
    assert world.status["attempt"] == 1
    assert applied(world, 1, pods=[])[-1] == "StatefulSet"
    assert world.status["attempt"] == 2
    assert len(set(world.status["versions"])) == 2


def test_attempts_pause_longer_each_time() -> None:
    world = started(backoffLimit=5)
    pauses = []
    for _ in range(3):
        world.reconcile(1, pods=world.pods(world.running(), world.ended(CRASH)))
        failed = world.now
        while world.status["phase"] == "Restarting":
            world.reconcile(1, pods=[])
        pauses.append((world.now - failed).total_seconds())
    assert pauses == [pytest.approx(10, abs=1), pytest.approx(20, abs=1), pytest.approx(40, abs=1)]


def test_after_backoff_limit_the_job_has_failed() -> None:
    world = started(backoffLimit=0)
    world.reconcile(1, pods=world.pods(world.running(), world.ended(CRASH)))
    assert world.condition("Failed") == ("True", "BackoffLimitExceeded")
    assert world.status["lastFailure"]["message"] == "worker 1 died"
    assert "Published" not in [c["type"] for c in world.status["conditions"]]


def test_a_non_retryable_failure_fails_the_job_at_once() -> None:
    world = started()
    world.reconcile(1, pods=world.pods(world.ended(LOST), world.ended(BAD_ROW)))
    assert world.condition("Failed") == ("True", "Input")
    assert world.status["phase"] == "Failed"


def test_a_disrupted_pod_does_not_count() -> None:
    world = started(backoffLimit=0)
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    world.reconcile(1, pods=pods)
    assert world.status["lastFailure"]["reason"] == "WorkerDisrupted"
    assert (world.status["phase"], world.status["failures"]) == ("Restarting", 0)


def test_a_pod_on_a_lost_node_is_removed_by_force() -> None:
    world = started()
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    world.reconcile(1, pods=pods)
    assert world.reconcile(1, pods=pods[1:]).delete == []
    (stuck,) = world.reconcile(120, pods=pods[1:]).delete
    assert (stuck.name, stuck.uid, stuck.force) == ("products-1", "pod-1", True)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ({"reason": "OOMKilled", "exitCode": 137}, "OutOfMemory"),
        ({"reason": "StartError", "exitCode": 128, "message": "no such file"}, "CannotStart"),
        ({"exitCode": 139}, "WorkerFailed"),
    ],
)
def test_a_container_that_exited_without_reporting_an_error(
    end: dict[str, object], reason: str
) -> None:
    world = started()
    world.reconcile(1, pods=world.pods(world.running(), world.ended(None, **end)))
    assert world.status["lastFailure"]["reason"] == reason
    assert "worker 1" in world.status["lastFailure"]["message"]


def test_an_exit_code_alone_is_reported_as_such() -> None:
    world = started()
    world.reconcile(1, pods=world.pods(world.running(), world.ended(None, exitCode=2)))
    said = world.status["lastFailure"]["message"]
    assert said == "worker 1 exited with code 2 without reporting an error"


def test_suspending_stops_the_workers_and_resuming_starts_anew() -> None:
    world = started()
    world.job["spec"]["suspend"] = True
    assert world.reconcile(1).scale_to_zero is not None
    assert world.condition("Suspended") == ("True", "Suspended")
    world.reconcile(1, pods=[])
    assert world.status["phase"] == "Suspended"
    world.job["spec"]["suspend"] = False
    assert applied(world, 60)[-1] == "StatefulSet"
    assert (world.status["attempt"], world.status["failures"]) == (2, 0)
    assert world.status["startTime"] == "2026-11-21T12:01:05Z"
    assert world.events[-3:] == ["Suspended", "Resumed", "AttemptStarted"]


def test_a_job_waits_for_a_competing_job_and_says_so() -> None:
    world = World()
    world.reconcile(competing_job="shop/first is publishing to s3://shop/embeddings")
    assert (world.status["phase"], world.status["attempt"]) == ("Pending", 0)
    assert world.condition("Progressing") == ("False", "OutputInUse")
    world.reconcile(5)
    assert world.events == ["Accepted", "Waiting"]
    assert applied(world, 5, competing_job="")[-1] == "StatefulSet"


def test_deadlines() -> None:
    slow = started(activeDeadlineSeconds=60)
    slow.reconcile(90, report=slow.report())
    assert slow.condition("Failed") == ("True", "DeadlineExceeded")

    stuck = started(progressDeadlineSeconds=30)
    at = stuck.now
    stuck.reconcile(5, report=stuck.report(at=at))
    stuck.reconcile(60, report=stuck.report(at=at))
    assert stuck.status["lastFailure"]["reason"] == "ProgressDeadlineExceeded"
    assert stuck.status["phase"] == "Restarting"

    never = World(preRunningDeadlineSeconds=30)
    never.reconcile()
    never.reconcile(20, pod_creation_error="exceeded quota: pods")
    assert never.condition("WorkersReady") == ("False", "PodsRefused")
    never.reconcile(20, pod_creation_error="exceeded quota: pods")
    assert never.condition("Failed") == ("True", "PreRunningDeadlineExceeded")
    failed = next(c for c in never.status["conditions"] if c["type"] == "Failed")
    assert "exceeded quota: pods" in failed["message"]


def test_why_pods_do_not_run_is_said() -> None:
    world = World()
    world.reconcile()
    pods = world.pods({}, {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}})
    pods[0]["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
    ]
    world.reconcile(3, pods=pods)
    assert world.condition("WorkersReady") == ("False", "Unschedulable")
    world.reconcile(3, pods=[*world.pods(world.running()), pods[1]])
    assert world.condition("WorkersReady") == ("False", "ImagePullBackOff")


def test_time_to_live() -> None:
    world = started(ttlSecondsAfterFinished=60)
    world.reconcile(1, report=world.report("succeeded", 100))
    world.reconcile(30, pods=[])
    world.seen.children.clear()
    (removed,) = world.reconcile(40).delete
    assert (removed.kind, removed.uid) == ("EmbeddingJob", UID)


def test_a_finished_job_keeps_none_of_its_objects() -> None:
    world = started()
    pods = world.seen.pods
    assert world.reconcile(1, report=world.report("succeeded", 100)).scale_to_zero is not None
    assert world.reconcile(1, pods=pods).delete == [], "its pods need them until they are gone"
    uids = {item["metadata"]["uid"] for item in world.seen.children.values()}
    removed = world.reconcile(1, pods=[]).delete
    kinds = {"StatefulSet", "ConfigMap", "Service", "PodDisruptionBudget"}
    assert {item.kind for item in removed} == kinds
    assert {item.uid for item in removed} == uids
    world.seen.children.clear()
    assert world.reconcile(1).delete == []


def test_a_wrong_spec_is_rejected_and_may_be_mended() -> None:
    world = World(workers={"podTemplate": {"spec": {"restartPolicy": "Never"}}})
    decision = world.reconcile()
    assert decision.apply == []
    assert world.condition("Accepted") == ("False", "InvalidSpec")
    message = world.status["conditions"][0]["message"]
    assert "spec.workers.podTemplate.spec.restartPolicy" in message
    world.job = {**World().job, "status": world.status}
    assert applied(world, 1)[-1] == "StatefulSet"


def test_a_name_conflict_rejects_the_job() -> None:
    world = World()
    decision = world.reconcile(name_conflicts=["Service/products"])
    assert decision.apply == []
    assert world.condition("Accepted") == ("False", "NameConflict")


def test_a_changed_spec_starts_anew_without_counting() -> None:
    world = started()
    world.job["spec"]["workers"] = {**world.job["spec"]["workers"], "image": "other:2"}
    assert world.reconcile(1).scale_to_zero is not None
    assert applied(world, 2, pods=[])[-1] == "StatefulSet"
    assert (world.status["attempt"], world.status["failures"]) == (2, 0)


def test_limits_may_change_while_workers_run() -> None:
    world = started()
    world.job["spec"] |= {"backoffLimit": 9, "activeDeadlineSeconds": 9999}
    changed = world.reconcile(1)
    assert changed.scale_to_zero is None
    assert world.status["attempt"] == 1


def test_a_deleted_job_is_left_to_the_garbage_collector() -> None:
    world = started()
    world.job["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:10Z"
    decision = world.reconcile(1)
    assert (decision.apply, decision.scale_to_zero, decision.delete) == ([], None, [])


def test_progress_is_not_written_for_the_clock_alone() -> None:
    world = started()
    world.reconcile(1, report=world.report(at=world.now))
    first = dict(world.status["progress"])
    world.reconcile(1, report=world.report(at=world.now + timedelta(seconds=1)))
    assert world.status["progress"] == first


def test_everything_that_is_written_is_in_the_schema() -> None:
    """The API server drops fields that the schema lacks, and with them what we remember."""
    world = started()
    world.reconcile(1, pods=world.pods(world.running(), world.ended(CRASH)))
    assert JobStatus.model_validate(world.status).to_object() == world.status
    world.reconcile(20, pods=[])
    world.reconcile(1, report=world.report("succeeded", 100))
    assert JobStatus.model_validate(world.status).to_object() == world.status


def test_what_happens_to_workers_after_the_version_is_published_is_no_failure() -> None:
    world = started()
    pods = world.pods(world.running(), world.ended(CRASH))
    world.reconcile(1, pods=pods, report=world.report("succeeded", 100))
    assert (world.status["phase"], world.status["failures"]) == ("Succeeded", 0)


def test_a_grid_that_was_changed_between_attempts_is_the_next_ones() -> None:
    world = started()
    world.reconcile(1, pods=world.pods(world.running(), world.ended(CRASH)))
    assert world.status["phase"] == "Restarting"
    world.job["spec"]["workers"] = {**world.job["spec"]["workers"], "grid": {"graph": 3}}
    world.job["metadata"]["generation"] = 2
    world.reconcile(1, pods=[])
    statefulset = world.reconcile(30).apply[-1]
    assert statefulset["spec"]["replicas"] == 3
    assert world.status["plan"]["grid"] == "3x1"


def test_a_spec_that_was_changed_while_it_was_planned_is_planned_anew() -> None:
    world = World(workers={"grid": "auto"})
    world.reconcile()
    assert world.status["phase"] == "Planning"
    world.job["spec"]["workers"] = {"grid": "auto", "count": 2}
    world.job["metadata"]["generation"] = 2
    world.reconcile(1)
    world.reconcile(1)
    assert (world.status["attempt"], world.status["failures"]) == (2, 0)
    assert world.status["phase"] == "Planning"
