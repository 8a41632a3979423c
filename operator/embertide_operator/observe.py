"""The state of one job, as a pass sees it: from the cache, or from the Kubernetes API itself."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from embertide.spec.base import normalise_uri
from embertide.spec.naming import (
    CONTAINER,
    LABEL_ATTEMPT,
    LABEL_JOB_UID,
    LABEL_ROLE,
    ROLE_WORKER,
)
from embertide.spec.reports import WorkerStatus
from embertide_operator.kubernetes_api import Object

CHILDREN = ("StatefulSet", "ConfigMap", "Service", "PodDisruptionBudget")


@dataclass(frozen=True)
class Observed:
    """One job and everything that belongs to it, as read for one reconciliation.

    Attributes:
        job: the EmbeddingJob as the API has it.
        children: by kind, the objects that have the job's name and are owned by it.
        name_conflicts: "Kind/name" of objects that have a child's name but another owner.
        pods: every pod of the job: workers of all attempts, and the planner.
        pod_creation_error: why the StatefulSet could not create its pods; "" when no Event says.
        report: rank 0's latest answer to ``/status`` in this attempt; None before the first.
        report_age: seconds since that answer, on this operator's clock; None without one.
        asked: whether rank 0 was asked since it can answer; before, no deadline is judged.
        unreachable: why rank 0, which is ready, did not answer the last time; "" where it did.
        unreachable_seconds: for how long it has not, on this operator's clock.
        competing_job: the job with the same output that runs first, and why; "" for none.
        queued: why the job has to wait for room, and in which place; "" where it may start.
        last_success: when the output was last published by any job; "" for never.
    """

    job: Object
    _: KW_ONLY
    children: dict[str, Object] = field(default_factory=dict)
    name_conflicts: list[str] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    pod_creation_error: str = ""
    report: WorkerStatus | None = None
    report_age: float | None = None
    asked: bool = True
    unreachable: str = ""
    unreachable_seconds: float = 0.0
    competing_job: str = ""
    queued: str = ""
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

    def planners(self) -> list[Object]:
        """The planner's pods of all attempts."""
        return [pod for pod in self.pods if label(pod, LABEL_ROLE) != ROLE_WORKER]


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


def pod_title(pod: Object) -> str:
    """How messages name a pod: ``worker 3``, or ``the planner``."""
    return f"worker {rank_of(pod)}" if label(pod, LABEL_ROLE) == ROLE_WORKER else "the planner"


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


def observe(source: Source, job: Object) -> Observed:
    """Read everything that belongs to a job, but what rank 0 and other jobs say.

    Raises:
        ApiError: the API server rejected or did not answer a request.
    """
    meta = job["metadata"]
    namespace, name = meta["namespace"], meta["name"]
    children: dict[str, Object] = {}
    name_conflicts = []
    for kind in CHILDREN:
        found = source.get(kind, namespace, name)
        if found is not None and meta["uid"] in owners(found):
            children[kind] = found
        elif found is not None:
            name_conflicts.append(f"{kind}/{name}")
    pods = [pod for pod in source.pods(namespace, name) if _is_ours(pod, meta["uid"], children)]
    return Observed(
        job,
        children=children,
        name_conflicts=name_conflicts,
        pods=pods,
        pod_creation_error=_pod_creation_error(
            source, namespace, children.get("StatefulSet"), pods
        ),
    )


def _is_ours(pod: Object, uid: str, children: dict[str, Object]) -> bool:
    """Whether a pod is of this job; a deleted job of the same name may have left some.

    Pods of an earlier release have no label with the UID, but an owner.
    """
    if marked := label(pod, LABEL_JOB_UID):
        return marked == uid
    statefulset = children.get("StatefulSet")
    mine = {uid} | ({statefulset["metadata"]["uid"]} if statefulset else set())
    return bool(mine & set(owners(pod)))


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
    events = source.events_about(namespace, statefulset["metadata"]["uid"], "FailedCreate")
    newest = max(events, key=lambda event: event.get("lastTimestamp") or "", default=None)
    return str(newest["message"]) if newest else ""


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
    return phase not in ("Pending", "Suspended") and not is_finished(job)


def output_of(job: Object) -> str:
    """The job's output URI in normal form, so that equal locations compare equal."""
    uri = str(job["spec"]["output"]["uri"])
    try:
        return normalise_uri(uri).rstrip("/")
    except ValueError:
        return uri
