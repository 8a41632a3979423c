"""The child objects of a job: pure functions of the job, its attempt and the settings."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from embertide.spec import naming
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.kubernetes_api import Object
from embertide_operator.ownership import OPERATOR
from embertide_operator.pods import Attempt, labels, planner_template, worker_template
from embertide_operator.settings import Settings

SPEC_HASH = f"{naming.GROUP}/spec-hash"
"""On the StatefulSet: hash of the part of the spec that its workers were started with."""
APPLIED_HASH = f"{naming.GROUP}/applied-hash"
"""On every child: hash of what was applied, so that it is applied again only if it differs."""
_GANG_SIZE = "scheduling.volcano.sh/group-min-member"
"""On the StatefulSet: how many pods Volcano, if it schedules them, has to find room for at once."""
_QUEUE = "kueue.x-k8s.io/queue-name"
"""A label of the job that its StatefulSet takes over: the queue in which Kueue holds its pods."""


def needs_plan(job: EmbeddingJob) -> bool:
    """Whether the planner has to choose the grid or the memory."""
    return not isinstance(job.spec.workers.grid, GridShape) or memory_given(job) is None


def memory_given(job: EmbeddingJob) -> Any:
    """The memory quantity in the job's resources; None where it is not set."""
    resources = job.spec.workers.resources or {}
    for section in ("limits", "requests"):
        found = (resources.get(section) or {}).get("memory")
        if found is not None:
            return found
    return None


def spec_hash(job: EmbeddingJob) -> str:
    """Hash of the fields whose change requires a new attempt."""
    spec = job.spec.model_dump(by_alias=True, mode="json")
    parts = {key: spec[key] for key in ("input", "model", "inference", "workers", "storage")}
    return _digest(parts)


def children(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> list[Object]:
    """All objects of an attempt, in the order to apply them."""
    built = [
        config_map(job, attempt.uid),
        service(job, attempt.uid),
        disruption_budget(job, attempt),
        statefulset(job, attempt, settings),
    ]
    return [with_applied_hash(child) for child in built]


def with_applied_hash(child: Object) -> Object:
    """The child with an annotation that is the hash of its content."""
    annotations = {**child["metadata"].get("annotations", {}), APPLIED_HASH: _digest(child)}
    return {**child, "metadata": {**child["metadata"], "annotations": annotations}}


def config_map(job: EmbeddingJob, uid: str) -> Object:
    """The manifest, as a file for the workers."""
    text = job.model_dump_json(by_alias=True, exclude={"status"})
    return {**_head("v1", "ConfigMap", job, uid), "data": {naming.JOB_KEY: text}}


def service(job: EmbeddingJob, uid: str) -> Object:
    """Headless Service: a DNS name for every pod before it is ready, for the rendezvous."""
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
    """Blocks voluntary evictions: losing one worker ends the attempt of all."""
    return {
        **_head("policy/v1", "PodDisruptionBudget", job, attempt.uid),
        "spec": {"minAvailable": attempt.grid.workers, "selector": {"matchLabels": _selector(job)}},
    }


def statefulset(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    """The workers. ``OnDelete``: a changed template applies to the next attempt only."""
    head = _head("apps/v1", "StatefulSet", job, attempt.uid)
    head["metadata"]["labels"][naming.LABEL_ATTEMPT] = str(attempt.number)
    head["metadata"]["annotations"] = {
        SPEC_HASH: spec_hash(job),
        _GANG_SIZE: str(attempt.grid.workers),
    }
    if settings.identity:
        head["metadata"]["annotations"][OPERATOR] = settings.identity
    if _QUEUE in job.metadata.labels:
        head["metadata"]["labels"][_QUEUE] = job.metadata.labels[_QUEUE]
    return {
        **head,
        "spec": {
            "serviceName": job.metadata.name,
            "replicas": attempt.grid.workers,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": _selector(job)},
            "template": worker_template(job, attempt, settings),
        },
    }


def planner(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    """The pod that plans grid and memory, with the workers' image and credentials."""
    head = _head("v1", "Pod", job, attempt.uid)
    template = planner_template(job, attempt, settings)
    meta = {**head["metadata"], **template["metadata"]}
    meta["name"] = naming.planner_name(job.metadata.name)
    return with_applied_hash({**head, "metadata": meta, "spec": template["spec"]})


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
        "labels": labels(job),
        "ownerReferences": [owner],
    }
    return {"apiVersion": version, "kind": kind, "metadata": meta}


def _selector(job: EmbeddingJob) -> dict[str, str]:
    return {naming.LABEL_JOB: job.metadata.name, naming.LABEL_ROLE: naming.ROLE_WORKER}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
