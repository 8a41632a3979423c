"""Where a quota refuses a pod, the message says what to set: for workers, and for the planner."""

from __future__ import annotations

import pytest

from embertide_operator.decide.quota_advice import with_advice
from embertide_operator.decide.refusals import is_full, never_heals

FORBIDDEN = 'pods "{}" is forbidden: '
NOT_SET = "failed quota: q: must specify limits.cpu for: worker; requests.memory for: worker"
USED_UP = "exceeded quota: q, requested: limits.cpu=2, used: limits.cpu=3, limited: limits.cpu=4"


@pytest.mark.parametrize(
    ("pod", "why", "advice"),
    [
        (
            "auto-0",
            NOT_SET,
            "; set limits.cpu and requests.memory in spec.workers.resources, or for",
        ),
        (
            "auto-plan",
            NOT_SET,
            "; set limits.cpu and requests.memory in worker.planner.resources of",
        ),
        (
            "auto-0",
            USED_UP,
            "; lower spec.workers.resources, use fewer workers, wait, or raise the",
        ),
        (
            "auto-plan",
            USED_UP,
            "; lower worker.planner.resources of the operator's chart, or raise",
        ),
        (
            "auto-0",
            "failed quota: q: must specify limits.cpu for: mesh,worker",
            "; set limits.cpu of mesh in spec.workers.podTemplate",
        ),
        ("auto-0", "failed quota: q: must specify limits.cpu", "; set limits.cpu in spec.workers"),
    ],
)
def test_what_to_set(pod: str, why: str, advice: str) -> None:
    words = FORBIDDEN.format(pod) + why
    assert with_advice(words, "auto").startswith(words + advice)


def test_another_refusal_has_its_own_words() -> None:
    words = FORBIDDEN.format("auto-0") + "violates PodSecurity"
    assert with_advice(words, "auto") == words


QUOTA = "exceeded quota: q, requested: limits.cpu=1,pods=1, used: limits.cpu={},pods=3, limited: "


def test_what_a_quota_says_is_read_with_the_advice_that_follows() -> None:
    """As the operator tells it; the API server's words alone have no advice."""
    for limit, lasts in (("pods=1", True), ("pods=2", False)):
        full = f'pods "products-0" is forbidden: {QUOTA.format(1)}limits.cpu=9,{limit}'
        advised = with_advice(full, "products")
        assert advised != full
        assert never_heals(advised, 2) is lasts
        assert is_full(advised, 2) is not lasts
