"""The result of one reconciliation: the next status, objects to apply, objects to delete."""

from __future__ import annotations

from dataclasses import dataclass, field

from embertide.spec.naming import LABEL_JOB_UID
from embertide_operator.api.routes import Object
from embertide_operator.decide.pod_identity import KEPT
from embertide_operator.job.failures import is_ready
from embertide_operator.job.observe import (
    Observed,
    condition,
    container_status,
    label,
    owners,
    rank_of,
)
from embertide_operator.job.status import Draft

_LOST_SECONDS = 10.0
"""How long after its grace a pod on a node that does not answer is removed by force."""
_STUCK_SECONDS = 60.0
"""The same where nothing says so of the node: a kubelet under load may be slow."""
_TAINTED = "DeletionByTaintManager"
"""Reason of ``DisruptionTarget`` on pods of a node that is not ready or cannot be reached."""
_MANY_PODS = 32
"""More pods than this are deleted by one request. The StatefulSet's controller deletes them one by
one, at 20 requests a second for all that it does, which is quick enough for fewer."""
_TERMINATING_SECONDS = 1.0
"""How soon to check again whether terminating pods are gone."""


@dataclass(frozen=True)
class Deletion:
    """An object to delete; ``force`` does not wait for the pod's node to confirm."""

    kind: str
    name: str
    uid: str
    force: bool = False


@dataclass
class Decision:
    """What to do: write the status, then the fields from ``reset_ports`` on, in their order.

    Attributes:
        reset_ports: Services to be applied that exist: applying alone would leave ports of others,
            which may have the names of ours.
        scale_to_zero: the StatefulSet to scale to zero.
        clear: the UID of a job all of whose pods are to be deleted at once; "" for none.
        requeue_after: seconds until the next reconciliation without an event; None for never.
    """

    draft: Draft
    reset_ports: list[Object] = field(default_factory=list)
    apply: list[Object] = field(default_factory=list)
    scale_to_zero: Object | None = None
    clear: str = ""
    delete: list[Deletion] = field(default_factory=list)
    requeue_after: float | None = None


def are_many(pods: list[Object]) -> bool:
    """Whether so many of these pods are not being deleted yet that one request shall do it."""
    return sum(not is_terminating(pod) for pod in pods) > _MANY_PODS


def stop_pods(seen: Observed, draft: Draft, requeue_after: float | None = None) -> Decision:
    """Stop all pods of a job; its other objects stay."""
    decision = Decision(draft, requeue_after=requeue_after)
    statefulset = seen.children.get("StatefulSet")
    if statefulset is not None and (
        statefulset["spec"]["replicas"] > 0 or any(map(_is_held, seen.pods))
    ):
        decision.scale_to_zero = statefulset
    uid = seen.job["metadata"]["uid"]
    # Only those that one request for this job selects.
    labelled = [pod for pod in seen.pods if label(pod, LABEL_JOB_UID) == uid]
    decision.clear = uid if are_many(labelled) else ""
    decision.delete += [
        pod_deletion(pod)
        for pod in seen.pods
        if not is_terminating(pod)
        and not _is_controlled(pod, statefulset)
        and not (decision.clear and label(pod, LABEL_JOB_UID) == uid)
    ]
    for pod in seen.pods:
        if is_stuck(pod, seen, draft):
            decision.delete.append(pod_deletion(pod, force=True))
    if seen.pods or (requeue_after is None and draft["phase"] == "Restarting"):
        decision.requeue_after = _TERMINATING_SECONDS
    count_workers(seen.workers, 0, draft)
    if not seen.pods and draft.condition("WorkersReady"):
        draft.set("WorkersReady", False, "Stopped", "no workers are running")
    return decision


def _is_held(pod: Object) -> bool:
    """Whether a pod that has ended stays for somebody's finalizer.

    It is Kueue's, on pods that never got a node: Kueue lets go of them when the StatefulSet
    changes, as it does when it is scaled, to zero once more.
    """
    meta, phase = pod["metadata"], (pod.get("status") or {}).get("phase")
    ended = phase in ("Succeeded", "Failed")
    return bool(meta.get("deletionTimestamp") and meta.get("finalizers") and ended)


def is_terminating(item: Object | None) -> bool:
    """Whether an object is being deleted; False for none."""
    return item is not None and bool(item["metadata"].get("deletionTimestamp"))


def _is_controlled(pod: Object, statefulset: Object | None) -> bool:
    """Whether scaling the StatefulSet to zero deletes the pod; the planner's is no worker."""
    if statefulset is None or is_terminating(statefulset):
        return False
    return statefulset["metadata"]["uid"] in owners(pod)


def pod_deletion(pod: Object, *, force: bool = False) -> Deletion:
    """The deletion of this pod, and of no later pod of the same name."""
    return Deletion("Pod", pod["metadata"]["name"], pod["metadata"]["uid"], force)


def child_deletion(kind: str, child: Object) -> Deletion:
    """The deletion of this child, and of no later one of the same name."""
    return Deletion(kind, child["metadata"]["name"], child["metadata"]["uid"])


def is_stuck(pod: Object, seen: Observed, draft: Draft) -> bool:
    """Whether no kubelet will remove a pod: its node is lost, or its grace is long over.

    The end of its grace is a time of the API server, so it is compared with that one's clock.
    """
    due = pod["metadata"].get("deletionTimestamp")
    if due is None:
        return False
    limit = _LOST_SECONDS if _is_lost(pod) else _STUCK_SECONDS
    return draft.seconds_since_time(due) + seen.server_ahead > limit


def _is_lost(pod: Object) -> bool:
    """Whether the control plane has given up a pod because its node does not answer."""
    target = condition(pod, "DisruptionTarget")
    return target.get("status") == "True" and target.get("reason") == _TAINTED


def count_workers(pods: list[Object], wanted: int, draft: Draft) -> int:
    """Count the workers that are wanted in ``status.workers``; returns how many are ready."""
    ready = sum(1 for pod in pods if rank_of(pod) < wanted and is_ready(pod))
    failed = sum(1 for pod in pods if _has_terminated(container_status(pod)))
    known = draft["workers"] or {}
    draft["workers"] = {
        **{name: known[name] for name in KEPT if name in known},
        "desired": wanted,
        "ready": ready,
        "failed": failed,
        "summary": f"{ready}/{wanted}",
    }
    return ready


def _has_terminated(worker: Object) -> bool:
    """Whether the worker's container has terminated, now or before; see its status."""
    return any((worker.get(key) or {}).get("terminated") for key in ("state", "lastState"))
