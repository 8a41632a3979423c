"""Whatever the definition lets through, the operator decides on it: a condition, never an error."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import HealthCheck, event, example, given, seed, settings

from embertide.spec.crd import crd
from embertide_operator.decide.decision import Decision
from embertide_operator.job.observe import is_finished
from embertide_operator.runtime.admission import Admission, Limits
from tests.support.crd_objects import fields, jobs
from tests.support.operator_world import World, raw_job

LARGEST = 2**63 - 1


def with_workers(**workers: Any) -> dict[str, Any]:
    return raw_job(
        workers={"grid": {"graph": 1}, "resources": {"limits": {"memory": "1Gi"}}} | workers
    )


@seed(20261126)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(jobs())
@example(with_workers(grid={"graph": LARGEST, "feature": 2}))
@example(raw_job(freshness={"maxAge": "9" * 18 + "d"}))
@example(raw_job(activeDeadlineSeconds=LARGEST, ttlSecondsAfterFinished=LARGEST))
@example(with_workers(resources={"limits": {"memory": "1e30"}}))
@example(with_workers(resources={"limits": {"memory": -1, "cpu": -1}}))
@example(with_workers(podTemplate={"spec": {"containers": {"name": "worker"}}}))
@example(with_workers(podTemplate={"spec": {"containers": [{"name": ["worker"]}]}}))
@example(with_workers(podTemplate={"metadata": {"labels": None}, "spec": {"containers": None}}))
def test_every_job_that_the_definition_takes_gets_a_condition(job: dict[str, Any]) -> None:
    """From its first pass to its end, also when it is suspended and when it fails."""
    world = World()
    world.job = copy.deepcopy(job)
    admission = Admission(Limits(total=3))
    for step in (first, again, running, suspended, failed):
        admission.note(world.job)
        admission.ask(world.job)
        check(world, step(world))
        admission.release(world.job["metadata"]["uid"], world.job)
        admission.shows_reason(world.job)


def first(world: World) -> Decision:
    return world.reconcile()


def again(world: World) -> Decision:
    return world.reconcile(1)


def running(world: World) -> Decision:
    pods = world.pods(*[world.running()] * 2) if "StatefulSet" in world.seen.children else []
    return world.reconcile(2, pods=pods)


def suspended(world: World) -> Decision:
    world.job["spec"]["suspend"] = True
    return world.reconcile(1)


def failed(world: World) -> Decision:
    """The job resumes, and its first worker fails."""
    world.job["spec"]["suspend"] = False
    world.reconcile(1, pods=[])
    world.reconcile(400)
    pods = world.pods(world.ended()) if "StatefulSet" in world.seen.children else []
    decision = world.reconcile(1, pods=pods)
    assert world.status["conditions"]
    is_finished(world.job)
    return decision


def check(world: World, decision: Decision) -> None:
    """The decision can be written, as the definition of the status wants it."""
    accepted = world.condition("Accepted")
    event(accepted[1])
    refused = (("False", "InvalidSpec"), ("False", "TooManyWorkers"))
    assert accepted in (("True", "Valid"), *refused), accepted
    json.dumps([decision.draft.fields, decision.apply], allow_nan=False)
    for path, bits in INTEGERS:
        for value in _values(decision.draft.fields, path):
            assert -(2**bits) <= value < 2**bits, path


STATUS = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
INTEGERS = [
    (path, 31 if schema["format"] == "int32" else 63)
    for path, schema in fields(STATUS)
    if schema.get("type") == "integer"
]


def _values(at: Any, path: tuple[Any, ...]) -> list[Any]:
    if not path:
        return [] if at is None else [at]
    if isinstance(path[0], int):
        return [value for item in at or () for value in _values(item, path[1:])]
    return _values(at.get(path[0]), path[1:]) if isinstance(at, dict) else []
