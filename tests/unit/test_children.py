"""The objects of a job: what they ask for, and what a job may change about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator import pod_template
from embertide_operator.children import children, planner, spec_hash
from embertide_operator.pods import Attempt
from embertide_operator.validate import read_job
from tests.support.operator_world import SETTINGS, UID, raw_job

ATTEMPT = Attempt(
    uid=UID,
    number=3,
    version="20261121T120000Z-abcdef",
    earlier=("20261121T110000Z-abcdef",),
    grid=GridShape.of(2, 2),
)


def job(**spec: Any) -> EmbeddingJob:
    found = read_job(raw_job(**spec), SETTINGS)
    assert isinstance(found, EmbeddingJob), found
    return found


def workers(**fields: Any) -> dict[str, Any]:
    """A job's workers section, with memory so that nothing is planned."""
    return {"workers": {"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}, **fields}}


def pod_of(spec: EmbeddingJob, attempt: Attempt = ATTEMPT) -> dict[str, Any]:
    template: dict[str, Any] = children(spec, attempt, SETTINGS)[-1]["spec"]["template"]
    return template


def environment(spec: EmbeddingJob, attempt: Attempt = ATTEMPT) -> dict[str, str | None]:
    (container,) = pod_of(spec, attempt)["spec"]["containers"]
    return {item["name"]: item.get("value") for item in container["env"]}


def test_every_child_belongs_to_the_job() -> None:
    for child in [*children(job(), ATTEMPT, SETTINGS), planner(job(), ATTEMPT, SETTINGS)]:
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (UID, True)
        assert child["metadata"]["labels"]["embertide.dev/job"] == "products"


def test_workers_meet_the_restricted_pod_security_standard() -> None:
    for template in (pod_of(job()), planner(job(), ATTEMPT, SETTINGS)):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["shareProcessNamespace"] is True
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("user", [1000660000, None])
def test_workers_run_as_the_user_of_the_settings_or_as_the_clusters_choice(
    user: int | None,
) -> None:
    settings = replace(SETTINGS, worker_user=user)
    for child in (
        children(job(), ATTEMPT, settings)[-1]["spec"]["template"],
        planner(job(), ATTEMPT, settings),
    ):
        security = child["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True
        ids = {security.get(key) for key in ("runAsUser", "runAsGroup", "fsGroup")}
        assert ids == {user}


@pytest.mark.parametrize(("deadline", "patience"), [(60, 1800), (1800, 1800), (7200, 7200)])
def test_workers_wait_for_each_other_as_long_as_the_operator(deadline: int, patience: int) -> None:
    told = environment(job(preRunningDeadlineSeconds=deadline))
    assert told["EMBERTIDE_JOIN_SECONDS"] == str(patience)


def test_a_worker_is_told_its_attempt_and_its_rendezvous() -> None:
    told = environment(job(**workers()))
    assert told["EMBERTIDE_GRID"] == "2x2"
    assert told["EMBERTIDE_ATTEMPT"] == "3"
    assert told["EMBERTIDE_VERSION"] == "20261121T120000Z-abcdef"
    assert told["EMBERTIDE_EARLIER_VERSIONS"] == "20261121T110000Z-abcdef"
    assert told["EMBERTIDE_RENDEZVOUS"] == "products-0.products:29500"
    assert told["EMBERTIDE_THREADS"] == "2"


def test_credentials_are_read_from_the_secret_and_nothing_else_of_it() -> None:
    (container,) = pod_of(job(storage={"credentialsSecret": "s3"}))["spec"]["containers"]
    secrets = [item for item in container["env"] if "secretKeyRef" in item.get("valueFrom", {})]
    assert [item["name"] for item in secrets] == [
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    ]  # fmt: skip
    assert "envFrom" not in container


def test_a_gpu_job_asks_for_one_gpu_each() -> None:
    (container,) = pod_of(job(**workers(device="cuda", image="w:cuda")))["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    given = {"limits": {"nvidia.com/gpu": 2, "memory": "1Gi"}}
    (container,) = pod_of(job(**workers(device="cuda", image="w", resources=given)))["spec"][
        "containers"
    ]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2


def test_planned_memory_is_asked_for_where_the_job_is_silent() -> None:
    planned = Attempt(
        uid=UID, number=1, version="v", earlier=(), grid=GridShape(), memory=512 << 20
    )
    silent = job(workers={"resources": {"requests": {"cpu": "1"}}})
    (container,) = pod_of(silent, planned)["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": str(512 << 20)}
    assert container["resources"]["requests"] == {"cpu": "1", "memory": str(512 << 20)}


def test_a_pod_template_is_merged() -> None:
    template = {
        "metadata": {"labels": {"team": "shop", "embertide.dev/job": "other"}},
        "spec": {
            "nodeSelector": {"pool": "big"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "priorityClassName": "batch",
            "imagePullSecrets": [{"name": "registry"}],
            "volumes": [{"name": "cache", "emptyDir": {}}],
            "containers": [
                {
                    "name": "worker",
                    "env": [{"name": "EXTRA", "value": "1"}],
                    "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
                },
                {"name": "sidecar", "image": "s:1"},
            ],
        },
    }
    pod = pod_of(job(**workers(podTemplate=template)))
    assert pod["metadata"]["labels"]["team"] == "shop"
    assert pod["metadata"]["labels"]["embertide.dev/job"] == "products", "ours stay"
    assert next(item["key"] for item in pod["spec"]["tolerations"]) == "gpu"
    assert len(pod["spec"]["tolerations"]) == 3
    worker, sidecar = pod["spec"]["containers"]
    assert {"name": "EXTRA", "value": "1"} in worker["env"]
    assert [m["mountPath"] for m in worker["volumeMounts"]][-1] == "/cache"
    assert worker["image"] == SETTINGS.image
    assert sidecar["name"] == "sidecar"
    assert pod["spec"]["nodeSelector"] == {"pool": "big"}


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"spec": {"restartPolicy": "Never"}}, "spec.workers.podTemplate.spec.restartPolicy"),
        ({"specs": {}}, "spec.workers.podTemplate.specs"),
        ({"spec": []}, "spec.workers.podTemplate.spec"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.workers.podTemplate.spec.containers[0]"),
        (
            {"spec": {"containers": [{"name": "worker", "command": ["sh"]}]}},
            "spec.workers.podTemplate.spec.containers[0]",
        ),
    ],
)
def test_what_a_pod_template_may_not_say(template: dict[str, Any], path: str) -> None:
    assert [found for found, _ in pod_template.problems(template)] == [path]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"resources": {"limits": {"memory": "lots"}}}, "spec.workers.resources.limits.memory"),
        ({"resources": {"limit": {"memory": "1Gi"}}}, "spec.workers.resources.limit"),
        ({"resources": {"limits": "1Gi"}}, "spec.workers.resources.limits"),
        ({"device": "cuda"}, "spec.workers.image"),
    ],
)
def test_what_the_api_server_lets_through_is_refused_here(
    fields: dict[str, Any], path: str
) -> None:
    found = read_job(raw_job(workers=fields), SETTINGS)
    assert not isinstance(found, EmbeddingJob)
    assert [where for where, _ in found] == [path]


def test_only_what_workers_would_notice_changes_the_hash() -> None:
    base = spec_hash(job())
    assert spec_hash(job(backoffLimit=9, suspend=True)) == base
    assert spec_hash(job(inference={"fanout": [5, 5]})) != base
    assert spec_hash(job(**workers(image="other"))) != base


def test_schedulers_of_groups_are_told_the_size_and_the_queue() -> None:
    raw = raw_job(**workers())
    raw["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "nightly", "team": "search"}
    found = read_job(raw, SETTINGS)
    assert isinstance(found, EmbeddingJob), found
    statefulset = children(found, ATTEMPT, SETTINGS)[-1]
    assert statefulset["metadata"]["annotations"]["scheduling.volcano.sh/group-min-member"] == "4"
    labels = statefulset["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "nightly"
    assert "team" not in labels
    alone = planner(found, ATTEMPT, SETTINGS)["metadata"]["labels"]
    assert "kueue.x-k8s.io/queue-name" not in alone, "Kueue would count it as one of the workers"
