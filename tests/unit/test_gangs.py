"""What queues and schedulers of groups are told, in the shapes of their own definitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.api.routes import kind_of
from embertide_operator.config.settings import Settings
from embertide_operator.decide.validate import read_job
from embertide_operator.job.observe import is_managed_elsewhere
from embertide_operator.pods.children import child_kinds, children, planner
from embertide_operator.pods.worker_pods import Attempt
from tests.support.operator_world import SETTINGS, UID, raw_job

ATTEMPT = Attempt(uid=UID, number=1, version="v", earlier=(), grid=GridShape.of(2, 2))
VOLCANO = replace(SETTINGS, pod_groups="volcano", group_scheduler="volcano")
COSCHEDULING = replace(SETTINGS, pod_groups="coscheduling", group_scheduler="sched")
MARK = {
    "volcano": ("annotations", "scheduling.k8s.io/group-name"),
    "coscheduling": ("labels", "scheduling.x-k8s.io/pod-group"),
}


def job(labels: dict[str, str] | None = None, **template: Any) -> EmbeddingJob:
    raw = raw_job()
    raw["metadata"]["labels"] = labels or {}
    if template:
        raw["spec"]["workers"]["podTemplate"] = template
    found = read_job(raw, SETTINGS)
    assert isinstance(found, EmbeddingJob), found
    return found


def of(kind: str, spec: EmbeddingJob, settings: Settings = SETTINGS) -> dict[str, Any]:
    (found,) = (c for c in children(spec, ATTEMPT, settings) if c["kind"] == kind)
    return found


def test_kueue_finds_queue_and_priority_at_the_statefulset() -> None:
    queue = {"kueue.x-k8s.io/queue-name": "nightly", "kueue.x-k8s.io/priority-class": "high"}
    found = job(queue | {"team": "search"})
    meta = of("StatefulSet", found)["metadata"]
    assert queue.items() <= meta["labels"].items()
    assert "team" not in meta["labels"]
    alone = planner(found, ATTEMPT, SETTINGS)["metadata"]["labels"]
    assert not set(queue) & set(alone), "Kueue would count it as one of the workers"


def test_volcano_takes_the_size_from_the_statefulset() -> None:
    annotations = of("StatefulSet", job())["metadata"]["annotations"]
    assert annotations["scheduling.volcano.sh/group-min-member"] == "4"


def test_without_a_setting_there_are_no_groups() -> None:
    assert "PodGroup" not in {child["kind"] for child in children(job(), ATTEMPT, SETTINGS)}
    assert not [kind for kind in child_kinds(SETTINGS) if kind.startswith("PodGroup")]


@pytest.mark.parametrize(
    ("settings", "version"),
    [(VOLCANO, "scheduling.volcano.sh/v1beta1"), (COSCHEDULING, "scheduling.x-k8s.io/v1alpha1")],
)
def test_all_workers_are_one_group_and_the_planner_none_of_it(
    settings: Settings, version: str
) -> None:
    built = children(job(), ATTEMPT, settings)
    group = of("PodGroup", job(), settings)
    assert built.index(group) < len(built) - 1, "it is there before its pods"
    assert (group["apiVersion"], group["spec"]) == (version, {"minMember": 4})
    assert {kind_of(child) for child in built} == set(child_kinds(settings))
    place, key = MARK[settings.pod_groups]
    template = of("StatefulSet", job(), settings)["spec"]["template"]
    assert template["metadata"][place][key] == group["metadata"]["name"] == "products"
    assert template["spec"]["schedulerName"] == settings.group_scheduler
    alone = planner(job(), ATTEMPT, settings)
    assert key not in alone["metadata"].get(place, {})
    assert "schedulerName" not in alone["spec"]


@pytest.mark.parametrize("settings", [VOLCANO, COSCHEDULING], ids=lambda s: s.pod_groups)
def test_a_job_may_have_another_scheduler_or_a_group_of_its_own(settings: Settings) -> None:
    place, key = MARK[settings.pod_groups]
    for template in ({"spec": {"schedulerName": "other"}}, {"metadata": {place: {key: "mine"}}}):
        built = children(job(**template), ATTEMPT, settings)
        assert "PodGroup" not in {child["kind"] for child in built}
        marked = built[-1]["spec"]["template"]["metadata"].get(place, {}).get(key)
        assert marked == template.get("metadata", {}).get(place, {}).get(key)


def test_a_default_scheduler_with_the_plugin_needs_no_name() -> None:
    settings = replace(COSCHEDULING, group_scheduler="")
    template = of("StatefulSet", job(), settings)["spec"]["template"]
    assert "schedulerName" not in template["spec"]
    assert of("PodGroup", job(), settings)


def test_volcanos_group_has_queue_and_priority_of_the_pods() -> None:
    given = {
        "metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "batch"}},
        "spec": {"priorityClassName": "low"},
    }
    spec = of("PodGroup", job(**given), VOLCANO)["spec"]
    assert spec == {"minMember": 4, "queue": "batch", "priorityClassName": "low"}
    assert of("PodGroup", job(**given), COSCHEDULING)["spec"] == {"minMember": 4}


@pytest.mark.parametrize(
    ("name", "elsewhere"),
    [(None, False), ("embertide.dev/operator", False), ("kueue.x-k8s.io/multikueue", True)],
)
def test_a_job_of_another_controller_is_left_alone(name: str | None, elsewhere: bool) -> None:
    assert is_managed_elsewhere(raw_job(managedBy=name)) is elsewhere
    assert is_managed_elsewhere(raw_job()) is False
