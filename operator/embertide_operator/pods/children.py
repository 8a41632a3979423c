"""The child objects of a job: pure functions of the job, its attempt and the settings."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from embertide.spec import naming
from embertide.spec.affects import Affects, without
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, JobSpec
from embertide_operator.api.routes import Object
from embertide_operator.config.settings import Settings
from embertide_operator.job.ownership import OPERATOR
from embertide_operator.pods.defaults import memory_of
from embertide_operator.pods.gangs import (
    gang_annotations,
    group_kind,
    in_group,
    pod_group,
    queue_labels,
)
from embertide_operator.pods.network_policy import policy_spec
from embertide_operator.pods.push_pod import pusher_template
from embertide_operator.pods.worker_pods import (
    Attempt,
    labels,
    looker_template,
    planner_template,
    worker_template,
)

SPEC_HASH = f"{naming.GROUP}/spec-hash"
"""On the StatefulSet: hash of the part of the spec that its workers were started with."""
APPLIED_HASH = f"{naming.GROUP}/applied-hash"
"""On every child: hash of what was applied, so that it is applied again only if it differs."""
BUDGET = "PodDisruptionBudget"
_OPERATORS_ALONE: Any = {
    "status": True,
    "spec": without(JobSpec, lambda affects: Affects.OPERATOR in affects),
}
"""Fields of a job that workers do not get."""
_NOT_THE_WORKERS = without(JobSpec, lambda affects: Affects.WORKERS not in affects)


def needs_plan(job: EmbeddingJob, settings: Settings) -> bool:
    """Whether the planner has to choose the grid, the memory or the size of scratch volumes."""
    workers = job.spec.workers
    chosen = isinstance(workers.grid, GridShape) and memory_of(job, settings) is not None
    return not chosen or workers.memory is not None


def spec_hash(job: EmbeddingJob) -> str:
    """Hash of the fields whose change requires a new attempt."""
    # Without defaults: a release that adds a field does not restart the workers of all jobs.
    spec = job.spec.model_dump(
        by_alias=True, mode="json", exclude_defaults=True, exclude=_NOT_THE_WORKERS
    )
    # A part of which only such fields are set is as one that is not set.
    return _digest({name: part for name, part in spec.items() if part != {}})


def child_kinds(settings: Settings) -> tuple[str, ...]:
    """The kinds of all objects that :func:`children` may make, the StatefulSet first."""
    kinds = ["StatefulSet", "ConfigMap", "Service", BUDGET]
    if settings.network_policy:
        kinds.append("NetworkPolicy")
    if settings.pod_groups:
        kinds.append(group_kind(settings))
    return tuple(kinds)


def children(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> list[Object]:
    """All objects of an attempt, in the order to apply them."""
    built = [
        config_map(job, attempt.uid),
        service(job, attempt.uid),
        disruption_budget(job, attempt.uid),
    ]
    if settings.network_policy:
        built.append(network_policy(job, attempt.uid, settings))
    if (group := pod_group(job, attempt.grid.workers, settings)) is not None:
        built.append({**_head(group["apiVersion"], group["kind"], job, attempt.uid), **group})
    built.append(statefulset(job, attempt, settings))
    return [with_applied_hash(child) for child in built]


def with_applied_hash(child: Object) -> Object:
    """The child with an annotation that is the hash of its content."""
    annotations = {**child["metadata"].get("annotations", {}), APPLIED_HASH: _digest(child)}
    return {**child, "metadata": {**child["metadata"], "annotations": annotations}}


def config_map(job: EmbeddingJob, uid: str) -> Object:
    """The manifest, as a file for the workers: what the job says, and only what concerns them.

    A worker refuses fields that it does not know. So that one of another release can read it,
    defaults are left to the worker, and fields that only the operator reads are left out.
    """
    text = job.model_dump_json(by_alias=True, exclude_defaults=True, exclude=_OPERATORS_ALONE)
    return {**_head("v1", "ConfigMap", job, uid), "data": {naming.JOB_KEY: text}}


def service(job: EmbeddingJob, uid: str) -> Object:
    """Headless Service: a DNS name for every pod before it is ready, for the rendezvous."""
    ports = {"http": naming.HTTP_PORT, "rendezvous": naming.RENDEZVOUS_PORT}
    return {
        **_head("v1", "Service", job, uid),
        "spec": {
            "clusterIP": "None",
            # A name then has the addresses of both families, where the cluster has both.
            "ipFamilyPolicy": "PreferDualStack",
            "publishNotReadyAddresses": True,
            "selector": selector(job, uid),
            "ports": [{"name": name, "port": port} for name, port in ports.items()],
        },
    }


def disruption_budget(job: EmbeddingJob, uid: str) -> Object:
    """Blocks voluntary evictions of workers that run: losing one ends the attempt of all.

    It is there for as long as the settings say (``decide/deadlines.py``), and satisfied
    without workers. A worker that is not ready protects nothing, so it may be evicted.
    """
    return {
        **_head("policy/v1", BUDGET, job, uid),
        "spec": {
            "maxUnavailable": 0,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(job, uid)},
        },
    }


def network_policy(job: EmbeddingJob, uid: str, settings: Settings) -> Object:
    """Who may reach the job's pods."""
    head = _head("networking.k8s.io/v1", "NetworkPolicy", job, uid)
    return {**head, "spec": policy_spec(uid, settings)}


def statefulset(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    """The workers. ``OnDelete``: a changed template applies to the next attempt only."""
    head = _head("apps/v1", "StatefulSet", job, attempt.uid)
    head["metadata"]["labels"][naming.LABEL_ATTEMPT] = str(attempt.number)
    head["metadata"]["labels"] |= queue_labels(job)
    head["metadata"]["annotations"] = {
        SPEC_HASH: spec_hash(job),
        **gang_annotations(attempt.grid.workers),
    }
    if settings.identity:
        head["metadata"]["annotations"][OPERATOR] = settings.identity
    return {
        **head,
        "spec": {
            "serviceName": job.metadata.name,
            "replicas": attempt.grid.workers,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            # A StatefulSet's selector never changes, so it has no more than it always had.
            "selector": {"matchLabels": _name_selector(job)},
            "template": in_group(worker_template(job, attempt, settings), job, settings),
        },
    }


def planner(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    """The pod that plans grid and memory, with the workers' image and credentials."""
    name = naming.planner_name(job.metadata.name)
    return _pod(name, planner_template(job, attempt, settings), job, attempt)


def looker(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    """The pod that looks whether the inputs are ready, with the same image and credentials."""
    name = naming.looker_name(job.metadata.name)
    return _pod(name, looker_template(job, attempt, settings), job, attempt)


def pusher(
    job: EmbeddingJob, attempt: Attempt, settings: Settings, version: str, request: str
) -> Object:
    """The pod that pushes the current version into the index of ``spec.push``.

    Args:
        version: that is pushed if it is current; "" for whichever is.
        request: hash of what is asked for, for its label.
    """
    name = naming.pusher_name(job.metadata.name)
    template = pusher_template(job, attempt, settings, version)
    template["metadata"]["labels"][naming.LABEL_PUSH] = request
    return _pod(name, template, job, attempt)


def push_request(job: EmbeddingJob, asked: str) -> str:
    """Hash of what is to be pushed; a new one is a new push.

    Args:
        asked: the annotation that asks for another one; "" for none.
    """
    assert job.spec.push is not None
    # Without defaults: a release that adds a field does not push the versions of all jobs again.
    spec = job.spec.push.model_dump(by_alias=True, mode="json", exclude_defaults=True)
    return _digest([spec, asked])


def _pod(name: str, template: Object, job: EmbeddingJob, attempt: Attempt) -> Object:
    head = _head("v1", "Pod", job, attempt.uid)
    meta = {**head["metadata"], **template["metadata"], "name": name}
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
        "labels": labels(job, uid),
        "ownerReferences": [owner],
    }
    return {"apiVersion": version, "kind": kind, "metadata": meta}


def selector(job: EmbeddingJob, uid: str) -> dict[str, str]:
    """The labels that the workers of this job have, and of no other of the same name."""
    return {**_name_selector(job), naming.LABEL_JOB_UID: uid}


def _name_selector(job: EmbeddingJob) -> dict[str, str]:
    return {naming.LABEL_JOB: job.metadata.name, naming.LABEL_ROLE: naming.ROLE_WORKER}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
