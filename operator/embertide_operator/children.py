"""The objects of a job, built purely from the job, its status and the operator's settings."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from embertide.spec import naming
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.workers import Grid
from embertide_operator.cluster import Object
from embertide_operator.pod_template import merge
from embertide_operator.quantities import quantity
from embertide_operator.settings import Settings

SPEC_HASH = f"{naming.GROUP}/spec-hash"
"""On the StatefulSet: what of the spec its attempt was started with."""
APPLIED_HASH = f"{naming.GROUP}/applied-hash"
"""On every child: what was applied, so that nothing is applied twice."""
_GRACE_SECONDS = 30
_LOST_NODE_SECONDS = 60
_PLANNER_MEMORY = "2Gi"
_GPU = "nvidia.com/gpu"
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass(frozen=True)
class Attempt:
    """One attempt of a job, as its status has it.

    Attributes:
        earlier: the versions that the attempts before wrote under.
        memory: bytes for each worker where the job does not say; None where it does.
    """

    uid: str
    number: int
    version: str
    earlier: tuple[str, ...]
    graph: int
    feature: int
    memory: int | None = None

    @property
    def workers(self) -> int:
        """How many."""
        return self.graph * self.feature


def needs_plan(job: EmbeddingJob) -> bool:
    """Whether the grid or the memory is left to the planner."""
    return not isinstance(job.spec.workers.grid, Grid) or memory_given(job) is None


def memory_given(job: EmbeddingJob) -> Any:
    """The memory that the job asks for, None when it leaves it open."""
    resources = job.spec.workers.resources or {}
    for part in ("limits", "requests"):
        found = (resources.get(part) or {}).get("memory")
        if found is not None:
            return found
    return None


def spec_hash(job: EmbeddingJob) -> str:
    """Of everything that a running attempt could not take on without starting anew."""
    spec = job.spec.model_dump(by_alias=True, mode="json")
    parts = {key: spec[key] for key in ("input", "model", "inference", "workers", "storage")}
    return _digest(parts)


def image_of(job: EmbeddingJob, settings: Settings) -> str:
    """The workers' image, "" when neither the job nor the operator names one."""
    default = settings.image_cuda if job.spec.workers.device == "cuda" else settings.image
    return job.spec.workers.image or default


def children(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> list[Object]:
    """All objects of an attempt, in the order to apply them."""
    built = [
        config_map(job, attempt.uid),
        service(job, attempt.uid),
        disruption_budget(job, attempt),
        statefulset(job, attempt, settings),
    ]
    return [sealed(child) for child in built]


def sealed(child: Object) -> Object:
    """A child that says by annotation what was applied."""
    annotations = {**child["metadata"].get("annotations", {}), APPLIED_HASH: _digest(child)}
    return {**child, "metadata": {**child["metadata"], "annotations": annotations}}


def config_map(job: EmbeddingJob, uid: str) -> Object:
    """The manifest as the workers read it."""
    text = job.model_dump_json(by_alias=True, exclude={"status"})
    return {**_head("v1", "ConfigMap", job, uid), "data": {naming.JOB_KEY: text}}


def service(job: EmbeddingJob, uid: str) -> Object:
    """Headless: gives every pod a name, also before it is ready, so that workers can meet."""
    ports = {"http": naming.HTTP_PORT, "rendezvous": naming.RENDEZVOUS_PORT}
    return {
        **_head("v1", "Service", job, uid),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _selector(job),
            "ports": [{"name": name, "port": port} for name, port in ports.items()],
        },
    }


def disruption_budget(job: EmbeddingJob, attempt: Attempt) -> Object:
    """Losing one worker loses the work of all, so nodes are drained between runs."""
    return {
        **_head("policy/v1", "PodDisruptionBudget", job, attempt.uid),
        "spec": {"minAvailable": attempt.workers, "selector": {"matchLabels": _selector(job)}},
    }


def statefulset(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    """The workers. ``OnDelete``: a changed template concerns the next attempt only."""
    head = _head("apps/v1", "StatefulSet", job, attempt.uid)
    head["metadata"]["labels"][naming.LABEL_ATTEMPT] = str(attempt.number)
    head["metadata"]["annotations"] = {SPEC_HASH: spec_hash(job)}
    return {
        **head,
        "spec": {
            "serviceName": job.metadata.name,
            "replicas": attempt.workers,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": _selector(job)},
            "template": _worker_template(job, attempt, settings),
        },
    }


def planner(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    """The pod that plans the grid and the memory, with the workers' image and access."""
    container = _container(job, settings, "plan")
    container["resources"] = {"requests": {"cpu": "100m"}, "limits": {"memory": _PLANNER_MEMORY}}
    template = _template(job, container, naming.ROLE_PLANNER, attempt.number)
    template["spec"]["restartPolicy"] = "Never"
    head = _head("v1", "Pod", job, attempt.uid)
    head["metadata"]["name"] = naming.planner_name(job.metadata.name)
    merged = merge(template["metadata"], {"labels": head["metadata"]["labels"]})
    merged["labels"][naming.LABEL_ROLE] = naming.ROLE_PLANNER
    return sealed({**head, "metadata": {**merged, **_place(head)}, "spec": template["spec"]})


def _place(head: Object) -> Object:
    meta = head["metadata"]
    return {key: meta[key] for key in ("name", "namespace", "ownerReferences")}


def _head(version: str, kind: str, job: EmbeddingJob, uid: str) -> Object:
    assert job.metadata.namespace is not None
    owner = {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "name": job.metadata.name,
        "uid": uid,
        "controller": True,
    }
    meta = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "labels": _labels(job),
        "ownerReferences": [owner],
    }
    return {"apiVersion": version, "kind": kind, "metadata": meta}


def _labels(job: EmbeddingJob) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "embertide",
        "app.kubernetes.io/instance": job.metadata.name,
        "app.kubernetes.io/managed-by": naming.FIELD_MANAGER,
        naming.LABEL_JOB: job.metadata.name,
    }


def _selector(job: EmbeddingJob) -> dict[str, str]:
    return {naming.LABEL_JOB: job.metadata.name, naming.LABEL_ROLE: naming.ROLE_WORKER}


def _worker_template(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    container = _container(job, settings, "work")
    container["env"] += _worker_env(job, attempt)
    container["resources"] = _resources(job, attempt)
    container["ports"] = [
        {"name": "http", "containerPort": naming.HTTP_PORT},
        {"name": "rendezvous", "containerPort": naming.RENDEZVOUS_PORT},
    ]
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "timeoutSeconds": 5}
    container["readinessProbe"] = {**probe, "periodSeconds": 2}
    container["livenessProbe"] = {**probe, "periodSeconds": 20, "failureThreshold": 6}
    return _template(job, container, naming.ROLE_WORKER, attempt.number)


def _template(job: EmbeddingJob, container: Object, role: str, attempt: int) -> Object:
    ours = {naming.LABEL_ROLE: role, naming.LABEL_ATTEMPT: str(attempt)}
    ours["app.kubernetes.io/component"] = role
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": naming.USER_ID,
            "runAsGroup": naming.USER_ID,
            "fsGroup": naming.USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "job", "configMap": {"name": job.metadata.name}},
            {"name": "scratch", "emptyDir": {}},
        ],
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{state}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _LOST_NODE_SECONDS,
            }
            for state in ("not-ready", "unreachable")
        ],
    }
    if job.spec.workers.service_account_name:
        spec["serviceAccountName"] = job.spec.workers.service_account_name
    given = job.spec.workers.pod_template or {}
    merged = merge({"metadata": {"labels": {}}, "spec": spec}, given)
    merged["metadata"]["labels"] = {**merged["metadata"]["labels"], **_labels(job), **ours}
    return merged


def _container(job: EmbeddingJob, settings: Settings, verb: str) -> Object:
    return {
        "name": naming.CONTAINER,
        "image": image_of(job, settings),
        "imagePullPolicy": settings.pull_policy,
        "args": [verb],
        "env": [
            {"name": "HOME", "value": naming.SCRATCH_FOLDER},
            {"name": "TMPDIR", "value": naming.SCRATCH_FOLDER},
            *_credentials(job),
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": naming.TERMINATION_LOG,
        "volumeMounts": [
            {"name": "job", "mountPath": naming.JOB_FOLDER, "readOnly": True},
            {"name": "scratch", "mountPath": naming.SCRATCH_FOLDER},
        ],
    }


def _credentials(job: EmbeddingJob) -> list[Object]:
    secret = job.spec.storage.credentials_secret
    if secret is None:
        return []
    wanted = [(key, False) for key in _KEYS] + [("AWS_SESSION_TOKEN", True)]
    return [
        {
            "name": key,
            "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": optional}},
        }
        for key, optional in wanted
    ]


def _worker_env(job: EmbeddingJob, attempt: Attempt) -> list[Object]:
    values = {
        naming.ENV_UID: attempt.uid,
        naming.ENV_ATTEMPT: str(attempt.number),
        naming.ENV_GRID: f"{attempt.graph}x{attempt.feature}",
        naming.ENV_VERSION: attempt.version,
        naming.ENV_EARLIER: ",".join(attempt.earlier),
        naming.ENV_RENDEZVOUS: naming.rendezvous(job.metadata.name),
    }
    threads = _threads(job)
    if threads is not None:
        values[naming.ENV_THREADS] = str(threads)
    index = "metadata.labels['apps.kubernetes.io/pod-index']"
    memory = {"containerName": naming.CONTAINER, "resource": "limits.memory"}
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        {"name": naming.ENV_RANK, "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": naming.ENV_MEMORY_LIMIT, "valueFrom": {"resourceFieldRef": memory}},
    ]


def _threads(job: EmbeddingJob) -> int | None:
    """One for each CPU that the job asks for; None leaves it to the worker."""
    resources = job.spec.workers.resources or {}
    for part in ("limits", "requests"):
        cpu = (resources.get(part) or {}).get("cpu")
        if cpu is not None:
            return max(1, math.floor(quantity(cpu)))
    return None


def _resources(job: EmbeddingJob, attempt: Attempt) -> Object:
    resources: Object = job.spec.workers.resources or {}
    if attempt.memory is not None:
        memory = {"memory": str(attempt.memory)}
        resources = merge({"requests": memory, "limits": memory}, resources)
    if job.spec.workers.device == "cuda" and _GPU not in (resources.get("limits") or {}):
        resources = merge(resources, {"limits": {**(resources.get("limits") or {}), _GPU: 1}})
    return resources


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
