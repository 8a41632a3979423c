"""Pod states of one attempt: the first failure and its cause, or why pods are not ready."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime

from embertide.spec.naming import CONTAINER, LABEL_ROLE, ROLE_PUSHER, ROLE_WORKER
from embertide.spec.reports import Ending, OutputReport
from embertide_operator.api.quantities import size_text
from embertide_operator.api.routes import Object
from embertide_operator.job.disruptions import was_stopped, why_disrupted
from embertide_operator.job.observe import condition, container_status, label, pod_title
from embertide_operator.job.sidecars import other_trouble
from embertide_operator.job.status import parse_time

_SETTLE_SECONDS = 5.0
"""How long to wait for the cause after a worker has only reported a lost peer."""
_TIME_UNKNOWN = datetime.max.replace(tzinfo=UTC)
"""Sorts after every known time."""
_NORMAL_WAITING_REASONS = ("ContainerCreating", "PodInitializing")
OUT_OF_MEMORY = "OutOfMemory"
_MORE_MEMORY = {
    ROLE_WORKER: "use more workers, or raise spec.workers.resources.limits.memory",
    ROLE_PUSHER: "raise spec.push.resources.limits.memory",
}
_MORE_FOR_PLANNERS = (
    "set spec.workers.grid and resources.limits.memory, then nothing is left to plan"
)
KILLED = "OOMKilled"
"""What the kubelet calls the end of a container of which the kernel killed any process."""
_MOST_LINES, _MOST_BYTES = 40, 4096
"""Lines and bytes of a log that the status keeps."""
_SIGNAL_EXIT_CODE = 128
"""A container killed by signal n exits with 128 + n."""


@dataclass(frozen=True)
class Failure:
    """Why an attempt has failed.

    Attributes:
        worker: the name of the pod that failed; "" where no single one did.
        retryable: False ends the job at once.
        counts: whether it counts against ``backoffLimit``; disruptions do not.
        log: the last lines of the container's log, where it left some.
    """

    reason: str
    message: str
    _: KW_ONLY
    worker: str = ""
    exit_code: int | None = None
    retryable: bool = True
    counts: bool = True
    log: str = ""


def reported_failure(pod: Object, end: Object, ending: Ending) -> Failure:
    """The failure that a container reported through its termination message.

    Where the kernel killed one of its processes for memory, the others report what that did to
    them, such as a connection that broke. So memory is the cause, unless no retry can succeed.
    """
    killed = end.get("reason") == KILLED and ending.reason != OUT_OF_MEMORY
    if killed and not ending.permanent:
        return out_of_memory(pod, end)
    return Failure(
        ending.reason,
        ending.message,
        worker=pod["metadata"]["name"],
        exit_code=end["exitCode"],
        retryable=not ending.permanent,
        log=log_of(end),
    )


def out_of_memory(pod: Object, end: Object) -> Failure:
    """The failure of a container that the kernel killed, or a process of it, for its memory."""
    limit = memory_limit(pod)
    used = f"all of its memory limit, {limit}" if limit else "all of the memory that it may use"
    advice = _MORE_MEMORY.get(label(pod, LABEL_ROLE), _MORE_FOR_PLANNERS)
    return Failure(
        OUT_OF_MEMORY,
        f"{pod_title(pod)} ran out of memory: its container used {used}, and was killed; {advice}",
        worker=pod["metadata"]["name"],
        exit_code=end["exitCode"],
        log=log_of(end),
    )


def memory_limit(pod: Object) -> str:
    """The memory limit of a pod's container ``worker``, as Kubernetes writes it; "" for none."""
    containers = (pod.get("spec") or {}).get("containers") or []
    ours: Object = next((item for item in containers if item["name"] == CONTAINER), {})
    limits = (ours.get("resources") or {}).get("limits") or {}
    return size_text(limits["memory"]) if "memory" in limits else ""


def failure_of(pod: Object, end: Object, reason: str) -> Failure:
    """The failure of a container that runs once and has ended with no result.

    Args:
        reason: where the container reported none and was not killed for its memory.
    """
    ending = Ending.parse(end.get("message") or "")
    if ending is not None:
        return reported_failure(pod, end, ending)
    if end.get("reason") == KILLED:
        return out_of_memory(pod, end)
    message = f"{pod_title(pod)} {exit_text(end)}"
    name, code = pod["metadata"]["name"], end["exitCode"]
    return Failure(reason, message, worker=name, exit_code=code, log=log_of(end))


def exit_text(end: Object) -> str:
    """How a container exited that reported no :class:`Ending`, with the last line of its output."""
    code, output = end["exitCode"], (end.get("message") or "").strip().rpartition("\n")[2]
    if end.get("reason") == KILLED:
        return "ran out of memory and was killed"
    if code > _SIGNAL_EXIT_CODE:
        text = f"was killed by signal {code - _SIGNAL_EXIT_CODE}"
        return f"{text}: {output}" if output else text
    text = f"exited with code {code}"
    return f"{text}: {output}" if output else f"{text} without reporting an error"


def log_of(end: Object) -> str:
    """The last lines that a container has left: in its Ending, or what the kubelet took of its log;
    bounded as :func:`bounded_log` does."""
    text = end.get("message") or ""
    ending = Ending.parse(text)
    return bounded_log(text if ending is None else ending.log)


def bounded_log(text: str) -> str:
    """The last lines of a log that the status has room for: at most 40, of 4096 bytes in all.

    Control characters, which terminals obey, are left out.
    """
    lines = text.splitlines()[-_MOST_LINES:]
    lines = ["".join(filter(str.isprintable, line.expandtabs())) for line in lines]
    while lines and len("\n".join(lines).encode()) > _MOST_BYTES:
        del lines[0]
    return "\n".join(lines)


def published_by(pod: Object) -> OutputReport | None:
    """What a pod's container published before it ended with 0; None where it did not."""
    status = container_status(pod)
    for key in ("state", "lastState"):
        end = (status.get(key) or {}).get("terminated") or {}
        if end.get("exitCode") == 0:
            return OutputReport.parse(end.get("message") or "")
    return None


def first_failure(pods: list[Object], now: datetime, lost: Failure | None = None) -> Failure | None:
    """The cause of an attempt's failure; None while it runs or the cause is not known yet.

    Args:
        lost: the disruption of which the pods know nothing.
    """
    disruption = lost or next(filter(None, map(disruption_of, pods)), None)
    endings = sorted((found for pod in pods if (found := _ended(pod))), key=lambda item: item[:2])
    if not endings:
        return disruption
    lost_peer, at, failure = endings[0]
    if lost_peer and disruption is not None:
        return disruption
    if lost_peer and (now - at).total_seconds() < _SETTLE_SECONDS:
        return None
    return failure


def _ended(pod: Object) -> tuple[bool, datetime, Failure] | None:
    """(lost a peer, when, why) of a worker whose container has terminated, now or before."""
    if published_by(pod) is not None:
        return None
    status = container_status(pod)
    for key in ("state", "lastState"):
        end = (status.get(key) or {}).get("terminated")
        if end is not None:
            break
    else:
        return _evicted(pod)
    at = parse_time(end["finishedAt"]) if end.get("finishedAt") else _TIME_UNKNOWN
    ending = Ending.parse(end.get("message") or "")
    if ending is None and was_stopped(end) and (pod["status"].get("reason") or why_disrupted(pod)):
        return _evicted(pod)
    if ending is None:
        name, code = pod["metadata"]["name"], end["exitCode"]
        if end.get("reason") == KILLED:
            return False, at, out_of_memory(pod, end)
        reason, message = _unreported(pod, end)
        return False, at, Failure(reason, message, worker=name, exit_code=code, log=log_of(end))
    failure = reported_failure(pod, end, ending)
    return ending.peer and failure.reason != OUT_OF_MEMORY, at, failure


def _unreported(pod: Object, end: Object) -> tuple[str, str]:
    """(reason, message) for a container that exited without reporting an error."""
    worker = pod_title(pod)
    match end.get("reason"):
        case "StartError" | "ContainerCannotRun":
            output = (end.get("message") or "").strip()
            return "CannotStart", f"the container of {worker} cannot start: {output}"
        case _:
            return "WorkerFailed", f"{worker} {exit_text(end)}"


def _evicted(pod: Object) -> tuple[bool, datetime, Failure] | None:
    """The failure of a pod that its node terminated for what the job asked for or used."""
    status = pod.get("status") or {}
    if status.get("phase") != "Failed" or why_disrupted(pod):
        return None
    why = status.get("message") or "its node terminated the pod"
    reason = status.get("reason") or "WorkerFailed"
    failure = Failure(reason, f"{pod_title(pod)}: {why}", worker=pod["metadata"]["name"])
    return False, _TIME_UNKNOWN, failure


def disruption_of(pod: Object) -> Failure | None:
    """The end of a pod during its attempt: a drain, a preemption, a lost node, a user."""
    why = why_disrupted(pod)
    if not why:
        return None
    return Failure(
        "WorkerDisrupted",
        f"{pod_title(pod)} was disrupted: {why}",
        worker=pod["metadata"]["name"],
        counts=False,
    )


def is_ready(pod: Object) -> bool:
    """Whether a pod is ready and not being deleted."""
    ready = condition(pod, "Ready").get("status") == "True"
    return ready and not pod["metadata"].get("deletionTimestamp")


def why_not_ready(
    pods: list[Object], wanted: int, pod_creation_error: str, mount_error: str
) -> tuple[str, str]:
    """(reason, message): why the workers are not all ready."""
    if pod_creation_error and len(pods) < wanted:
        return "PodsRefused", f"{len(pods)} of {wanted} pods are created: {pod_creation_error}"
    for pod in pods:
        if (found := why_not_running(pod)) is not None:
            return found
    if mount_error:
        return "FailedMount", mount_error
    ready = sum(map(is_ready, pods))
    return "Starting", f"{ready} of {wanted} workers are ready"


def why_not_running(pod: Object) -> tuple[str, str] | None:
    """(reason, message) of a pod that is not scheduled or cannot start its container."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason") or "Unschedulable"), (
            f"{pod_title(pod)} is not scheduled: {scheduled.get('message', '')}"
        )
    waiting = (container_status(pod).get("state") or {}).get("waiting") or {}
    if waiting.get("reason") and waiting["reason"] not in _NORMAL_WAITING_REASONS:
        why = waiting.get("message") or waiting["reason"]
        return str(waiting["reason"]), f"{pod_title(pod)} cannot start: {why}"
    if (trouble := other_trouble(pod)) is not None:
        reason, message = trouble
        return reason, f"{pod_title(pod)}: {message}"
    return None
