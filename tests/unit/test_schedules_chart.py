"""The chart's schedules: what their CronJobs say, what is refused, and the example without Helm."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from embertide.submit.firing import ENV_JOB, JOB_NAME_LABEL, Firing
from embertide.submit.placeholders import fill
from embertide.submit.policy import Policy
from embertide.submit.template import job_of, to_object
from tests.support import chart, chart_schemas
from tests.support.chart_texts import SCHEDULE
from tests.support.job_cases import BASE, TAKEN
from tests.support.manifests import put
from tests.support.paths import ROOT

pytestmark = pytest.mark.needs("helm", "charts", "chart-sources")

WEEKLY = SCHEDULE | {
    "name": "weekly",
    "schedule": "@weekly",
    "concurrencyPolicy": "Replace",
    "startingDeadlineSeconds": 2000000,
    "successfulJobsHistoryLimit": 0,
    "failedJobsHistoryLimit": 1,
    "suspend": True,
    "wait": True,
}


def rendered(*schedules: dict[str, Any], **values: Any) -> list[chart.Object]:
    """The objects of some schedules."""
    objects = chart.render({"schedules": list(schedules), **values})
    return [item for item in objects if item["metadata"]["labels"].get("embertide.dev/schedule")]


def pod_of(cron_job: chart.Object) -> chart.Object:
    """The pod template of a CronJob."""
    pod: chart.Object = cron_job["spec"]["jobTemplate"]["spec"]["template"]
    return pod


def without_labels(value: Any) -> Any:
    """A copy without what a release adds."""
    if isinstance(value, list):
        return [without_labels(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: without_labels(item) for key, item in value.items() if key != "labels"}
    kept.pop("namespace", None)
    return {key: item for key, item in kept.items() if key != "metadata" or item}


def test_no_schedule_makes_nothing() -> None:
    assert rendered() == []


def test_everything_is_valid(tmp_path: Path) -> None:
    chart_schemas.write(tmp_path)
    values = {"imagePullSecrets": [{"name": "x"}], "nodeSelector": {"pool": "system"}}
    objects = rendered(SCHEDULE, WEEKLY, **values)
    assert len(objects) == 10
    for name in ("products", "weekly"):
        jobs = yaml.safe_load(
            chart.only(objects, "ConfigMap", f"{name}-submit")["data"]["job.yaml"]
        )
        objects.append(jobs)
    assert chart.kubeconform(objects, tmp_path, chart_schemas.LOCATION) == ""


def test_the_example_is_what_the_chart_makes() -> None:
    path = ROOT / "examples/schedule.yaml"
    example = {item["kind"]: item for item in yaml.safe_load_all(path.read_text())}
    made = {item["kind"]: item for item in rendered(SCHEDULE)}
    assert example.keys() == made.keys()
    for objects in (example, made):
        objects["ConfigMap"]["data"] = yaml.safe_load(objects["ConfigMap"]["data"]["job.yaml"])
    for kind, item in example.items():
        assert without_labels(made[kind]) == without_labels(item), kind


def test_the_values_of_the_documentation() -> None:
    text = (ROOT / "docs/schedules.md").read_text()
    (block,) = (b for b in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "schedules:" in b)
    objects = rendered(*yaml.safe_load(block)["schedules"])
    assert chart.only(objects, "CronJob")["metadata"]["namespace"] == "shop"


def test_what_a_schedule_says_stands_in_its_cron_job() -> None:
    spec = chart.only(rendered(SCHEDULE, WEEKLY), "CronJob", "weekly")["spec"]
    assert spec.pop("jobTemplate")["spec"].get("activeDeadlineSeconds") is None
    assert spec == {
        "schedule": "@weekly",
        "timeZone": "Europe/Berlin",
        "concurrencyPolicy": "Replace",
        "startingDeadlineSeconds": 2000000,
        "successfulJobsHistoryLimit": 0,
        "failedJobsHistoryLimit": 1,
        "suspend": True,
    }


def test_the_command_submits_as_the_values_say() -> None:
    (weekly,) = pod_of(chart.only(rendered(WEEKLY), "CronJob"))["spec"]["containers"]
    assert weekly["command"] == [
        "embertide", "submit", "/job/job.yaml",
        "--time-zone=Europe/Berlin", "--policy=Replace", "--wait",
    ]  # fmt: skip
    (job,) = (variable for variable in weekly["env"] if variable["name"] == ENV_JOB)
    field = job["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == f"metadata.labels['{JOB_NAME_LABEL}']"


def test_the_output_of_targets_is_apart() -> None:
    template = put(SCHEDULE, "jobTemplate.spec.inference", {"targets": {"ids": [3]}})
    found = chart.only(rendered(template), "CronJob")["metadata"]["annotations"]
    assert found["embertide.dev/output"] == "s3://shop/embeddings/products/_targets"


def test_time_zone_and_namespace_by_default() -> None:
    short = {key: SCHEDULE[key] for key in ("name", "schedule", "jobTemplate")}
    objects = rendered(short)
    spec = chart.only(objects, "CronJob")["spec"]
    assert (spec["timeZone"], spec["concurrencyPolicy"]) == ("UTC", "Forbid")
    assert {item["metadata"]["namespace"] for item in objects} == {"tools"}


@pytest.mark.parametrize(
    ("policy", "verbs"),
    [
        ("Allow", ["create", "get", "list"]),
        ("Forbid", ["create", "get", "list"]),
        ("Replace", ["create", "get", "list", "delete"]),
    ],
)
def test_rights_are_those_that_the_policy_needs(policy: str, verbs: list[str]) -> None:
    role = chart.only(rendered(SCHEDULE | {"concurrencyPolicy": policy}), "Role")
    assert policy in list(Policy)
    assert role["rules"] == [
        {"apiGroups": ["embertide.dev"], "resources": ["embeddingjobs"], "verbs": verbs},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]},
    ]


def test_rights_can_be_left_to_others() -> None:
    kinds = {item["kind"] for item in rendered(SCHEDULE, rbac={"create": False})}
    assert kinds == {"ConfigMap", "CronJob", "ServiceAccount"}


def test_the_template_can_be_submitted(tmp_path: Path) -> None:
    """What lies in the ConfigMap is read by submit as the values meant it."""
    labels = {"labels": {"day": "{date}"}, "annotations": {"note": "{{ {datetime}"}}
    schedule = put(SCHEDULE, "jobTemplate.metadata", labels)
    schedule = put(schedule, "jobTemplate.spec.inference", {"fanout": [25, 10], "seed": 12345678})
    text = chart.only(rendered(schedule), "ConfigMap")["data"]["job.yaml"]
    (tmp_path / "job.yaml").write_text(text)
    time = datetime(2026, 11, 22, 2, 0, tzinfo=UTC)
    firing = Firing.at(time, ZoneInfo("Europe/Berlin"), automatic=True)
    job = to_object(job_of(tmp_path / "job.yaml", firing))
    assert job["metadata"]["name"] == "products-20261122-0200"
    assert job["metadata"]["labels"]["day"] == "2026-11-22"
    assert job["metadata"]["annotations"]["note"] == "{ 20261122T0300"
    assert job["spec"]["input"]["edges"][0]["uri"] == "s3://shop/edges/dt=2026-11-21/"
    assert job["spec"]["inference"] == {"fanout": [25, 10], "seed": 12345678}
    assert job["spec"]["ttlSecondsAfterFinished"] == 604800


def test_all_fields_of_a_job_are_taken() -> None:
    """Every job that the definition takes is one that a schedule may have."""
    for case in TAKEN:
        spec = case.mutate(BASE)["spec"]
        spec.pop("ttlSecondsAfterFinished", None)
        schedule = SCHEDULE | {"jobTemplate": {"spec": spec}}
        made = chart.template({"schedules": [schedule]})
        assert made.returncode == 0, f"{case.name}: {made.stderr}"


PLACEHOLDERS = (
    "{date}", "{datetime-6h}", "{date:%Y/%m/%d}", "x{{y}}{date+1w}", "{date-1mo:%j}",
    "{{{date}}}", "{dtae}", "{date", "date}", "{date}}", "{date-1y}", "{date:%s}", "{}", "{ date}",
    "{DATE}", "{date-d}", "{datetime -1h}", "}{",
)  # fmt: skip


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_the_chart_and_submit_know_the_same_placeholders(text: str) -> None:
    time = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
    try:
        fill(text, time)
        known = True
    except ValueError:
        known = False
    schedule = put(SCHEDULE, "jobTemplate.spec.input.edges.0.uri", f"s3://shop/{text}/")
    made = chart.template({"schedules": [schedule]})
    assert (made.returncode == 0) == known, made.stderr
    if not known:
        assert "products: jobTemplate.spec.input.edges[0].uri is" in made.stderr
