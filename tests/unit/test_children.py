"""The objects of a job: what they ask for, and what a job may change about them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.config.template_problems import problems
from embertide_operator.decide.validate import read_job
from embertide_operator.pods.children import children, planner
from embertide_operator.pods.worker_pods import Attempt
from tests.support.job_children import ATTEMPT, environment, job, pod_of, workers
from tests.support.operator_world import SETTINGS, UID, raw_job


def test_every_child_belongs_to_the_job() -> None:
    for child in [*children(job(), ATTEMPT, SETTINGS), planner(job(), ATTEMPT, SETTINGS)]:
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (UID, True)
        assert child["metadata"]["labels"]["embertide.dev/job"] == "products"
        assert child["metadata"]["labels"]["embertide.dev/job-uid"] == UID
    assert pod_of(job())["metadata"]["labels"]["embertide.dev/job-uid"] == UID


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


def test_no_probe_is_made_before_the_worker_can_serve() -> None:
    """Each one that fails is a Warning; until the first succeeds there are no others."""
    (container,) = pod_of(job())["spec"]["containers"]
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    assert startup["httpGet"] == liveness["httpGet"] == container["readinessProbe"]["httpGet"]
    assert startup["initialDelaySeconds"] >= 3
    assert "startupProbe" not in planner(job(), ATTEMPT, SETTINGS)["spec"]["containers"][0]
    patience = [probe["periodSeconds"] * probe["failureThreshold"] for probe in (startup, liveness)]
    assert patience == [120, 120]


def test_a_container_that_is_killed_leaves_the_end_of_its_log() -> None:
    for template in (pod_of(job()), planner(job(), ATTEMPT, SETTINGS)):
        (container,) = template["spec"]["containers"]
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


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


@pytest.mark.parametrize("role", ["worker", "planner"])
def test_credentials_are_files_of_the_secret_and_nothing_else_of_it(role: str) -> None:
    found = job(storage={"credentialsSecret": "s3"})
    pod = pod_of(found) if role == "worker" else planner(found, ATTEMPT, SETTINGS)
    (container,) = pod["spec"]["containers"]
    (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == "credentials")
    keys, token = (source["secret"] for source in volume["projected"]["sources"])
    assert [item["path"] for item in (*keys["items"], *token["items"])] == [
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    ]  # fmt: skip
    assert (keys["name"], token["name"], token["optional"]) == ("s3", "s3", True)
    assert "optional" not in keys, "a pod without its keys does not start"
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "credentials")
    told = {item["name"]: item.get("value") for item in container["env"]}
    assert told["EMBERTIDE_CREDENTIALS_FOLDER"] == mount["mountPath"]
    assert mount["readOnly"] is True
    assert "secretKeyRef" not in json.dumps(container)
    assert "envFrom" not in container


def test_each_store_has_the_keys_of_its_secret_in_a_folder() -> None:
    stores = [
        {"prefix": "s3://lake", "credentialsSecret": "lake"},
        {"prefix": "s3://lake/raw", "credentialsSecret": "raw"},
        {"prefix": "s3://other", "credentialsSecret": "lake"},
        {"prefix": "s3://public", "anonymous": True},
    ]
    pod = pod_of(job(storage={"credentialsSecret": "s3", "stores": stores}))
    (container,) = pod["spec"]["containers"]
    (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == "stores")
    sources = [source["secret"] for source in volume["projected"]["sources"]]
    paths = [(s["name"], item["path"]) for s in sources for item in s["items"]]
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    assert paths == [(of, f"{of}/{name}") for of in ("lake", "raw") for name in names]
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "stores")
    told = {item["name"]: item.get("value") for item in container["env"]}
    assert told["EMBERTIDE_STORES_FOLDER"] == mount["mountPath"]
    assert mount["readOnly"] is True
    assert "EMBERTIDE_CREDENTIALS_FOLDER" in told


def test_without_a_secret_nothing_is_mounted() -> None:
    spec = pod_of(job())["spec"]
    assert {volume["name"] for volume in spec["volumes"]} == {"job", "scratch"}
    assert "EMBERTIDE_CREDENTIALS_FOLDER" not in environment(job())


GPU_TEMPLATE = {
    "metadata": {"labels": {"team": "shop"}},
    "spec": {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "runtimeClassName": "nvidia",
        "imagePullSecrets": [{"name": "registry"}],
        "containers": [
            {
                "name": "worker",
                "env": [{"name": "AWS_CA_BUNDLE", "value": "/ca"}],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        ],
    },
}


def test_the_planner_of_a_gpu_job_lands_on_no_gpu_node() -> None:
    found = job(**workers(device="cuda", image="w:cuda", podTemplate=GPU_TEMPLATE))
    pod = planner(found, ATTEMPT, SETTINGS)
    spec = pod["spec"]
    assert not {"nodeSelector", "topologySpreadConstraints", "runtimeClassName"} & set(spec)
    tolerated = [item["key"] for item in spec["tolerations"]]
    assert tolerated[0] == "nvidia.com/gpu", "where all nodes are tainted it has to go somewhere"
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert {"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"} in term["matchExpressions"]
    (container,) = spec["containers"]
    assert "nvidia.com/gpu" not in json.dumps(container["resources"])
    # What it needs to start and to read the inputs is the workers'.
    assert (container["image"], spec["imagePullSecrets"]) == ("w:cuda", [{"name": "registry"}])
    assert {"name": "AWS_CA_BUNDLE", "value": "/ca"} in container["env"]
    assert pod["metadata"]["labels"]["team"] == "shop"
    worker = pod_of(found)["spec"]
    assert (worker["nodeSelector"], worker["runtimeClassName"]) == ({"pool": "gpu"}, "nvidia")


def test_where_all_nodes_have_gpus_the_planner_is_placed_like_the_workers() -> None:
    settings = replace(SETTINGS, gpu_node_labels=())
    found = job(**workers(device="cuda", image="w:cuda", podTemplate=GPU_TEMPLATE))
    spec = planner(found, ATTEMPT, settings)["spec"]
    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert spec["affinity"] == {"nodeAffinity": {}}
    assert "nvidia.com/gpu" not in json.dumps(spec["containers"][0]["resources"])


def test_the_planner_of_another_job_is_placed_like_its_workers() -> None:
    spec = planner(job(**workers(podTemplate=GPU_TEMPLATE)), ATTEMPT, SETTINGS)["spec"]
    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "2Gi"}


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
    assert [found for found, _ in problems(template)] == [path]


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


def of_kind(kind: str, spec: EmbeddingJob | None = None) -> dict[str, Any]:
    """The child of this kind."""
    (found,) = (c for c in children(spec or job(), ATTEMPT, SETTINGS) if c["kind"] == kind)
    return found


def test_the_disruption_budget_is_satisfied_without_pods() -> None:
    spec = of_kind("PodDisruptionBudget")["spec"]
    assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (0, "AlwaysAllow")
    assert "minAvailable" not in spec


@pytest.mark.parametrize("kind", ["PodDisruptionBudget", "Service"])
def test_a_job_of_the_same_name_before_is_not_selected(kind: str) -> None:
    spec = of_kind(kind)["spec"]
    chosen = spec["selector"].get("matchLabels", spec["selector"])
    assert chosen["embertide.dev/job-uid"] == UID
    assert chosen.items() <= pod_of(job())["metadata"]["labels"].items()


def test_a_statefulset_of_an_earlier_release_can_be_applied_again() -> None:
    """Its selector never changes."""
    assert of_kind("StatefulSet")["spec"]["selector"]["matchLabels"] == {
        "embertide.dev/job": "products", "embertide.dev/role": "worker",
    }  # fmt: skip


def test_the_service_has_the_addresses_of_both_families() -> None:
    assert of_kind("Service")["spec"]["ipFamilyPolicy"] == "PreferDualStack"


def test_a_source_of_the_job_replaces_ours() -> None:
    claim = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}
    template = {
        "spec": {
            "volumes": [{"name": "scratch", "ephemeral": claim}],
            "containers": [
                {"name": "worker", "env": [{"name": "EMBERTIDE_MEMORY_LIMIT", "value": "1"}]}
            ],
        }
    }
    spec = pod_of(job(**workers(podTemplate=template)))["spec"]
    volumes = {item["name"]: item for item in spec["volumes"]}
    assert volumes["scratch"] == {"name": "scratch", "ephemeral": claim}
    limit = [e for e in spec["containers"][0]["env"] if e["name"] == "EMBERTIDE_MEMORY_LIMIT"]
    assert limit == [{"name": "EMBERTIDE_MEMORY_LIMIT", "value": "1"}]


@pytest.mark.parametrize("name", ["job", "credentials"])
def test_the_operators_own_volumes_stay(name: str) -> None:
    template = {"spec": {"volumes": [{"name": name, "emptyDir": {}}]}}
    (found,) = problems(template)
    assert found[0] == "spec.workers.podTemplate.spec.volumes[0]"
    assert f"{name!r} is the operator's own" in found[1]


@pytest.mark.parametrize(
    ("template", "path", "what"),
    [
        ({"spec": {"containers": {"name": "worker"}}}, "spec.containers", "must be a list"),
        ({"spec": {"volumes": ["scratch"]}}, "spec.volumes[0]", "must be a mapping"),
        ({"metadata": {"labels": ["a"]}}, "metadata.labels", "must be a mapping"),
        (
            {"spec": {"containers": [{"name": "worker", "env": [{"name": ["A"]}]}]}},
            "spec.containers[0].env[0].name",
            "must be a name or a number",
        ),
    ],
)
def test_a_pod_template_of_the_wrong_shape(template: dict[str, Any], path: str, what: str) -> None:
    """Merging it would be an error of the operator, for ever."""
    assert problems(template) == [(f"spec.workers.podTemplate.{path}", what)]


def test_a_null_removes_what_the_operator_sets() -> None:
    pod = pod_of(job(**workers(podTemplate={"spec": {"tolerations": None}})))
    assert "tolerations" not in pod["spec"]
