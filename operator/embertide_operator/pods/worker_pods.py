"""The pods of a job: containers, environment, resources and security settings."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from embertide.spec import naming
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.api.quantities import quantity
from embertide_operator.api.routes import Object
from embertide_operator.config.pod_template import for_planner, merge, stay_away
from embertide_operator.config.settings import Settings
from embertide_operator.pods.defaults import limit_of, platform_template, resources_of
from embertide_operator.pods.scratch import VOLUME, scratch_volume, with_scratch

_VERSION = importlib.metadata.version("embertide")
_GRACE_SECONDS = 30
_STARTUP_SECONDS = 3
"""After which a worker's container serves, on a node that is not busy."""
_LOST_NODE_SECONDS = 60
"""How long pods tolerate a lost node; the default of 5 minutes would delay the retry."""
_LOOK_SECONDS = 300
"""For how long a look at the inputs may take; a store that hangs is asked by the next one."""
_LEAST_JOIN_SECONDS = 1800
"""How long workers wait for each other, at least; a queue may hold some pods for longer."""
_GPU = "nvidia.com/gpu"
_SECRET_KEYS, _SECRET_TOKEN = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "AWS_SESSION_TOKEN"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt of a job: what the job's status and plan say about it.

    Attributes:
        uid: of the job.
        number: of the attempt, from 1.
        version: the name of the version that it writes.
        earlier: the version names of the earlier attempts.
        memory: planned bytes per worker; None where the job sets the memory.
        scratch: planned bytes of a worker's scratch volume; 0 without tensors on disk.
        tables: versions of tables that were planned, by their fields in ``spec.input``.
    """

    uid: str
    number: int
    version: str
    earlier: tuple[str, ...]
    grid: GridShape
    memory: int | None = None
    scratch: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)


def image_of(job: EmbeddingJob, settings: Settings) -> str:
    """The workers' image; "" where neither the job nor the operator has one."""
    default = settings.image_cuda if job.spec.workers.device == "cuda" else settings.image
    return job.spec.workers.image or default


def labels(job: EmbeddingJob, uid: str) -> dict[str, str]:
    """The labels of every object of a job."""
    return {
        "app.kubernetes.io/name": "embertide",
        "app.kubernetes.io/instance": job.metadata.name,
        "app.kubernetes.io/managed-by": naming.FIELD_MANAGER,
        naming.LABEL_JOB: job.metadata.name,
        naming.LABEL_JOB_UID: uid,
    }


def worker_template(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    """The pod template of the StatefulSet."""
    container = container_of(job, settings, "work")
    container["env"] += _worker_env(job, attempt, settings)
    container["resources"] = _resources(job, attempt, settings)
    container["ports"] = [
        {"name": "http", "containerPort": naming.HTTP_PORT},
        {"name": "rendezvous", "containerPort": naming.RENDEZVOUS_PORT},
    ]
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "timeoutSeconds": 5}
    # Every probe that fails is a Warning, so none is made before the server can be there.
    start = {"initialDelaySeconds": _STARTUP_SECONDS, "periodSeconds": 2, "failureThreshold": 60}
    container["startupProbe"] = {**probe, **start}
    container["readinessProbe"] = {**probe, "periodSeconds": 2}
    container["livenessProbe"] = {**probe, "periodSeconds": 20, "failureThreshold": 6}
    given = job.spec.workers.pod_template or {}
    template = _template(job, settings, container, naming.ROLE_WORKER, attempt, given)
    return with_scratch(template, job, attempt.scratch)


def looker_template(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    """The pod template of a look at the inputs: as the planner's, and it ends in any case."""
    template = _apart_template(job, attempt, settings, "look", naming.ROLE_LOOKER)
    template["spec"]["activeDeadlineSeconds"] = _LOOK_SECONDS
    return template


def planner_template(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    """The pod template of the planner, which runs once, and on no GPU node."""
    template = _apart_template(job, attempt, settings, "plan", naming.ROLE_PLANNER)
    limit = limit_of(job, settings)
    if limit is None:
        return template
    variable = {"name": naming.ENV_MEMORY_LIMIT, "value": str(math.floor(quantity(limit)))}
    worker = {"name": naming.CONTAINER, "env": [variable]}
    return merge(template, {"spec": {"containers": [worker]}})


def _apart_template(
    job: EmbeddingJob, attempt: Attempt, settings: Settings, verb: str, role: str
) -> Object:
    """The pod template of what plans or looks, with the planner's resources."""
    container = container_of(job, settings, verb)
    container["resources"] = settings.planner_resources
    return once_template(job, attempt, settings, container, role)


def once_template(
    job: EmbeddingJob, attempt: Attempt, settings: Settings, container: Object, role: str
) -> Object:
    """The pod template of what runs once beside the workers, and on no GPU node."""
    apart = job.spec.workers.device == "cuda" and bool(settings.gpu_node_labels)
    given = for_planner(job.spec.workers.pod_template or {}, apart=apart)
    template = _template(job, settings, container, role, attempt, given)
    template["spec"]["restartPolicy"] = "Never"
    if apart:
        affinity = template["spec"].get("affinity") or {}
        template["spec"]["affinity"] = stay_away(affinity, settings.gpu_node_labels)
    return template


def _template(
    job: EmbeddingJob,
    settings: Settings,
    container: Object,
    role: str,
    attempt: Attempt,
    given: Object,
) -> Object:
    """A pod template of ours, with the platform's and the job's merged into it."""
    ours = {naming.LABEL_ROLE: role, naming.LABEL_ATTEMPT: str(attempt.number)}
    ours["app.kubernetes.io/component"] = role
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # Process 1 of a PID namespace ignores signals without a handler, and Python needs a moment
        # to install one; a pod deleted before would run until its grace period is over.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "securityContext": _pod_security(settings),
        "containers": [container],
        "volumes": [
            {"name": "job", "configMap": {"name": job.metadata.name}},
            scratch_volume(job, attempt.scratch, settings),
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
    for name, folder, variable, sources in _credentials(job):
        container = _with_credentials(container, name, folder, variable)
        spec["containers"] = [container]
        spec["volumes"].append({"name": name, "projected": {"sources": sources}})
    merged = merge({"metadata": {"labels": {}}, "spec": spec}, platform_template(job, settings))
    if job.spec.workers.service_account_name:
        merged["spec"]["serviceAccountName"] = job.spec.workers.service_account_name
    merged = merge(merged, given)
    ours = {**labels(job, attempt.uid), **ours}
    merged["metadata"]["labels"] = {**(merged["metadata"].get("labels") or {}), **ours}
    return merged


def _pod_security(settings: Settings) -> Object:
    user = settings.worker_user
    ids = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    return {"runAsNonRoot": True, **ids, "seccompProfile": {"type": "RuntimeDefault"}}


def container_of(job: EmbeddingJob, settings: Settings, verb: str) -> Object:
    """The container that runs ``python -m embertide.pod VERB``, without resources."""
    return {
        "name": naming.CONTAINER,
        "image": image_of(job, settings),
        "imagePullPolicy": settings.pull_policy,
        "args": [verb],
        "env": [
            {"name": "HOME", "value": naming.SCRATCH_FOLDER},
            {"name": "TMPDIR", "value": naming.SCRATCH_FOLDER},
            # A user id that the cluster has chosen has no name, which torch may ask for.
            {"name": "LOGNAME", "value": "embertide"},
            {"name": naming.ENV_OPERATOR_VERSION, "value": _VERSION},
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": naming.TERMINATION_LOG,
        # Of a container that is killed before it can write one.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "job", "mountPath": naming.JOB_FOLDER, "readOnly": True},
            {"name": VOLUME, "mountPath": naming.SCRATCH_FOLDER},
        ],
    }


def _credentials(job: EmbeddingJob) -> list[tuple[str, str, str, list[Object]]]:
    """Name, folder, variable and sources of each volume with keys of Secrets.

    Files, since those follow a Secret while a pod runs. Of each Secret the keys alone are mounted.
    """
    storage, found = job.spec.storage, []
    if storage.credentials_secret is not None:
        own = ("credentials", naming.CREDENTIALS_FOLDER, naming.ENV_CREDENTIALS_FOLDER)
        found.append((*own, _sources(storage.credentials_secret)))
    if storage.secrets:
        of_stores = [item for name in storage.secrets for item in _sources(name, f"{name}/")]
        found.append(("stores", naming.STORES_FOLDER, naming.ENV_STORES_FOLDER, of_stores))
    return found


def _sources(secret: str, folder: str = "") -> list[Object]:
    """The keys of a Secret, as files of a folder of the volume."""

    def source(*keys: str, optional: bool) -> Object:
        items = [{"key": key, "path": f"{folder}{key}"} for key in keys]
        found: Object = {"name": secret, "items": items}
        return {"secret": {**found, "optional": True} if optional else found}

    return [source(*_SECRET_KEYS, optional=False), source(_SECRET_TOKEN, optional=True)]


def _with_credentials(container: Object, volume: str, folder: str, variable: str) -> Object:
    """The container that reads a volume's keys from their files."""
    mount = {"name": volume, "mountPath": folder, "readOnly": True}
    return {
        **container,
        "env": [*container["env"], {"name": variable, "value": folder}],
        "volumeMounts": [*container["volumeMounts"], mount],
    }


def _worker_env(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> list[Object]:
    values = {
        naming.ENV_UID: attempt.uid,
        naming.ENV_ATTEMPT: str(attempt.number),
        naming.ENV_GRID: str(attempt.grid),
        naming.ENV_VERSION: attempt.version,
        naming.ENV_EARLIER: ",".join(attempt.earlier),
        naming.ENV_RENDEZVOUS: naming.rendezvous(job.metadata.name),
        naming.ENV_JOIN_SECONDS: str(_join_seconds(job)),
    }
    if attempt.tables:
        values[naming.ENV_TABLES] = json.dumps(attempt.tables)
    threads = _threads(resources_of(job, settings))
    if threads is not None:
        values[naming.ENV_THREADS] = str(threads)
    index = "metadata.labels['apps.kubernetes.io/pod-index']"
    memory = {"containerName": naming.CONTAINER, "resource": "limits.memory"}
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        {"name": naming.ENV_RANK, "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": naming.ENV_MEMORY_LIMIT, "valueFrom": {"resourceFieldRef": memory}},
    ]


def _join_seconds(job: EmbeddingJob) -> int:
    """The workers' patience with each other: at least the operator's, whose deadline ends a job."""
    return max(_LEAST_JOIN_SECONDS, job.spec.pre_running_deadline_seconds)


def _threads(resources: Object) -> int | None:
    """One per requested CPU; None lets the worker decide."""
    for section in ("limits", "requests"):
        cpu = (resources.get(section) or {}).get("cpu")
        if cpu is not None:
            return max(1, math.floor(quantity(cpu)))
    return None


def _resources(job: EmbeddingJob, attempt: Attempt, settings: Settings) -> Object:
    resources = resources_of(job, settings)
    if attempt.memory is not None:
        memory = {"memory": str(attempt.memory)}
        resources = merge({"requests": memory, "limits": memory}, resources)
    if job.spec.workers.device == "cuda" and _GPU not in (resources.get("limits") or {}):
        resources = merge(resources, {"limits": {**(resources.get("limits") or {}), _GPU: 1}})
    return resources
