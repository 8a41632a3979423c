"""What keeps workers from starting is told at once and once, and a mistake ends the job early."""

from __future__ import annotations

from typing import Any

import pytest

from embertide.spec.status import JobStatus
from embertide_operator.decide.obstacles import note_refusal
from embertide_operator.decide.quota_advice import with_advice
from embertide_operator.decide.refusals import is_full, never_heals
from embertide_operator.job.status import Draft
from tests.support.operator_world import SETTINGS, World

PATIENCE = SETTINGS.mistake_seconds
NO_SECRET = 'secret "nowhere" not found'
NO_IMAGE = 'failed to resolve reference "shop/worker:2": shop/worker:2: not found'
NO_REGISTRY = 'failed to do request: Head "https://shop/v2": dial tcp: connection refused'


def starting(**spec: Any) -> World:
    """A job whose StatefulSet exists, and no pod yet."""
    world = World(**spec)
    world.reconcile()
    return world


def unscheduled(world: World, reason: str, message: str) -> list[dict[str, Any]]:
    pods = world.pods({}, {})
    for pod in pods:
        pod["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        ]
    return pods


def refuse(world: World, message: str) -> None:
    """The API server refuses an object of the decision."""
    draft = Draft(world.job, world.now)
    note_refusal(draft, message)
    world.job["status"] = draft.fields
    world.events += [event.reason for event in draft.events]


def test_an_obstacle_is_shown_everywhere_at_once() -> None:
    world = starting()
    pods = world.pods(world.waiting("CreateContainerConfigError", NO_SECRET), world.running())
    decision = world.reconcile(2, pods=pods)
    assert (world.status["phase"], world.status["stage"]) == (
        "Starting", "CreateContainerConfigError",
    )  # fmt: skip
    assert world.condition("WorkersReady") == ("False", "CreateContainerConfigError")
    (event,) = decision.draft.events
    assert (event.kind, event.reason) == ("Warning", "CreateContainerConfigError")
    assert event.message == f"worker 0 cannot start: {NO_SECRET}"
    assert JobStatus.model_validate(world.status).to_object() == world.status


def test_it_goes_once_it_is_mended() -> None:
    world = starting()
    waiting = world.waiting("CreateContainerConfigError", NO_SECRET)
    world.reconcile(2, pods=world.pods(waiting, waiting))
    world.reconcile(PATIENCE, pods=world.pods(world.running(), {}))
    assert world.condition("WorkersReady") == ("False", "Starting")
    assert "stage" not in world.status
    world.reconcile(1, pods=world.pods(waiting, waiting))
    assert world.status["phase"] == "Starting", "its patience begins anew"


def test_turns_of_the_kubelet_are_one_event() -> None:
    world = starting()
    told = len(world.events)
    for i in range(20):
        pulling = world.waiting("ErrImagePull", NO_IMAGE)
        backing = world.waiting("ImagePullBackOff", 'Back-off pulling image "shop/worker:2"')
        world.reconcile(3, pods=world.pods(*([pulling, backing] if i % 2 else [backing, pulling])))
        assert world.condition("WorkersReady") == ("False", "ImagePullBackOff")
    assert world.events[told:] == ["ImagePullBackOff"]
    assert NO_IMAGE in world.status["obstacle"]["message"]


def test_the_cause_of_an_image_that_cannot_be_pulled_is_the_latest() -> None:
    """A registry that was away for a minute answers: the image is not there."""
    world = starting()
    back_off = 'Back-off pulling image "shop/worker:2": ErrImagePull: '
    for message in (NO_REGISTRY, back_off + NO_REGISTRY):
        world.reconcile(2, pods=world.pods(world.waiting("ErrImagePull", message)))
        assert world.status["obstacle"]["message"] == f"worker 0 cannot start: {NO_REGISTRY}"
    world.reconcile(2, pods=world.pods(world.waiting("ImagePullBackOff", back_off + NO_IMAGE)))
    assert world.status["obstacle"]["message"] == f"worker 0 cannot start: {NO_IMAGE}"


def test_another_obstacle_is_another_event() -> None:
    world = starting()
    told = len(world.events)
    for message in (NO_SECRET, NO_SECRET, "couldn't find key AWS_ACCESS_KEY_ID in Secret shop/s3"):
        waiting = world.waiting("CreateContainerConfigError", message)
        world.reconcile(2, pods=world.pods(waiting, waiting))
    assert world.events[told:] == ["CreateContainerConfigError"] * 2
    world.reconcile(2, pods=unscheduled(world, "Unschedulable", "0/3 nodes are available"))
    world.reconcile(2, pods=unscheduled(world, "Unschedulable", "0/2 nodes are available"))
    assert world.events[told + 2 :] == ["Unschedulable"]


# What the first pod says -> whether it ends the job before preRunningDeadlineSeconds.
ENDS: list[tuple[str, str, bool]] = [
    ("InvalidImageName", "couldn't parse image name", True),
    ("ErrImageNeverPull", "image is not present with pull policy of Never", True),
    ("CreateContainerConfigError", NO_SECRET, True),
    ("ImagePullBackOff", NO_IMAGE, True),
    ("ErrImagePull", "pull access denied, repository does not exist", True),
    ("ErrImagePull", "unexpected status from HEAD request: 401 Unauthorized", True),
    ("ErrImagePull", NO_REGISTRY, False),
    ("CreateContainerError", "context deadline exceeded", False),
]


@pytest.mark.parametrize(("reason", "message", "ends"), ENDS)
def test_a_mistake_ends_the_job_after_a_short_patience(
    reason: str, message: str, ends: bool
) -> None:
    world = starting()
    waiting = world.waiting(reason, message)
    world.reconcile(2, pods=world.pods(waiting, waiting))
    world.reconcile(PATIENCE - 1, pods=world.pods(waiting, waiting))
    assert world.status["phase"] == "Starting"
    world.reconcile(2, pods=world.pods(waiting, waiting))
    assert world.status["phase"] == ("Failed" if ends else "Starting")
    if ends:
        shown = world.status["stage"]
        assert world.condition("Failed") == ("True", shown)
        failed = world.status["lastFailure"]["message"]
        assert failed == f"worker 0 cannot start: {message}; it was not mended within 120 s"


def test_what_a_volume_lacks_is_a_mistake() -> None:
    world = starting()
    why = 'worker 0 cannot start: MountVolume.SetUp failed for volume "x": configmap "y" not found'
    pods = world.pods({}, {})
    world.reconcile(2, pods=pods, mount_error=why)
    assert world.status["stage"] == "FailedMount"
    world.reconcile(PATIENCE + 1)
    assert world.condition("Failed") == ("True", "FailedMount")


def test_the_planners_obstacles_count_too() -> None:
    world = World(workers={"grid": "auto"})
    world.reconcile()
    (pod,) = world.pods(world.waiting("CreateContainerConfigError", NO_SECRET))
    pod["metadata"]["labels"]["embertide.dev/role"] = "planner"
    world.reconcile(2, pods=[pod])
    assert (world.status["phase"], world.status["stage"]) == (
        "Planning", "CreateContainerConfigError",
    )  # fmt: skip
    world.reconcile(PATIENCE + 1)
    assert world.condition("Failed") == ("True", "CreateContainerConfigError")
    assert world.status["lastFailure"]["message"].startswith("the planner cannot start")


def test_an_object_that_is_refused_ends_the_job_too() -> None:
    world = World()
    world.reconcile()
    for _ in range(25):
        world.seen.children.pop("StatefulSet", None)
        refuse(world, "StatefulSet.apps is invalid: nodeSelector")
        world.reconcile(5)
    assert world.condition("Failed") == ("True", "ChildRefused")
    assert "nodeSelector" in world.status["lastFailure"]["message"]
    assert world.events.count("ChildRefused") == 1


def test_a_refusal_does_not_end_workers_that_run() -> None:
    world = starting()
    world.reconcile(2, pods=world.pods(world.running(), world.running()))
    world.reconcile(2, report=world.report())
    for i in range(25):
        world.seen.children.pop("PodDisruptionBudget", None)
        refuse(world, "forbidden: exceeded quota")
        world.reconcile(10, report=world.report(percent=40 + i))
        assert world.condition("WorkersReady") == ("True", "AllReady")
    assert world.status["phase"] == "Running"
    assert world.events.count("ChildRefused") == 1


def refused(world: World, why: str, seconds: float = 2, ready: int = 0) -> None:
    """The StatefulSet cannot create all of its pods; its Event names another one each time.

    Rank 0, where it is ready, waits for the others.
    """
    pod = f"products-{world.now.second % 2}"
    text = f'create Pod {pod} in StatefulSet products failed error: pods "{pod}" is forbidden: '
    pods = world.pods(*[world.running()] * ready)
    report = world.report(stage="start", percent=0) if ready else None
    world.reconcile(seconds, pods=pods, pod_creation_error=text + why, report=report)


QUOTA = "exceeded quota: q, requested: limits.cpu=1,pods=1, used: limits.cpu={},pods=3, limited: "
# Why pods are refused -> whether that stays until somebody mends it; the job has two workers.
REFUSALS: list[tuple[str, bool]] = [
    ('error looking up service account shop/nope: serviceaccount "nope" not found', True),
    ("no PriorityClass with name nope was found", True),
    ('pod rejected: RuntimeClass "nope" not found', True),
    ("unable to validate against any security context constraint: [provider restricted]", True),
    ('violates PodSecurity "restricted:latest": privileged (container "worker" must not)', True),
    ("failed quota: q: must specify limits.cpu for: worker", True),
    ("maximum memory usage per Container is 512Mi, but limit is 1Gi", True),
    ('admission webhook "policy.example" denied the request: no owner', True),
    (QUOTA + "limits.cpu=500m,pods=9", True),
    (QUOTA + "limits.cpu=1500m,pods=9", True),
    (QUOTA + "limits.cpu=9,pods=1", True),
    (QUOTA + "limits.cpu=2,pods=9", False),
    ('failed calling webhook "policy.example": context deadline exceeded', False),
]


@pytest.mark.parametrize("ready", [0, 1])
@pytest.mark.parametrize(("why", "lasts"), REFUSALS)
def test_pods_that_are_refused_for_good_end_the_job(why: str, lasts: bool, ready: int) -> None:
    world = starting()
    told = len(world.events)
    for i in range(42):
        refused(world, why.format(f"{i % 7}50m"), 3, ready)
    assert world.events[told : told + 1] == ["PodsRefused"]
    assert world.status["phase"] == ("Failed" if lasts else "Starting")
    if lasts:
        assert world.condition("Failed") == ("True", "PodsRefused")
        failed = world.status["lastFailure"]["message"]
        assert failed.startswith(f"{ready} of 2 pods are created: create Pod products-")
        assert failed.endswith("; it was not mended within 120 s")
    assert world.events.count("PodsRefused") == 1


def test_a_mistake_of_one_pod_ends_the_job_while_another_runs() -> None:
    """Rank 0 lists inputs and waits for a worker that lacks a volume."""
    world = starting()
    why = 'worker 1 cannot start: MountVolume.SetUp failed: configmap "y" not found'
    pods = world.pods(world.running(), {})
    for stage in ("start", "plan"):
        report = world.report(stage=stage, percent=0)
        world.reconcile(PATIENCE / 2 + 1, pods=pods, mount_error=why, report=report)
        assert (world.status["phase"], world.status["stage"]) == ("Starting", "FailedMount")
    world.reconcile(PATIENCE / 2, report=world.report(stage="plan", percent=0))
    assert world.condition("Failed") == ("True", "FailedMount")


def test_a_worker_that_is_not_ready_for_a_moment_ends_no_run() -> None:
    """All have been ready, or have met; a refused object of the job is no reason to end it."""
    world = starting()
    world.reconcile(2, pods=world.pods(world.running(), world.running()))
    world.reconcile(2, report=world.report(stage="start", percent=0))
    for stage in ("start", "start", "features", "features"):
        world.seen.children.pop("PodDisruptionBudget", None)
        refuse(world, "forbidden: exceeded quota")
        pods = world.pods(world.running(), {})
        world.reconcile(PATIENCE, pods=pods, report=world.report(stage=stage))
        assert world.status["phase"] == "Running"


def test_what_a_quota_says_is_read_with_the_advice_that_follows() -> None:
    """As the operator tells it; the API server's words alone have no advice."""
    for limit, lasts in (("pods=1", True), ("pods=2", False)):
        full = f'pods "products-0" is forbidden: {QUOTA.format(1)}limits.cpu=9,{limit}'
        advised = with_advice(full, "products")
        assert advised != full
        assert never_heals(advised, 2) is lasts
        assert is_full(advised, 2) is not lasts


def test_another_refusal_has_a_patience_of_its_own() -> None:
    world = starting()
    for why in (REFUSALS[11][0].format("9"), REFUSALS[0][0], REFUSALS[1][0]):
        refused(world, why)
        refused(world, why, PATIENCE - 1)
        assert world.status["phase"] == "Starting"


def test_a_registry_that_was_away_does_not_take_the_patience_with_a_name() -> None:
    world = starting()
    for message in (NO_REGISTRY, NO_IMAGE):
        world.reconcile(2, pods=world.pods(world.waiting("ErrImagePull", message)))
        world.reconcile(PATIENCE - 1, pods=world.pods(world.waiting("ErrImagePull", message)))
        assert world.status["phase"] == "Starting"


def test_a_quota_that_is_full_keeps_the_planner_waiting() -> None:
    """And one that is smaller than the planner does not."""
    for limit, phase in (("4Gi", "Planning"), ("1Gi", "Failed")):
        world = World(workers={"grid": "auto"})
        world.reconcile()
        for i in range(30):
            requested = f"requested: limits.memory=2Gi, used: limits.memory={i}Mi"
            refuse(
                world,
                f"is forbidden: exceeded quota: q, {requested}, limited: limits.memory={limit}",
            )
            world.reconcile(5)
        assert world.status["phase"] == phase
        assert world.events.count("ChildRefused") == 1


def test_what_a_job_waits_for_stands_in_the_place_of_the_stage() -> None:
    world = World()
    world.reconcile(competing_job="shop/first is publishing to s3://shop/embeddings")
    assert world.status["stage"] == "OutputInUse"
    world.reconcile(name_conflicts=["Service/products"], competing_job="")
    assert world.status["stage"] == "NameConflict"
    world.reconcile(name_conflicts=[])
    assert "stage" not in world.status
