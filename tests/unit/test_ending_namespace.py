"""A job in a namespace that is being deleted is left alone."""

from __future__ import annotations

import pytest

from embertide_operator.api.transport import ApiError
from embertide_operator.decide.ending_namespace import LEFT_ALONE_SECONDS, leave_alone
from tests.support.operator_world import World

REFUSED = (
    'statefulsets.apps "products" is forbidden: unable to create new content in namespace shop'
    " because it is being terminated"
)


@pytest.mark.parametrize(
    ("code", "message", "ends"),
    [
        (403, REFUSED, True),
        (403, 'services is forbidden: User "embertide" cannot create resource', False),
        (409, REFUSED, False),
    ],
)
def test_how_the_api_server_says_so(code: int, message: str, ends: bool) -> None:
    assert ApiError(code, message).namespace_is_terminating is ends


def test_nothing_more_is_done_or_told() -> None:
    world = World()
    world.reconcile()
    world.job["status"] = leave_alone(world.job, world.now).fields
    before = dict(world.status)
    assert world.condition("Progressing") == ("False", "NamespaceTerminating")
    for _ in range(3):
        decision = world.reconcile(60, children={}, pods=[])
        assert (decision.apply, decision.delete, decision.scale_to_zero) == ([], [], None)
    assert world.status == before
    assert world.events == ["Accepted", "AttemptStarted"]


def test_a_status_that_was_restored_elsewhere_does_not_hold_a_job_for_ever() -> None:
    world = World()
    world.reconcile()
    world.job["status"] = leave_alone(world.job, world.now).fields
    assert world.reconcile(LEFT_ALONE_SECONDS + 1, children={}, pods=[]).apply
