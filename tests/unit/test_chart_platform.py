"""What a platform sets in the chart for all: umbrella charts, room, templates, pods that submit."""

from __future__ import annotations

import pytest
import yaml

from embertide_operator.config.settings import Settings
from tests.support import chart
from tests.support.chart_platform import PLATFORM

pytestmark = pytest.mark.needs("helm")


def job_of_test(objects: list[chart.Object]) -> chart.Object:
    """The EmbeddingJob of ``helm test``."""
    tests = [o for o in objects if "helm.sh/hook" in o["metadata"].get("annotations", {})]
    job: chart.Object = yaml.safe_load(chart.only(tests, "ConfigMap")["data"]["job.yaml"])
    return job


def test_what_the_platform_sets_reaches_the_operator() -> None:
    """As the operator reads it; the schema and the operator agree on what is right."""
    deployment = chart.only(chart.render(PLATFORM), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    settings = Settings.from_environment({v["name"]: v.get("value", "") for v in container["env"]})
    worker = PLATFORM["worker"]
    assert settings.pod_template == worker["podTemplate"]
    assert settings.namespace_pod_templates == {"shop": worker["namespaces"]["shop"]["podTemplate"]}
    limits = {"cpu": 2, "memory": "1Gi"}
    assert settings.planner_resources == {"requests": {"cpu": "100m"}, "limits": limits}


def test_the_chart_and_the_operator_have_the_same_defaults() -> None:
    deployment = chart.only(chart.render(), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    settings = Settings.from_environment({v["name"]: v.get("value", "") for v in container["env"]})
    for name in ("planner_resources", "pod_template", "max_workers_per_job", "max_running_workers"):
        assert getattr(settings, name) == getattr(Settings(), name), name


def test_pods_that_submit_pass_a_quota_of_cpu_and_memory() -> None:
    test = chart.only(chart.render(), "Pod")["spec"]["containers"][0]
    assert set(test["resources"]["limits"]) == {"cpu", "memory"}
    job = job_of_test(chart.render())
    workers = job["spec"]["workers"]
    for pod in (workers, *workers["podTemplate"]["spec"]["initContainers"]):
        assert set(pod["resources"]["limits"]) == {"cpu", "memory"}


def test_pods_that_submit_have_what_the_values_say() -> None:
    pod = chart.only(chart.render(PLATFORM), "Pod")
    assert pod["metadata"]["annotations"]["mesh.example/inject"] == "false"
    assert pod["metadata"]["labels"]["team"] == "ml"
    assert pod["spec"]["priorityClassName"] == "high"
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == "300Mi"
