"""What the pods of one attempt say: who failed first and why, or what keeps them from running."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from embertide.spec.reports import Ending
from embertide_operator.kubernetes_api import Object
from embertide_operator.observe import condition, container_status, rank_of
from embertide_operator.status import parse_time

_SETTLE_SECONDS = 5.0
"""How long to wait for the worker that knows the cause, once its peers have spoken."""
_UNKNOWN = datetime.max.replace(tzinfo=UTC)
_WAITING = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True)
class Failure:
    """Why an attempt is over.

    Attributes:
        worker: the pod's name, "" where no single one is to blame.
        counts: against ``backoffLimit``; what the cluster did to us does not.
    """

    reason: str
    message: str
    worker: str = ""
    exit_code: int | None = None
    permanent: bool = False
    counts: bool = True


def first_failure(pods: list[Object], now: datetime) -> Failure | None:
    """The cause of an attempt's end, None while it goes on or the cause is still to come."""
    taken = next((gone for pod in pods if (gone := _taken_away(pod))), None)
    endings = sorted((found for pod in pods if (found := _ended(pod))), key=lambda item: item[:2])
    if not endings:
        return taken
    peer, at, failure = endings[0]
    if peer and taken is not None:
        return taken
    if peer and (now - at).total_seconds() < _SETTLE_SECONDS:
        return None
    return failure


def _ended(pod: Object) -> tuple[bool, datetime, Failure] | None:
    """(only a peer, when, why) of a worker whose container has ended, now or before."""
    status = container_status(pod)
    for key in ("state", "lastState"):
        end = (status.get(key) or {}).get("terminated")
        if end is not None:
            break
    else:
        return _evicted(pod)
    if pod["metadata"].get("deletionTimestamp") and end["exitCode"] == 0:
        return None
    name = pod["metadata"]["name"]
    at = parse_time(end["finishedAt"]) if end.get("finishedAt") else _UNKNOWN
    word = Ending.parse(end.get("message") or "")
    if word is not None:
        reason = "OutOfMemory" if end.get("reason") == "OOMKilled" else word.reason
        failure = Failure(reason, word.message, name, end["exitCode"], word.permanent)
        return word.peer, at, failure
    return False, at, Failure(*_silent_end(pod, end), name, end["exitCode"])


def _silent_end(pod: Object, end: Object) -> tuple[str, str]:
    """(reason, message) for a container that left no word."""
    rank, code = rank_of(pod), end["exitCode"]
    if end.get("reason") == "OOMKilled":
        return "OutOfMemory", (
            f"worker {rank} used more memory than its container's limit and was killed; use more"
            " workers, or raise spec.workers.resources.limits.memory"
        )
    said = (end.get("message") or "").strip()
    if end.get("reason") in ("StartError", "ContainerCannotRun"):
        return "CannotStart", f"worker {rank}'s container cannot start: {said}"
    how = f"was killed by signal {code - 128}" if code > 128 else f"ended with exit code {code}"
    return "WorkerFailed", f"worker {rank} {how}" + (f": {said}" if said else "")


def _evicted(pod: Object) -> tuple[bool, datetime, Failure] | None:
    status = pod.get("status") or {}
    if status.get("phase") != "Failed":
        return None
    name, rank = pod["metadata"]["name"], rank_of(pod)
    why = status.get("message") or "the node ended the pod"
    return (
        False,
        _UNKNOWN,
        Failure(status.get("reason") or "WorkerFailed", f"worker {rank}: {why}", name),
    )


def _taken_away(pod: Object) -> Failure | None:
    """A pod that somebody deletes while its attempt runs: a drain, a lost node, a person."""
    if not pod["metadata"].get("deletionTimestamp"):
        return None
    target = condition(pod, "DisruptionTarget")
    why = target.get("message") or "its pod was deleted"
    return Failure(
        "WorkerDisrupted",
        f"worker {rank_of(pod)} was taken away: {why}",
        pod["metadata"]["name"],
        counts=False,
    )


def is_ready(pod: Object) -> bool:
    """Ready, and not about to go."""
    ready = condition(pod, "Ready").get("status") == "True"
    return ready and not pod["metadata"].get("deletionTimestamp")


def obstacle(pods: list[Object], wanted: int, pod_creation_error: str) -> tuple[str, str]:
    """(reason, message): what keeps the workers from being ready."""
    if pod_creation_error and len(pods) < wanted:
        return "PodsRefused", f"{len(pods)} of {wanted} pods could be created: {pod_creation_error}"
    for pod in pods:
        if (kept := _obstacle(pod)) is not None:
            return kept
    ready = sum(map(is_ready, pods))
    return "Starting", f"{ready} of {wanted} workers are ready"


def _obstacle(pod: Object) -> tuple[str, str] | None:
    scheduled = condition(pod, "PodScheduled")
    rank = rank_of(pod)
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason") or "Unschedulable"), (
            f"worker {rank} has no node: {scheduled.get('message', '')}"
        )
    waiting = (container_status(pod).get("state") or {}).get("waiting") or {}
    if waiting.get("reason") and waiting["reason"] not in _WAITING:
        said = waiting.get("message") or "no further message"
        return str(waiting["reason"]), f"worker {rank} cannot start: {said}"
    return None
