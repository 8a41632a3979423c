"""Running out of memory is reported as that wherever a job's failure is shown."""

from __future__ import annotations

from typing import Any

import pytest

from embertide.spec.reports import Ending
from tests.support.operator_world import World

BROKEN = Ending(reason="Internal", message="EOFError: unexpected EOF", exit_code=1, rank=1)
"""What a process reports that was talking to the one that the kernel killed."""
LOST = Ending(reason="WorkerFailed", message="lost worker 0", exit_code=8, rank=1, peer=True)
TOLD = Ending(reason="OutOfMemory", message="worker 1 ran out of memory", exit_code=8, rank=1)
BAD_ROW = Ending(reason="Input", message="row 7", exit_code=3, rank=1, permanent=True)


def failed(ending: Ending | None, limit: Any = "200Mi") -> tuple[World, list[str]]:
    """A job whose worker 1 was killed for memory, and the messages of the last Events."""
    world = World(backoffLimit=0)
    world.reconcile()
    pods = world.pods(world.running(), world.ended(ending, reason="OOMKilled"))
    resources = {"limits": {"memory": limit}} if limit else {}
    for pod in pods:
        pod["spec"] = {"containers": [{"name": "worker", "resources": resources}]}
    decision = world.reconcile(1, pods=pods)
    return world, [event.message for event in decision.draft.events]


@pytest.mark.parametrize("ending", [None, BROKEN, LOST])
def test_the_cause_is_memory_and_not_what_it_broke(ending: Ending | None) -> None:
    world, events = failed(ending)
    message = (
        "worker 1 ran out of memory: its container used all of its memory limit, 200Mi, and was"
        " killed; use more workers, or raise spec.workers.resources.limits.memory"
    )
    last = world.status["lastFailure"]
    assert (last["reason"], last["message"], last["worker"]) == (
        "OutOfMemory", message, "products-1",
    )  # fmt: skip
    whole = f"1 attempt failed, spec.backoffLimit is 0; last failure: OutOfMemory: {message}"
    (condition,) = [c for c in world.status["conditions"] if c["type"] == "Failed"]
    assert condition["message"] == whole
    assert events == [whole]


@pytest.mark.parametrize("ending", [TOLD, BAD_ROW])
def test_a_worker_that_knows_the_cause_is_believed(ending: Ending) -> None:
    world, _ = failed(ending)
    last = world.status["lastFailure"]
    assert (last["reason"], last["message"]) == (ending.reason, ending.message)


@pytest.mark.parametrize(
    ("limit", "shown"), [("1Gi", "1Gi"), ("209715200", "200Mi"), ("512", "512"), (None, None)]
)
def test_the_limit_is_shown_in_a_unit(limit: str | None, shown: str | None) -> None:
    world, _ = failed(None, limit)
    used = f"all of its memory limit, {shown}" if shown else "all of the memory that it may use"
    assert f"its container used {used}, and" in world.status["lastFailure"]["message"]


@pytest.mark.parametrize("ending", [None, BROKEN])
def test_the_planner_too(ending: Ending | None) -> None:
    world = World(workers={"grid": "auto"}, backoffLimit=0)
    world.reconcile()
    end = world.ended(ending, reason="OOMKilled")
    (pod,) = world.pods({"state": end["lastState"]})
    pod["metadata"]["labels"]["embertide.dev/role"] = "planner"
    pod["spec"] = {"containers": [{"name": "worker", "resources": {"limits": {"memory": "2Gi"}}}]}
    world.reconcile(1, pods=[pod])
    last = world.status["lastFailure"]
    assert last["reason"] == "OutOfMemory"
    assert last["message"].startswith("the planner ran out of memory: its container used all of")
