"""An attempt's StatefulSet and pods, which ``status.workers`` remembers by their UIDs.

Where one of them is deleted, Kubernetes makes another one of the same name, or the operator would.
It must not take part: two sets of pods would share an attempt and its version. So an attempt ends
with the first of its objects that is lost.
"""

from __future__ import annotations

from embertide.spec.naming import LABEL_ATTEMPT, worker_name
from embertide_operator.api.routes import Object
from embertide_operator.job.disruptions import is_own_fault, why_disrupted
from embertide_operator.job.failures import Failure
from embertide_operator.job.observe import Observed, label, rank_of
from embertide_operator.job.status import Draft
from embertide_operator.pods.worker_pods import Attempt

KEPT = ("statefulSet", "pods")
"""The fields of ``status.workers`` that belong to this module."""
_UID_CHARACTERS = 8
"""How much of a pod's UID is shown: enough to tell the pod from the one before of its name."""


def workers_of(seen: Observed, attempt: Attempt) -> list[Object]:
    """The attempt's pods by rank; those beyond its grid belong to no attempt."""
    return [pod for pod in seen.workers if 0 <= rank_of(pod) < attempt.grid.workers]


def remember(seen: Observed, attempt: Attempt, draft: Draft) -> None:
    """Note the UIDs of the attempt's StatefulSet and pods, as far as they exist."""
    known = dict(draft["workers"] or {})
    statefulset = seen.children.get("StatefulSet")
    if statefulset is not None and _runs(statefulset, attempt):
        known["statefulSet"] = statefulset["metadata"]["uid"]
    uids = {rank_of(pod): _short_uid(pod) for pod in workers_of(seen, attempt)}
    if uids:
        known["pods"] = [uids.get(rank, "") for rank in range(attempt.grid.workers)]
    draft["workers"] = known or None


def find_lost(seen: Observed, attempt: Attempt, draft: Draft) -> Failure | None:
    """The disruption of an attempt that lost its StatefulSet or a pod; None where it has all."""
    known = draft["workers"] or {}
    workers = workers_of(seen, attempt)
    if why := _lost_statefulset(seen, attempt, known.get("statefulSet") or "", workers):
        return _disrupted("the workers were", why)
    if any(map(why_disrupted, workers)):
        return None  # these pods say why
    ranks = {rank_of(pod) for pod in workers}
    for rank in lost_pods(seen):
        why = "its pod was replaced by another one" if rank in ranks else "its pod is gone"
        return _lost_pod(rank, worker_name(seen.job["metadata"]["name"], rank), why, seen.pod_loss)
    return None


def lost_pods(seen: Observed) -> dict[int, str]:
    """The ranks whose pod in a running attempt is gone, with the beginning of its UID."""
    if not seen.status.get("attemptStartTime"):
        return {}
    known = (seen.status.get("workers") or {}).get("pods") or []
    uids = {rank_of(pod): _short_uid(pod) for pod in seen.workers}
    return {rank: uid for rank, uid in enumerate(known) if uid and uids.get(rank) != uid}


def _lost_pod(rank: int, name: str, why: str, event: Object) -> Failure:
    """The failure of a worker whose pod is gone; an Event may say more."""
    reason, message = event.get("reason", ""), event.get("message", "")
    if is_own_fault(reason, message):
        return Failure(reason, f"worker {rank}: {message}", worker=name)
    return _disrupted(f"worker {rank} was", message or why, name)


def _lost_statefulset(seen: Observed, attempt: Attempt, uid: str, workers: list[Object]) -> str:
    """What happened to the attempt's StatefulSet; "" where it is as it was, or not created yet."""
    found = seen.children.get("StatefulSet")
    if found is None:
        return "their StatefulSet was deleted" if uid or workers else ""
    if found["metadata"].get("deletionTimestamp"):
        return "their StatefulSet was deleted"
    if uid and found["metadata"]["uid"] != uid:
        return "their StatefulSet was replaced by another one"
    replicas, wanted = found["spec"]["replicas"], attempt.grid.workers
    if _runs(found, attempt) and replicas < wanted:
        return f"their StatefulSet was scaled from {wanted} to {replicas}"
    return ""


def _runs(statefulset: Object, attempt: Attempt) -> bool:
    return label(statefulset, LABEL_ATTEMPT) == str(attempt.number)


def _short_uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])[:_UID_CHARACTERS]


def _disrupted(who: str, why: str, worker: str = "") -> Failure:
    return Failure("WorkerDisrupted", f"{who} disrupted: {why}", worker=worker, counts=False)
