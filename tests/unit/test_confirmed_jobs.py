"""The operator's decisions about jobs whose current version is what they would compute."""

from __future__ import annotations

from typing import Any

from embertide.spec.reports import OutputReport
from tests.support.operator_world import World

AUTO = {"grid": "auto"}
CURRENT = OutputReport(
    version="20261121T041922Z-3fa9c1",
    uri="s3://shop/embeddings/versions/20261121T041922Z-3fa9c1",
    rows=10,
    dim=4,
    manifest_digest="ab12",
    confirmed=True,
)


def planner_pod(world: World, output: OutputReport) -> dict[str, Any]:
    """The planner's pod, which has ended."""
    end = {"exitCode": 0, "message": output.to_text()}
    (pod,) = world.pods({"state": {"terminated": end}})
    pod["metadata"]["labels"]["embertide.dev/role"] = "planner"
    return pod


def test_no_worker_starts_where_the_planner_confirms_the_version() -> None:
    world = World(workers=AUTO, freshness={"maxAge": "1h"})
    world.reconcile()
    done = world.reconcile(5, pods=[planner_pod(world, CURRENT)])
    assert world.status["phase"] == "Succeeded"
    assert [child["kind"] for child in done.apply] == []
    assert len(done.delete) == 1
    assert world.status["output"]["version"] == CURRENT.version
    assert world.status["output"]["confirmed"] is True
    assert world.condition("Published") == ("True", "Confirmed")
    assert world.condition("Complete") == ("True", "Confirmed")
    assert world.condition("Fresh") == ("True", "WithinMaxAge")
    assert world.events[-2:] == ["Confirmed", "Completed"]
    message = next(c for c in world.status["conditions"] if c["type"] == "Published")["message"]
    assert message.endswith("inputs, model and job have not changed, so nothing was computed")
    world.reconcile(5, pods=[])  # the planner is gone
    assert world.status["output"]["version"] == CURRENT.version
    assert world.condition("Complete") == ("True", "Confirmed")


def test_a_confirmed_version_that_is_gone_meanwhile_is_not_current() -> None:
    world = World(workers=AUTO, freshness={"maxAge": "1h"})
    world.reconcile()
    moved = CURRENT.model_copy(update={"current": False})
    world.reconcile(5, pods=[planner_pod(world, moved)])
    assert world.condition("Published") == ("True", "NotCurrent")
    assert world.condition("Fresh") == ("False", "NeverPublished")


def test_rank_zero_may_confirm_the_version() -> None:
    """Where a job sets grid and memory itself, no planner runs."""
    world = World()
    world.reconcile()
    confirmed = {name: getattr(CURRENT, name) for name in ("version", "uri", "confirmed")}
    world.reconcile(5, pods=world.pods(world.published(held=False, **confirmed), world.running()))
    assert world.status["phase"] == "Succeeded"
    assert world.status["output"]["version"] == CURRENT.version
    assert world.condition("Complete") == ("True", "Confirmed")
