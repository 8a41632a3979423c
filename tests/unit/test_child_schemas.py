"""Every object of a job against the schema that its API has, which knows all of its fields."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.config.settings import Settings
from embertide_operator.decide.validate import read_job
from embertide_operator.pods.children import children, looker, planner
from embertide_operator.pods.worker_pods import Attempt
from embertide_operator.schedules.sync import schedule_object
from tests.support import chart, chart_schemas
from tests.support.operator_world import SETTINGS, UID, raw_job

pytestmark = pytest.mark.needs("charts", "chart-sources", "helm")

CRON_JOB = {"metadata": {"name": "nightly", "namespace": "shop", "uid": UID}}
ATTEMPT = Attempt(uid=UID, number=1, version="v", earlier=(), grid=GridShape.of(2, 1))
PEER = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
FULL = replace(SETTINGS, image_cuda="w:cuda", network_policy=True, http_peers=(PEER,))
TEMPLATE = {
    "metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "batch"}},
    "spec": {"priorityClassName": "low", "nodeSelector": {"pool": "gpu"}},
}


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    chart_schemas.write(folder)
    return folder


@pytest.mark.parametrize(
    "settings",
    [replace(FULL, pod_groups=api, group_scheduler=api) for api in ("", "volcano", "coscheduling")],
    ids=["no groups", "volcano", "coscheduling"],
)
def test_every_object_is_valid(settings: Settings, schemas: Path) -> None:
    workers = {"device": "cuda", "podTemplate": TEMPLATE, "grid": {"graph": 2, "feature": 1}}
    resources = {"resources": {"limits": {"memory": "1Gi"}}}
    raw = raw_job(workers=workers | resources, storage={"credentialsSecret": "s3"})
    job = read_job(raw, settings)
    assert isinstance(job, EmbeddingJob), job
    objects = [*children(job, ATTEMPT, settings), planner(job, ATTEMPT, settings)]
    objects += [looker(job, ATTEMPT, settings), schedule_object(CRON_JOB)]
    assert chart.kubeconform(objects, schemas, chart_schemas.LOCATION) == ""


def test_a_group_of_another_shape_would_be_found(schemas: Path) -> None:
    job = read_job(raw_job(), SETTINGS)
    assert isinstance(job, EmbeddingJob)
    built = children(job, ATTEMPT, replace(FULL, pod_groups="coscheduling"))
    group = chart.only(built, "PodGroup")
    group["spec"]["minMembers"] = group["spec"].pop("minMember")
    assert "'minMembers' not allowed" in chart.kubeconform(built, schemas, chart_schemas.LOCATION)
