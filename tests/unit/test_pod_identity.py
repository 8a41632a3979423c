"""An attempt ends with its StatefulSet and its pods: others of their names are not its own."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from embertide_operator.decide.pod_identity import lost_pods
from embertide_operator.runtime.lost_pods import event_of_end
from tests.support.operator_world import World


def started() -> World:
    """A job whose two workers run."""
    world = World(backoffLimit=0)
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    return world


def changed(world: World, **fields: Any) -> dict[str, Any]:
    """The children, with other metadata or ``replicas`` of the StatefulSet."""
    children = copy.deepcopy(world.seen.children)
    if "replicas" in fields:
        children["StatefulSet"]["spec"]["replicas"] = fields.pop("replicas")
    children["StatefulSet"]["metadata"] |= fields
    return children


def assert_disrupted(world: World, message: str) -> None:
    last = world.status["lastFailure"]
    assert (last["reason"], last["message"]) == ("WorkerDisrupted", message)
    assert (world.status["phase"], world.status["failures"]) == ("Restarting", 0)


def next_version(world: World) -> str:
    """The version of the next attempt, which starts once the pods are gone."""
    while world.status["phase"] == "Restarting":
        world.reconcile(1, pods=[])
    version: str = world.status["versions"][-1]
    return version


def test_a_statefulset_that_is_deleted_ends_its_attempt() -> None:
    world = started()
    version = world.status["versions"][-1]
    without = {k: v for k, v in world.seen.children.items() if k != "StatefulSet"}
    decision = world.reconcile(1, children=without)
    assert decision.apply == [], "another one would go on under the same version"
    assert_disrupted(world, "the workers were disrupted: their StatefulSet was deleted")
    assert [item.name for item in decision.delete] == ["products-0", "products-1"]
    assert next_version(world) != version
    assert world.status["attempt"] == 2


def test_it_is_missed_though_nobody_has_seen_it() -> None:
    """Deleted right after it was created, before the next pass."""
    world = World()
    world.reconcile()
    pods = world.pods(world.running())
    without = {k: v for k, v in world.seen.children.items() if k != "StatefulSet"}
    world.reconcile(1, children=without, pods=pods)
    assert world.status["lastFailure"]["reason"] == "WorkerDisrupted"


def test_one_that_was_made_again_is_not_the_attempts() -> None:
    world = started()
    world.reconcile(1, children=changed(world, uid="another"))
    assert_disrupted(
        world, "the workers were disrupted: their StatefulSet was replaced by another one"
    )


def test_one_that_waits_for_its_pods_is_deleted_and_the_next_attempt_waits_for_it() -> None:
    world = started()
    going = changed(world, deletionTimestamp="2026-11-21T12:00:04Z")
    world.reconcile(1, children=going)
    assert_disrupted(world, "the workers were disrupted: their StatefulSet was deleted")
    assert world.reconcile(60, pods=[]).apply == []
    gone = {k: v for k, v in world.seen.children.items() if k != "StatefulSet"}
    assert world.reconcile(1, children=gone).apply[-1]["kind"] == "StatefulSet"


@pytest.mark.parametrize("replicas", [0, 1])
def test_scaled_down_by_hand(replicas: int) -> None:
    world = started()
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    world.reconcile(1, pods=pods, children=changed(world, replicas=replicas))
    told = f"the workers were disrupted: their StatefulSet was scaled from 2 to {replicas}"
    assert_disrupted(world, told)
    next_version(world)
    assert world.seen.children["StatefulSet"]["spec"]["replicas"] == 2


def test_scaled_up_by_hand_is_put_right_and_disrupts_nobody() -> None:
    world = started()
    pods = world.pods(*[world.running()] * 3)
    (back,) = world.reconcile(1, pods=pods, children=changed(world, replicas=3)).apply
    assert (back["kind"], back["spec"]["replicas"]) == ("StatefulSet", 2)
    assert world.status["workers"]["summary"] == "2/2"
    pods[2]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    assert world.reconcile(1, pods=pods).scale_to_zero is None
    assert world.reconcile(1, pods=pods[:2]).scale_to_zero is None
    assert (world.status["attempt"], "lastFailure" in world.status) == (1, False)


def test_a_pod_that_was_replaced_ends_its_attempt() -> None:
    world = started()
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["uid"] = "other-pod"
    world.reconcile(1, pods=pods)
    assert_disrupted(world, "worker 1 was disrupted: its pod was replaced by another one")
    assert world.status["lastFailure"]["worker"] == "products-1"


def test_a_pod_that_is_gone_ends_its_attempt() -> None:
    world = started()
    world.reconcile(1, pods=world.pods(world.running()))
    assert_disrupted(world, "worker 1 was disrupted: its pod is gone")


def event(reason: str, message: str, uid: str = "pod-1") -> dict[str, Any]:
    return {"reason": reason, "message": message, "involvedObject": {"uid": uid}}


@pytest.mark.parametrize("left", [1, 2])
def test_an_event_may_say_why_a_pod_is_gone(left: int) -> None:
    world = started()
    pods = world.pods(world.running(), world.running())[:left]
    pods[-1]["metadata"]["uid"] = "another"
    low = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 64Mi. "
    pods[0]["metadata"]["uid"] = "pod-0"
    world.reconcile(1, pods=pods, pod_loss=event("Evicted", low))
    assert_disrupted(world, f"worker 1 was disrupted: {low}")


def test_one_that_used_more_than_it_may_counts() -> None:
    world = started()
    message = 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". '
    pods = world.pods(world.running())
    world.reconcile(1, pods=pods, pod_loss=event("Evicted", message))
    assert world.condition("Failed") == ("True", "BackoffLimitExceeded")
    assert world.status["lastFailure"] == {
        "worker": "products-1", "reason": "Evicted", "message": f"worker 1: {message}",
    }  # fmt: skip


def test_only_events_about_the_pod_itself_count() -> None:
    known = event("Evicted", "low", "8a1b2c3d-0000")
    events = [event("Pulled", "image", "8a1b2c3d-0000"), event("Evicted", "other", "ffff"), known]
    assert event_of_end(events, "8a1b2c3d") == known
    assert event_of_end(events[:2], "8a1b2c3d") is None


def test_nothing_is_lost_between_attempts() -> None:
    world = started()
    world.reconcile(1, pods=world.pods(world.running()))
    assert world.status["phase"] == "Restarting"
    world.reconcile(1, pods=[])
    assert lost_pods(world.seen) == {}


def test_a_pod_that_comes_late_is_no_other_one() -> None:
    world = World()
    world.reconcile()
    world.reconcile(1, pods=world.pods(world.running()))
    world.reconcile(1, pods=world.pods(world.running(), world.running()))
    assert world.status["workers"]["pods"] == ["pod-0", "pod-1"]
    assert world.condition("WorkersReady") == ("True", "AllReady")


def test_the_next_attempt_has_pods_of_its_own() -> None:
    world = started()
    world.reconcile(1, pods=world.pods(world.running()))
    next_version(world)
    pods = world.pods(world.running(), world.running())
    for pod in pods:
        pod["metadata"]["uid"] = f"new-{pod['metadata']['name'][-1]}"
    world.reconcile(3, pods=pods)
    assert world.status["workers"]["pods"] == ["new-0", "new-1"]
    assert world.status["attemptStartTime"]


def test_orphans_are_deleted_by_the_operator_since_no_statefulset_does() -> None:
    world = started()
    world.job["spec"]["suspend"] = True
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["ownerReferences"] = []
    (orphan,) = world.reconcile(1, pods=pods).delete
    assert (orphan.kind, orphan.name, orphan.force) == ("Pod", "products-1", False)


def test_what_a_deleted_job_of_this_name_left_is_waited_for() -> None:
    world = World()
    assert world.reconcile(predecessors=["Pod/products-0"]).apply == []
    assert (world.status["phase"], world.status["attempt"]) == ("Pending", 0)
    assert world.condition("Progressing") == ("False", "PredecessorLeft")
    assert world.condition("Accepted") == ("True", "Valid")
    world.reconcile(5)
    assert world.events == ["Accepted", "Waiting"]
    assert world.reconcile(5, predecessors=[]).apply[-1]["kind"] == "StatefulSet"
