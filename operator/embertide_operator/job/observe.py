"""The state of one job, as a pass sees it: from the cache, or from the Kubernetes API itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Protocol

from embertide.spec.base import normalise_uri
from embertide.spec.manifest import KIND
from embertide.spec.naming import (
    CONTAINER,
    LABEL_ATTEMPT,
    LABEL_JOB_UID,
    LABEL_ROLE,
    MANAGED_BY,
    ROLE_LOOKER,
    ROLE_PUSHER,
    ROLE_WORKER,
)
from embertide.spec.reports import WorkerStatus
from embertide.spec.version_names import published_uri_of
from embertide_operator.api.routes import Object

_MISSING = re.compile(r"not found|references non-existent")
"""What the kubelet says of a ConfigMap, Secret or key that does not exist. Other troubles with
volumes come and go while a pod starts."""


@dataclass(frozen=True)
class Observed:
    """One job and everything that belongs to it, as read for one reconciliation.

    Attributes:
        job: the EmbeddingJob as the API has it.
        children: by kind, the objects that have the job's name and are owned by it.
        name_conflicts: "Kind/name" of objects that have a child's name but another owner.
        predecessors: "Kind/name" of what a deleted job of this name has left and Kubernetes is
            still removing.
        pods: every pod of the job: workers of all attempts, the planner, and those that look at
            inputs or push.
        pod_creation_error: why the StatefulSet could not create its pods; "" when no Event says.
        pod_loss: the Event that says why a pod of the attempt is gone; {} where none does.
        mount_error: what is missing for a pod's volumes; "" when no Event says.
        report: rank 0's latest answer to ``/status`` in this attempt; None before the first.
        unreachable_seconds: for how long rank 0 is Ready, asked, and does not answer; 0 if it does.
        unreachable_why: why it did not answer the last time; "" if it did, or was not asked yet.
        server_ahead: seconds that the API server's clock is ahead of the operator's.
        competing_job: the job with the same output that runs first, and why; "" for none.
        queued: why the job has to wait for room, and in which place; "" where it may start.
        pushing_job: another job with the same output whose version is being pushed; "" for none.
        last_success: when the output was last published by any job; "" for never.
    """

    job: Object
    _: KW_ONLY
    children: dict[str, Object] = field(default_factory=dict)
    name_conflicts: list[str] = field(default_factory=list)
    predecessors: list[str] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    pod_creation_error: str = ""
    pod_loss: Object = field(default_factory=dict)
    mount_error: str = ""
    report: WorkerStatus | None = None
    unreachable_seconds: float = 0.0
    unreachable_why: str = ""
    server_ahead: float = 0.0
    competing_job: str = ""
    queued: str = ""
    pushing_job: str = ""
    last_success: str = ""

    @property
    def status(self) -> Object:
        """The job's status, {} before it has one."""
        return self.job.get("status") or {}

    @property
    def workers(self) -> list[Object]:
        """The workers' pods of all attempts, by rank."""
        found = [pod for pod in self.pods if label(pod, LABEL_ROLE) == ROLE_WORKER]
        return sorted(found, key=rank_of)

    def rank_zero(self, attempt: int) -> Object | None:
        """The pod of rank 0 of an attempt."""
        found = (pod for pod in self.workers if rank_of(pod) == 0 and attempt_of(pod) == attempt)
        return next(found, None)

    def before_answers(self) -> Observed:
        """The same for an attempt that starts now: what rank 0 answered is of the one before."""
        return replace(self, report=None, unreachable_seconds=0.0, unreachable_why="")

    def planners(self) -> list[Object]:
        """The planner's pods of all attempts."""
        others = (ROLE_WORKER, ROLE_LOOKER, ROLE_PUSHER)
        return [pod for pod in self.pods if label(pod, LABEL_ROLE) not in others]

    def lookers(self) -> list[Object]:
        """The pods that look whether the inputs are ready."""
        return [pod for pod in self.pods if label(pod, LABEL_ROLE) == ROLE_LOOKER]

    def pushers(self) -> list[Object]:
        """The pods that push a version into an index."""
        return [pod for pod in self.pods if label(pod, LABEL_ROLE) == ROLE_PUSHER]

    def without_pushers(self) -> Observed:
        """The same without them, who do not stop when the workers do."""
        return replace(
            self, pods=[pod for pod in self.pods if label(pod, LABEL_ROLE) != ROLE_PUSHER]
        )


def label(item: Object, key: str) -> str:
    """A label's value; "" where it is not set."""
    return str((item["metadata"].get("labels") or {}).get(key, ""))


def attempt_of(pod: Object) -> int:
    """The number of a pod's attempt."""
    return int(label(pod, LABEL_ATTEMPT) or 0)


def rank_of(pod: Object) -> int:
    """A worker's rank: its pod's ordinal in the StatefulSet."""
    last = str(pod["metadata"]["name"]).rpartition("-")[2]
    return int(last) if last.isdigit() else -1


_TITLES = {ROLE_LOOKER: "the look at the inputs", ROLE_PUSHER: "the push"}


def pod_title(pod: Object) -> str:
    """How messages name a pod: ``worker 3``, ``the planner``, ``the look at the inputs``, ..."""
    role = label(pod, LABEL_ROLE)
    return f"worker {rank_of(pod)}" if role == ROLE_WORKER else _TITLES.get(role, "the planner")


def container_status(pod: Object) -> Object:
    """The status of the container ``worker``; {} before it has one."""
    found = (pod.get("status") or {}).get("containerStatuses") or []
    return next((item for item in found if item["name"] == CONTAINER), {})


def condition(item: Object, kind: str) -> Object:
    """A condition of any object; {} where it is not set."""
    found = (item.get("status") or {}).get("conditions") or []
    return next((c for c in found if c["type"] == kind), {})


def is_true(item: Object, kind: str) -> bool:
    """Whether a condition of any object is True."""
    return bool(condition(item, kind).get("status") == "True")


def is_managed_elsewhere(job: Object) -> bool:
    """Whether ``spec.managedBy`` leaves a job to another controller, which alone writes to it."""
    return job["spec"].get("managedBy") not in (None, MANAGED_BY)


def is_finished(job: Object) -> bool:
    """Whether a job has succeeded, or failed without further retries."""
    return is_true(job, "Complete") or is_true(job, "Failed")


class Source(Protocol):
    """Where a job's objects are read: the cache, or the API itself."""

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """One object; None where it does not exist."""

    def pods(self, namespace: str, job: str) -> list[Object]:
        """The pods with the label of a job of this name."""

    def events_about(self, namespace: str, uid: str, reason: str) -> list[Object]:
        """The Events about an object with this reason."""

    def events_about_pod(self, namespace: str, name: str) -> list[Object]:
        """The Events about a pod and those of its name before it."""


def observe(source: Source, job: Object, kinds: Sequence[str]) -> Observed:
    """Read everything that belongs to a job, but what rank 0 and other jobs say.

    Args:
        kinds: of its children.

    Raises:
        ApiError: the API server rejected or did not answer a request.
    """
    meta = job["metadata"]
    namespace, name = meta["namespace"], meta["name"]
    children: dict[str, Object] = {}
    name_conflicts, predecessors = [], []
    for kind in kinds:
        found = source.get(kind, namespace, name)
        if found is not None and meta["uid"] in owners(found):
            children[kind] = found
        elif found is not None and _belonged_to(found, name):
            predecessors.append(f"{kind}/{name}")
        elif found is not None:
            name_conflicts.append(f"{kind}/{name}")
    of_this_name = source.pods(namespace, name)
    pods = [pod for pod in of_this_name if is_of_job(pod, meta["uid"], children)]
    predecessors += [
        f"Pod/{pod['metadata']['name']}"
        for pod in of_this_name
        if label(pod, LABEL_JOB_UID) not in ("", meta["uid"])
    ]
    statefulset = children.get("StatefulSet")
    return Observed(
        job,
        children=children,
        name_conflicts=name_conflicts,
        predecessors=predecessors,
        pods=pods,
        pod_creation_error=_pod_creation_error(source, namespace, statefulset, pods),
        mount_error=_mount_error(source, pods),
    )


def is_of_job(pod: Object, uid: str, children: dict[str, Object]) -> bool:
    """Whether a pod is one of this job's, whatever owns it now, and not of a deleted namesake."""
    if labelled := label(pod, LABEL_JOB_UID):
        return labelled == uid
    # Pods that an operator has started which did not set the label yet.
    statefulset = children.get("StatefulSet")
    mine = {uid} | ({statefulset["metadata"]["uid"]} if statefulset else set())
    return bool(mine & set(owners(pod)))


def _belonged_to(item: Object, job: str) -> bool:
    """Whether a job of this name owns an object; asked of those that the present one does not."""
    refs = item["metadata"].get("ownerReferences") or []
    return any((ref["kind"], ref["name"]) == (KIND, job) for ref in refs)


def owners(item: Object) -> list[str]:
    """The UIDs of an object's owners."""
    return [ref["uid"] for ref in item["metadata"].get("ownerReferences") or []]


def _pod_creation_error(
    source: Source, namespace: str, statefulset: Object | None, pods: list[Object]
) -> str:
    """Why the StatefulSet cannot create its pods; only Events report it (quota, admission)."""
    if statefulset is None:
        return ""
    created = sum(1 for pod in pods if label(pod, LABEL_ROLE) == ROLE_WORKER)
    if created >= statefulset["spec"]["replicas"]:
        return ""
    uid = statefulset["metadata"]["uid"]
    events = source.events_about(namespace, uid, "FailedCreate")
    newest = max(events, key=lambda event: event.get("lastTimestamp") or "", default=None)
    return str(newest["message"]) if newest else ""


def _mount_error(source: Source, pods: list[Object]) -> str:
    """What is missing for the volumes of the first pod that waits for them; only Events say."""
    pod = next(filter(_waits_for_volumes, pods), None)
    if pod is None:
        return ""
    meta = pod["metadata"]
    events = source.events_about(meta["namespace"], meta["uid"], "FailedMount")
    newest = max(events, key=lambda event: event.get("lastTimestamp") or "", default={})
    why = str(newest.get("message", ""))
    return f"{pod_title(pod)} cannot start: {why}" if _MISSING.search(why) else ""


def _waits_for_volumes(pod: Object) -> bool:
    """Whether a pod has a node, and no sandbox yet, which it gets once its volumes are there."""
    has_node = is_true(pod, "PodScheduled") and not pod["metadata"].get("deletionTimestamp")
    return has_node and condition(pod, "PodReadyToStartContainers").get("status") == "False"


def rank_zero(pods: list[Object], uid: str, attempt: int) -> Object | None:
    """The pod of rank 0 of a job's attempt whose container runs and that has an address."""
    for pod in pods:
        if label(pod, LABEL_ROLE) != ROLE_WORKER or rank_of(pod) != 0 or attempt_of(pod) != attempt:
            continue
        runs = "running" in (container_status(pod).get("state") or {})
        if (
            runs
            and (pod.get("status") or {}).get("podIP")
            and label(pod, LABEL_JOB_UID) in ("", uid)
        ):
            return pod
    return None


def holds_output(job: Object) -> bool:
    """Whether a job has started and may write its output, also between two attempts."""
    phase = (job.get("status") or {}).get("phase", "Pending")
    return phase not in ("Pending", "Waiting", "Suspended") and not is_finished(job)


def waits_for_inputs(job: Object) -> bool:
    """Whether a job has inputs that it waits for, and that are not known to be ready."""
    if ((job.get("status") or {}).get("inputs") or {}).get("readyTime"):
        return False
    spec = job["spec"].get("input") or {}
    nodes = spec.get("nodes") or []
    parts = (node.get(part) for node in nodes for part in ("table", "features"))
    targets = (job["spec"].get("inference") or {}).get("targets") or {}
    others = filter(None, [*parts, spec.get("pairs"), targets.get("table")])
    inputs = [*(spec.get("edges") or []), *others]
    return any(item.get("ready") is not None for item in inputs)


def output_of(job: Object) -> str:
    """Where the job publishes, in normal form, so that equal locations compare equal."""
    uri = published_uri_of(job["spec"])
    try:
        return normalise_uri(uri).rstrip("/")
    except ValueError:
        return uri
