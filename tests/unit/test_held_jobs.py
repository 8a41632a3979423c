"""The operator's decisions about jobs whose version a gate holds."""

from __future__ import annotations

import pytest

from embertide.errors import VersionHeld
from embertide.spec.reports import OutputReport
from embertide.submit.wait import refuse_held
from tests.support.operator_world import World

WHY = "rows removed: 50.0%; maxRemovedRows is 10%"


def held_world() -> World:
    """A job that has computed a version which its gate holds."""
    world = World(freshness={"maxAge": "1h"})
    world.reconcile()
    output = world.output().model_copy(update={"current": False, "held": WHY})
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": output.to_text()}}
    world.reconcile(5, pods=world.pods({"state": ended}, world.running()))
    return world


def test_who_waits_for_the_job_learns_of_it() -> None:
    with pytest.raises(VersionHeld, match=rf"products: version \S+ is complete but held: {WHY}"):
        refuse_held("products", held_world().status)
    refuse_held("products", {"output": {"version": "V"}})


def test_reasons_fit_into_a_termination_message() -> None:
    whole = {"version": "V", "rows": 1, "dim": 1, "manifest_digest": "d" * 64}
    output = OutputReport(**whole, uri="s3://" + "u" * 3000, held="h" * 1000)
    again = OutputReport.parse(output.to_text())
    assert again is not None
    assert again.held == output.held
