"""The objects of a job: what they ask for, and what a job may change about them, as texts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from embertide_operator.api.routes import kind_of
from embertide_operator.config.settings import Settings
from embertide_operator.job.observe import is_managed_elsewhere
from embertide_operator.pods.children import child_kinds, children
from tests.support.expected import Expected, inputs
from tests.support.job_children import ATTEMPT, job
from tests.support.objects import objects_text
from tests.support.operator_world import SETTINGS, raw_job

FILE = "objects.txt"
VOLCANO = replace(SETTINGS, pod_groups="volcano", group_scheduler="volcano")
COSCHEDULING = replace(SETTINGS, pod_groups="coscheduling", group_scheduler="sched")


@pytest.mark.parametrize("name", inputs(FILE))
def test_the_objects_of_a_job(name: str, expected: Expected) -> None:
    case = inputs(FILE)[name]
    expected.check(FILE, name, f"{case}--\n{objects_text(case)}", inputs(FILE))


@pytest.mark.parametrize("settings", [SETTINGS, VOLCANO, COSCHEDULING])
def test_every_kind_is_known_and_the_statefulset_is_last(settings: Settings) -> None:
    """Its pods find all others there."""
    kinds = [kind_of(child) for child in children(job(), ATTEMPT, settings)]
    assert set(kinds) == set(child_kinds(settings))
    assert kinds[-1] == "StatefulSet"


@pytest.mark.parametrize(
    ("name", "elsewhere"),
    [(None, False), ("embertide.dev/operator", False), ("kueue.x-k8s.io/multikueue", True)],
)
def test_a_job_of_another_controller_is_left_alone(name: str | None, elsewhere: bool) -> None:
    assert is_managed_elsewhere(raw_job(managedBy=name)) is elsewhere
    assert is_managed_elsewhere(raw_job()) is False
