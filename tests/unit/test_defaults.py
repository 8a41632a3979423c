"""What the platform sets for the workers of all jobs: pod templates of the chart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.config.settings import Settings
from embertide_operator.decide.validate import read_job
from embertide_operator.pods.children import children, needs_plan, planner
from embertide_operator.pods.defaults import resources_of
from embertide_operator.pods.worker_pods import Attempt
from tests.support.operator_world import SETTINGS, UID, raw_job

ATTEMPT = Attempt(uid=UID, number=1, version="v", earlier=(), grid=GridShape.of(2, 1))
PLATFORM: dict[str, Any] = {
    "metadata": {
        "labels": {"team": "platform", "cost": "ml"},
        "annotations": {"mesh.example/inject": "false"},
    },
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"pool": "batch", "disk": "ssd"},
        "tolerations": [{"key": "batch", "operator": "Exists"}],
        "priorityClassName": "batch",
        "serviceAccountName": "workers",
        "runtimeClassName": "gvisor",
        "containers": [
            {
                "name": "worker",
                "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
                "resources": {
                    "requests": {"cpu": "2", "memory": "4Gi"},
                    "limits": {"cpu": "4", "memory": "4Gi"},
                },
            }
        ],
    },
}
SHOP = {"spec": {"priorityClassName": "shop", "nodeSelector": {"pool": "shop"}}}
SET = replace(SETTINGS, pod_template=PLATFORM, namespace_pod_templates={"shop": SHOP})


def job(namespace: str = "shop", **workers: Any) -> EmbeddingJob:
    raw = raw_job(workers={"grid": {"graph": 2}} | workers)
    raw["metadata"]["namespace"] = namespace
    spec_job = read_job(raw, SET)
    assert isinstance(spec_job, EmbeddingJob), spec_job
    return spec_job


def pod_of(spec_job: EmbeddingJob, settings: Settings = SET) -> dict[str, Any]:
    (statefulset,) = (
        c for c in children(spec_job, ATTEMPT, settings) if c["kind"] == "StatefulSet"
    )
    template: dict[str, Any] = statefulset["spec"]["template"]
    return template


def test_a_job_that_says_nothing_has_all_of_it() -> None:
    pod = pod_of(job("ads"))
    spec, (worker,) = pod["spec"], pod["spec"]["containers"]
    for name in ("imagePullSecrets", "nodeSelector", "priorityClassName", "serviceAccountName"):
        assert spec[name] == PLATFORM["spec"][name]
    assert spec["tolerations"][0] == {"key": "batch", "operator": "Exists"}
    assert pod["metadata"]["annotations"] == {"mesh.example/inject": "false"}
    assert pod["metadata"]["labels"]["cost"] == "ml"
    assert worker["resources"]["limits"] == {"cpu": "4", "memory": "4Gi"}
    assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in worker["env"]
    assert {"name": "EMBERTIDE_THREADS", "value": "4"} in worker["env"]
    assert not needs_plan(job("ads"), SET), "the memory is the platform's"


def test_only_with_a_grid_and_a_memory_no_planner_runs() -> None:
    """As GKE Autopilot's paragraph of install.md says it."""
    limits = {"limits": {"cpu": "1", "memory": "1Gi"}}
    assert needs_plan(job("ads", grid="auto", resources=limits), SETTINGS)
    assert needs_plan(job("ads", resources={"limits": {"cpu": "1"}}), SETTINGS)
    assert not needs_plan(job("ads", resources=limits), SETTINGS)


def test_a_namespace_changes_what_holds_for_all() -> None:
    spec = pod_of(job())["spec"]
    assert spec["priorityClassName"] == "shop"
    assert spec["nodeSelector"] == {"pool": "shop", "disk": "ssd"}
    assert spec["runtimeClassName"] == "gvisor"


def test_the_job_wins() -> None:
    template = {
        "metadata": {"labels": {"team": "search"}},
        "spec": {
            "nodeSelector": {"pool": "own"},
            "tolerations": [{"key": "own", "operator": "Exists"}],
            "imagePullSecrets": [{"name": "mine"}],
            "runtimeClassName": None,
        },
    }
    pod = pod_of(job(podTemplate=template, serviceAccountName="reader"))
    spec = pod["spec"]
    assert pod["metadata"]["labels"]["team"] == "search"
    assert spec["nodeSelector"] == {"pool": "own", "disk": "ssd"}
    assert [item["key"] for item in spec["tolerations"]][:2] == ["own", "batch"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "mine"}]
    assert spec["serviceAccountName"] == "reader"
    assert "runtimeClassName" not in spec, "null takes a default away"


def test_a_resource_that_the_job_names_is_the_jobs_alone() -> None:
    """A default request above the job's own limit would be refused by the API server."""
    resources = resources_of(job(resources={"limits": {"cpu": "1"}}), SET)
    assert resources == {
        "requests": {"memory": "4Gi"},
        "limits": {"memory": "4Gi", "cpu": "1"},
    }
    assert resources_of(job(resources={"requests": {"cpu": 1, "memory": "1Gi"}}), SET) == {
        "requests": {"cpu": 1, "memory": "1Gi"},
    }


def test_the_planner_has_the_platforms_placement_and_not_its_workers_resources() -> None:
    spec_job = job(grid="auto", device="cuda", image="w:cuda", podTemplate={
        "spec": {"nodeSelector": {"gpu": "h200"}, "tolerations": [{"key": "gpu"}]},
    })  # fmt: skip
    spec = planner(spec_job, ATTEMPT, SET)["spec"]
    assert spec["nodeSelector"] == {"pool": "shop", "disk": "ssd"}
    assert [item["key"] for item in spec["tolerations"]][:2] == ["gpu", "batch"]
    assert spec["containers"][0]["resources"] == SETTINGS.planner_resources
    assert "DoesNotExist" in json.dumps(spec["affinity"])


def test_the_planner_keeps_the_platforms_affinity_beside_its_own() -> None:
    arm = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [arm]}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {required: terms}, "podAntiAffinity": {}}
    settings = replace(SET, pod_template={"spec": {"affinity": affinity}})
    spec_job = job(grid="auto", device="cuda", image="w:cuda")
    spec = planner(spec_job, ATTEMPT, settings)["spec"]
    (term,) = spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    assert term["matchExpressions"][0] == arm
    assert len(term["matchExpressions"]) == 1 + len(SETTINGS.gpu_node_labels)
    assert "podAntiAffinity" in spec["affinity"]


def test_the_planners_resources_are_a_setting() -> None:
    wanted = {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "4Gi"}}
    settings = replace(SETTINGS, planner_resources=wanted)
    spec = planner(job(grid="auto"), ATTEMPT, settings)["spec"]
    assert spec["containers"][0]["resources"] == wanted


def test_by_default_every_pod_has_limits_of_cpu_and_memory() -> None:
    """As a quota of limits.cpu and limits.memory wants them."""
    spec = planner(job(grid="auto"), ATTEMPT, Settings(image="w:1"))["spec"]
    assert set(spec["containers"][0]["resources"]["limits"]) == {"cpu", "memory"}


def read(**variables: Any) -> Settings:
    return Settings.from_environment(
        {f"EMBERTIDE_{name.upper()}": json.dumps(value) for name, value in variables.items()}
    )


def test_they_come_from_the_environment() -> None:
    settings = read(pod_template=PLATFORM, namespace_pod_templates={"shop": SHOP})
    assert settings.pod_template == PLATFORM
    assert settings.namespace_pod_templates == {"shop": SHOP}
    assert Settings.from_environment({"EMBERTIDE_POD_TEMPLATE": ""}).pod_template == {}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("pod_template", [], "a pod template as a JSON object"),
        ("pod_template", {"specs": {}}, r"worker\.podTemplate\.specs: unknown field"),
        ("pod_template", {"spec": {"restartPolicy": "Never"}}, "restartPolicy: cannot be set"),
        ("pod_template", {"spec": {"containers": [{"name": "worker", "image": "x"}]}},
         "set the worker's image by worker.image"),
        ("pod_template", {"spec": {"containers": [{"name": "worker",
                                                   "resources": {"limits": {"cpu": "many"}}}]}},
         "limits.cpu: must be like 500m"),
        ("namespace_pod_templates", {"shop": 3}, r"worker\.namespaces\.shop\.podTemplate: must be"),
        ("planner_resources", {"limits": {"memory": "x"}}, "resources.limits.memory: must be like"),
        ("planner_resources", {"limit": {}}, "only limits and requests"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_at_the_start(name: str, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(**{name: value})
