"""The result of one reconciliation: the next status, objects to apply, objects to delete."""

from __future__ import annotations

from dataclasses import dataclass, field

from embertide_operator.failures import is_ready
from embertide_operator.kubernetes_api import Object
from embertide_operator.observe import Observed, condition
from embertide_operator.status import Draft

_LOST_SECONDS = 10.0
"""How long after its grace a pod on a node that does not answer is removed by force."""
_STUCK_SECONDS = 60.0
"""The same where nothing says so of the node: a kubelet under load may be slow."""
_TAINTED = "DeletionByTaintManager"
"""Reason of ``DisruptionTarget`` on pods of a node that is not ready or cannot be reached."""
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
    """What to do, in this order: write the status, apply, scale to zero, delete.

    Attributes:
        scale_to_zero: the StatefulSet to scale to zero.
        requeue_after: seconds until the next reconciliation without an event; None for never.
    """

    draft: Draft
    apply: list[Object] = field(default_factory=list)
    scale_to_zero: Object | None = None
    delete: list[Deletion] = field(default_factory=list)
    requeue_after: float | None = None


def stop_pods(seen: Observed, draft: Draft, requeue_after: float | None = None) -> Decision:
    """Stop all pods of a job; its other objects stay."""
    decision = Decision(draft, requeue_after=requeue_after)
    statefulset = seen.children.get("StatefulSet")
    if statefulset is not None and statefulset["spec"]["replicas"] > 0:
        decision.scale_to_zero = statefulset
    for pod in seen.planners():
        if not pod["metadata"].get("deletionTimestamp"):
            decision.delete.append(pod_deletion(pod))
    for pod in seen.pods:
        if is_stuck(pod, seen, draft):
            decision.delete.append(pod_deletion(pod, force=True))
    if seen.pods or (requeue_after is None and draft["phase"] == "Restarting"):
        decision.requeue_after = _TERMINATING_SECONDS
    count_workers(seen.workers, 0, draft)
    if not seen.pods and draft.condition("WorkersReady"):
        draft.set("WorkersReady", False, "Stopped", "no workers are running")
    return decision


def pod_deletion(pod: Object, *, force: bool = False) -> Deletion:
    """The deletion of this pod, and of no later pod of the same name."""
    return Deletion("Pod", pod["metadata"]["name"], pod["metadata"]["uid"], force)


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
    """Set ``status.workers``; returns the number of ready workers."""
    ready = sum(map(is_ready, pods))
    failed = sum(1 for pod in pods if _has_terminated(pod))
    draft["workers"] = {
        "desired": wanted,
        "ready": ready,
        "failed": failed,
        "summary": f"{ready}/{wanted}",
    }
    return ready


def _has_terminated(pod: Object) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any(
        (item.get(key) or {}).get("terminated")
        for item in statuses
        for key in ("state", "lastState")
    )
