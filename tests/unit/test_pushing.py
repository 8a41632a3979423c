"""A published version into the index of ``spec.push``: which pod, when again, and what is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from embertide.spec.naming import PUSH_REQUESTED
from embertide.spec.reports import Ending, PushReport
from embertide_operator.api.transport import ApiError
from embertide_operator.decide.decision import Decision
from embertide_operator.decide.pushing import is_unsettled, other_pusher
from embertide_operator.metrics.job_series import essentials, job_series
from embertide_operator.runtime.passes import _rejected_child
from tests.support.operator_world import SETTINGS, UID, World

PUSH = {"uri": "postgresql://shop@db/shop", "credentialsSecret": "index"}


def pods_of(decision: Decision) -> list[dict[str, Any]]:
    return [child for child in decision.apply if child["kind"] == "Pod"]


def no_pods(_job: Any) -> list[Any]:
    return []


def pusher(created: dict[str, Any], state: dict[str, Any], **status: Any) -> dict[str, Any]:
    """The pod that the operator has created, in a state."""
    meta = {**created["metadata"], "uid": "push-1"}
    found = {"phase": "Running", "containerStatuses": [{"name": "worker", "state": state}]}
    return {"metadata": meta, "status": found | status}


def completed(**spec: Any) -> World:
    """A job whose workers have published and are gone."""
    world = World(**({"push": PUSH} | spec))
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()), report=world.report())
    world.reconcile(3, report=world.report("succeeded"))
    return world


def pushing(**spec: Any) -> tuple[World, dict[str, Any]]:
    """The same with the pod that pushes."""
    world = completed(**spec)
    (pod,) = pods_of(world.reconcile(2, pods=[]))
    return world, pod


def ends(world: World, pod: dict[str, Any], report: PushReport | Ending, code: int = 0) -> Decision:
    end = {"exitCode": code, "message": report.to_text()}
    return world.reconcile(5, pods=[pusher(pod, {"terminated": end})])


def pushed(world: World) -> PushReport:
    version = world.status["output"]["version"]
    return PushReport(version=version, rows=10, names=["products"], seconds=1.5)


DOWN = Ending(reason="StoreUnavailable", message="db cannot be reached", exit_code=5)


def test_a_job_without_an_index_pushes_nothing() -> None:
    world = World()
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()), report=world.report())
    world.reconcile(3, report=world.report("succeeded"))
    assert not pods_of(world.reconcile(2, pods=[]))
    assert "push" not in world.status
    assert all(c["type"] != "Pushed" for c in world.status["conditions"])


def test_the_pod_starts_once_the_workers_are_gone_and_readers_are_switched() -> None:
    world = completed()
    assert world.condition("Complete") == ("True", "Published")
    decision = world.reconcile(1)
    assert not pods_of(decision)
    assert decision.requeue_after == 1.0
    assert world.condition("Pushed") == ("False", "Pushing")
    decision = world.reconcile(1, pods=[])
    (pod,) = pods_of(decision)
    container = pod["spec"]["containers"][0]
    assert (pod["metadata"]["name"], container["args"]) == ("products-push", ["push"])
    assert pod["metadata"]["ownerReferences"][0]["uid"] == UID
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["automountServiceAccountToken"] is False
    env = {item["name"]: item for item in container["env"]}
    assert env["EMBERTIDE_VERSION"]["value"] == world.status["output"]["version"]
    secret = {"name": "index", "key": "PGPASSWORD"}
    assert env["PGPASSWORD"]["valueFrom"] == {"secretKeyRef": secret}
    assert container["resources"] == SETTINGS.planner_resources
    assert is_unsettled(world.job)
    # It runs: nothing is done meanwhile, and the job stays complete.
    running = pusher(pod, {"running": {}})
    decision = world.reconcile(60, pods=[running])
    assert (decision.apply, decision.delete) == ([], [])
    assert world.condition("Ready") == ("True", "Complete")
    decision = ends(world, pod, pushed(world))
    assert [item.name for item in decision.delete] == ["products-push"]
    assert world.condition("Pushed") == ("True", "Pushed")
    assert world.status["push"]["version"] == world.status["output"]["version"]
    assert world.events[-1] == "Pushed"
    assert not is_unsettled(world.job)
    # Then the job's objects go, as those of any finished job.
    decision = world.reconcile(1, pods=[])
    assert "ConfigMap" in {item.kind for item in decision.delete}
    assert decision.apply == []


def test_its_image_resources_and_limit_are_those_of_the_job() -> None:
    resources = {"limits": {"memory": "3Gi"}}
    more = {"image": "embertide-pgvector:1", "resources": resources, "activeDeadlineSeconds": 77}
    _, pod = pushing(push=PUSH | more)
    container = pod["spec"]["containers"][0]
    assert (container["image"], container["resources"]) == ("embertide-pgvector:1", resources)
    assert pod["spec"]["activeDeadlineSeconds"] == 77


def test_one_that_hangs_ends_after_a_day() -> None:
    _, pod = pushing()
    assert pod["spec"]["activeDeadlineSeconds"] == 86400


def test_what_fails_is_tried_again_with_growing_pauses() -> None:
    world, pod = pushing(push=PUSH | {"backoffLimit": 2})
    pauses = []
    for attempt in (1, 2):
        ends(world, pod, DOWN, 5)
        assert world.condition("Pushed") == ("False", "StoreUnavailable")
        assert world.condition("Complete")[0] == "True"
        assert world.status["push"]["attempts"] == attempt
        decision = world.reconcile(0, pods=[])
        assert not pods_of(decision)
        assert decision.requeue_after is not None
        pauses.append(round(decision.requeue_after))
        (pod,) = pods_of(world.reconcile(decision.requeue_after, pods=[]))
    assert pauses == [10, 20]
    ends(world, pod, DOWN, 5)
    condition = next(c for c in world.status["conditions"] if c["type"] == "Pushed")
    assert (condition["status"], condition["reason"]) == ("False", "StoreUnavailable")
    assert "backoffLimit is 2" in condition["message"]
    assert "db cannot be reached; the version is published" in condition["message"]
    assert world.events.count("PushFailed") == 3
    assert not pods_of(world.reconcile(1000, pods=[]))
    assert world.status["phase"] == "Succeeded"


def test_what_no_retry_can_mend_ends_the_push_until_it_is_asked_for_again() -> None:
    world, pod = pushing()
    ends(world, pod, Ending(reason="Input", message="no", exit_code=3, permanent=True), 3)
    assert world.condition("Pushed") == ("False", "Input")
    assert not pods_of(world.reconcile(1000, pods=[]))
    world.job["spec"]["push"] = PUSH | {"name": "shop"}
    (pod,) = pods_of(world.reconcile(1, pods=[]))
    assert world.condition("Pushed") == ("False", "Pushing")
    ends(world, pod, pushed(world))
    assert world.condition("Pushed") == ("True", "Pushed")


def test_a_pod_of_another_request_goes_first() -> None:
    world, pod = pushing()
    world.job["spec"]["push"] = PUSH | {"name": "shop"}
    decision = world.reconcile(1, pods=[pusher(pod, {"running": {}})])
    assert ([item.name for item in decision.delete], decision.apply) == (["products-push"], [])
    (newer,) = pods_of(world.reconcile(1, pods=[]))
    assert newer["metadata"]["labels"] != pod["metadata"]["labels"]


@pytest.mark.parametrize("reason", ["Held", "NotCurrent"])
def test_a_version_that_readers_do_not_have_is_pushed_once_it_is_asked_for(reason: str) -> None:
    world = World(push=PUSH)
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()), report=world.report())
    report = world.report("succeeded")
    why = {"held": "too many rows"} if reason == "Held" else {"held": None}
    output = report.output.model_copy(update={"current": False} | why)
    world.reconcile(3, report=report.model_copy(update={"output": output}))
    assert world.condition("Published") == ("True", reason)
    assert not pods_of(world.reconcile(2, pods=[]))
    assert world.condition("Pushed") == ("False", reason)
    message = next(c for c in world.status["conditions"] if c["type"] == "Pushed")["message"]
    assert "kubectl annotate --overwrite ej products embertide.dev/push-requested=TIME" in message
    world.job["metadata"]["annotations"] = {PUSH_REQUESTED: "2026-11-21T13:00:00Z"}
    (pod,) = pods_of(world.reconcile(2, pods=[]))
    env = {item["name"]: item for item in pod["spec"]["containers"][0]["env"]}
    assert env["EMBERTIDE_VERSION"]["value"] == ""
    ends(world, pod, pushed(world))
    assert world.condition("Pushed") == ("True", "Pushed")
    # Asked for once, and again with another value.
    assert not pods_of(world.reconcile(2, pods=[]))
    world.job["metadata"]["annotations"] = {PUSH_REQUESTED: "2026-11-21T14:00:00Z"}
    assert pods_of(world.reconcile(2, pods=[]))


def test_another_version_that_became_current_meanwhile() -> None:
    world, pod = pushing()
    ends(world, pod, PushReport(current="20261122T000000Z-abcdef"))
    assert world.condition("Pushed") == ("False", "NotCurrent")
    assert "version" not in world.status["push"]
    assert not pods_of(world.reconcile(2, pods=[]))


def test_what_keeps_the_pod_from_starting_is_said_once_and_ends_an_attempt_in_time() -> None:
    world, pod = pushing()
    text = "couldn't find key PGPASSWORD in Secret shop/index"
    waiting = pusher(pod, world.waiting("CreateContainerConfigError", text)["state"])
    for _ in range(3):
        world.reconcile(5, pods=[waiting])
    assert world.condition("Pushed") == ("False", "CreateContainerConfigError")
    assert world.events.count("PushFailed") == 1
    decision = world.reconcile(1800, pods=[waiting])
    assert [item.name for item in decision.delete] == ["products-push"]
    assert world.condition("Pushed") == ("False", "PreRunningDeadlineExceeded")
    assert world.status["push"]["attempts"] == 1


def test_a_disruption_does_not_count() -> None:
    world, pod = pushing()
    gone = pusher(
        pod, {"terminated": {"exitCode": 143}}, phase="Failed", reason="Evicted", message="drained"
    )
    world.reconcile(1, pods=[gone])
    assert world.status["push"]["attempts"] == 0
    assert world.condition("Pushed") == ("False", "WorkerDisrupted")
    assert pods_of(world.reconcile(3, pods=[]))


def test_one_job_of_an_output_pushes_at_a_time() -> None:
    """Two pods that load the table of one version would be in each other's way."""
    busy, _ = pushing()
    waiting = completed()
    waiting.job["metadata"] |= {"name": "later", "uid": "another"}
    waiting.reconcile(1)
    jobs = [busy.job, waiting.job]
    assert other_pusher(waiting.job, jobs, no_pods) == "shop/products"
    assert other_pusher(busy.job, jobs, no_pods) == ""
    decision = waiting.reconcile(1, pods=[], pushing_job="shop/products")
    assert pods_of(decision) == []
    assert decision.requeue_after == 5.0
    message = next(c for c in waiting.status["conditions"] if c["type"] == "Pushed")["message"]
    assert message == "waiting for the push of shop/products, which has the same output"
    assert pods_of(waiting.reconcile(5, pushing_job=""))
    elsewhere = {**busy.job["spec"], "output": {"uri": "s3://shop/other"}}
    assert other_pusher(waiting.job, [{**busy.job, "spec": elsewhere}], no_pods) == ""


def test_a_push_that_takes_too_long() -> None:
    world, pod = pushing(push=PUSH | {"activeDeadlineSeconds": 5})
    late = pusher(pod, {"terminated": {"exitCode": 143}}, phase="Failed", reason="DeadlineExceeded")
    world.reconcile(1, pods=[late])
    assert world.condition("Pushed") == ("False", "DeadlineExceeded")
    assert world.status["push"]["attempts"] == 1


def test_memory_and_an_exit_without_a_word() -> None:
    world, pod = pushing()
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    world.reconcile(1, pods=[pusher(pod, killed)])
    condition = next(c for c in world.status["conditions"] if c["type"] == "Pushed")
    assert condition["reason"] == "OutOfMemory"
    assert "raise spec.push.resources.limits.memory" in condition["message"]
    world, pod = pushing()
    world.reconcile(1, pods=[pusher(pod, {"terminated": {"exitCode": 1, "message": "boom"}})])
    assert world.condition("Pushed") == ("False", "PushFailed")


def test_a_pod_that_the_api_server_refuses_is_no_fault_of_the_job() -> None:
    world, _ = pushing()
    words = (
        'pods "products-push" is forbidden: failed quota: q: must specify limits.cpu for: worker'
    )
    world.job["status"] = _rejected_child(world.job, ApiError(403, words)).fields
    assert world.condition("Pushed") == ("False", "ChildRefused")
    message = next(c for c in world.status["conditions"] if c["type"] == "Pushed")["message"]
    assert message.endswith("must specify limits.cpu for: worker; set spec.push.resources")
    assert "obstacle" not in world.status
    # It is tried again, and ends an attempt once it lasts.
    assert pods_of(world.reconcile(5, pods=[]))
    world.reconcile(1801, pods=[])
    assert world.condition("Pushed") == ("False", "PreRunningDeadlineExceeded")


def test_the_job_is_not_deleted_before_its_push_has_ended() -> None:
    world, pod = pushing(ttlSecondsAfterFinished=0)
    decision = world.reconcile(100, pods=[pusher(pod, {"running": {}})])
    assert decision.delete == []
    ends(world, pod, pushed(world))
    kinds = {item.kind for item in world.reconcile(1, pods=[]).delete}
    assert "EmbeddingJob" in kinds


def test_a_failed_job_pushes_nothing() -> None:
    world = World(push=PUSH, backoffLimit=0)
    world.reconcile()
    ending = Ending(reason="Input", message="row 3", exit_code=3, permanent=True)
    world.reconcile(3, pods=world.pods(world.ended(ending), world.running()))
    assert world.status["phase"] == "Failed"
    assert not pods_of(world.reconcile(3, pods=[]))
    assert all(c["type"] != "Pushed" for c in world.status["conditions"])


def test_a_specification_that_becomes_wrong_pushes_nothing() -> None:
    world = completed()
    world.job["spec"]["push"] = PUSH | {"resources": {"limits": {"memory": "much"}}}
    assert not pods_of(world.reconcile(1, pods=[]))
    assert world.condition("Pushed") == ("False", "InvalidSpec")


def test_resources_that_are_no_amounts_are_refused() -> None:
    world = World(push=PUSH | {"resources": {"limits": {"memory": "much"}}})
    world.reconcile()
    assert world.condition("Accepted") == ("False", "InvalidSpec")
    accepted = next(c for c in world.status["conditions"] if c["type"] == "Accepted")
    assert "spec.push.resources.limits.memory" in accepted["message"]


def test_metrics_say_how_old_the_pushed_version_is() -> None:
    world, pod = pushing()
    ends(world, pod, pushed(world))
    found = {
        sample.name: sample.value
        for family in job_series([essentials(world.job)]).families()
        for sample in family.samples
        if sample.name.startswith("embertide_push_")
    }
    assert found["embertide_push_rows"] == 10
    assert found["embertide_push_duration_seconds"] == 1.5
    assert found["embertide_push_failures"] == 0
    assert found["embertide_push_last_success_timestamp_seconds"] - 1e9 > 0
    age = world.now.timestamp() - found["embertide_push_version_timestamp_seconds"]
    assert 0 < age < 60


def test_another_settings_of_the_network_bring_the_policy() -> None:
    world = completed()
    world.settings = replace(SETTINGS, network_policy=True)
    world.reconcile(1, pods=[])
    assert {"ConfigMap", "NetworkPolicy"} <= world.seen.children.keys()
