"""Which versions of earlier attempts a job remembers: those that can still hold something."""

from __future__ import annotations

from typing import Any

from embertide.spec.reports import Ending, ProgressReport
from embertide_operator.decide.earlier_versions import MOST, with_next
from tests.support.operator_world import World

CRASH = Ending(reason="WorkerFailed", message="worker 1 died", exit_code=8, rank=1)


def attempt(world: World, stage: str = "") -> str:
    """One attempt that fails, after rank 0 was seen in a stage; returns its version."""
    while "attemptStartTime" not in world.status:
        world.reconcile(5, pods=[], report=None)
    version: str = world.status["versions"][-1]
    if stage:
        at = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        progress = ProgressReport(stage=stage, last_update_time=at)
        report = world.report().model_copy(update={"progress": progress})
        world.reconcile(1, pods=world.pods(world.running(), world.running()), report=report)
    world.reconcile(1, pods=world.pods(world.running(), world.ended(CRASH)), report=None)
    return version


def job(**spec: Any) -> World:
    world = World(backoffLimit=100, **spec)
    world.reconcile()
    return world


def earlier(world: World) -> list[str]:
    """What the next attempt's workers are told to look at."""
    found = {}
    while not found:
        found = {child["kind"]: child for child in world.reconcile(400, pods=[]).apply}
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item.get("value", "") for item in container["env"]}
    return [name for name in env["EMBERTIDE_EARLIER_VERSIONS"].split(",") if name]


def test_what_rank_0_has_not_looked_at_stays() -> None:
    world = job()
    versions = [attempt(world, stage) for stage in ("", "start", "")]
    assert earlier(world) == versions


def test_once_rank_0_was_at_work_only_its_own_version_matters() -> None:
    world = job()
    attempt(world)
    attempt(world, "infer")
    last = attempt(world, "plan")
    assert earlier(world) == [last]


def test_an_attempt_that_was_only_planned_has_written_nothing() -> None:
    world = World(workers={"grid": "auto"})
    world.reconcile()
    world.job["spec"]["workers"] = {"grid": "auto", "count": 2}
    world.job["metadata"]["generation"] = 2
    world.reconcile(1)
    world.reconcile(1)
    assert (world.status["attempt"], len(world.status["versions"])) == (2, 1)


def test_suspended_while_it_is_planned_it_forgets_that_version_alone() -> None:
    world = World(workers={"grid": "auto"}, backoffLimit=9)
    world.reconcile()
    world.status["versions"] = ["20261121T110000Z-abcdef", *world.status["versions"]]
    world.job["spec"]["suspend"] = True
    planner = {"metadata": {"name": "products-plan", "uid": "p", "labels": {
        "embertide.dev/role": "planner", "embertide.dev/attempt": "1",
    }}}  # fmt: skip
    for _ in range(3):
        world.reconcile(1, pods=[planner])
    assert world.status["versions"] == ["20261121T110000Z-abcdef"]


def test_resuming_does_not_forget() -> None:
    world = job()
    world.reconcile(3, pods=world.pods(world.running(), world.running()), report=None)
    (version,) = world.status["versions"]
    world.job["spec"]["suspend"] = True
    world.reconcile(1)
    world.reconcile(1, pods=[])
    world.job["spec"]["suspend"] = False
    assert earlier(world) == [version]


def test_there_are_ten_at_most_and_the_one_that_may_have_written_stays() -> None:
    world = job()
    wrote = attempt(world, "publish")
    silent = [attempt(world) for _ in range(30)]
    told = earlier(world)
    assert len(world.status["versions"]) == MOST
    assert told == [wrote, *silent[-(MOST - 2) :]]


def test_the_next_one_is_added_at_the_end() -> None:
    assert with_next([], "a") == ["a"]
    assert with_next(["a"], "b") == ["a", "b"]
    many = [f"v{number:02}" for number in range(40)]
    assert with_next(many, "next") == ["v00", *many[-8:], "next"]
