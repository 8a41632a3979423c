"""Disruptions: pods that were deleted, evicted, preempted, or shut down with their node.

They are not the job's fault, so the attempt that they end does not count against ``backoffLimit``.
But where every attempt is disrupted, pods would be started for ever: the pause before the next
attempt doubles with each disruption in a row, and their number has a limit.
"""

from __future__ import annotations

import re

from embertide_operator.api.routes import Object
from embertide_operator.job.observe import condition, container_status
from embertide_operator.job.status import Draft

LASTED_SECONDS = 600.0
"""An attempt that ran and lasted this long sets the count of disruptions in a row back to zero."""
_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 300.0
_STOPPED_EXIT_CODES = (0, 137, 143)
"""Exit codes of a container that was asked to stop: by itself, by SIGKILL, by SIGTERM."""
_OWN_FAULTS = ("DeadlineExceeded", "PodOSNotSupported", "SysctlForbidden")
"""Reasons of the kubelet that lie in the job's pod template; every node would give them."""
_OWN_LIMIT = re.compile(r"exceed(s|ed) .*\blimit\b")
"""In the kubelet's message where a pod was evicted because it used more than it may."""


def why_disrupted(pod: Object) -> str:
    """Why a pod ends before its work is done, in Kubernetes' words; "" where nothing ends it.

    The condition ``DisruptionTarget`` alone is no end: who sets it deletes the pod afterwards.
    """
    status = pod.get("status") or {}
    target = condition(pod, "DisruptionTarget")
    cause = (
        (target.get("message") or target.get("reason") or "")
        if target.get("status") == "True"
        else ""
    )
    deleted = bool(pod["metadata"].get("deletionTimestamp"))
    if status.get("phase") == "Failed":
        reason = str(status.get("reason") or "")
        if is_own_fault(reason, str(status.get("message") or "")):
            return ""
        cause = str(status.get("message") or "") or cause or reason
        return cause or ("its pod was deleted" if deleted else "")
    if deleted:
        return cause or "its pod was deleted"
    return cause if "terminated" in (container_status(pod).get("state") or {}) else ""


def is_own_fault(reason: str, message: str) -> bool:
    """Whether the kubelet ended the pod for what it asked for or used."""
    return reason in _OWN_FAULTS or (reason == "Evicted" and bool(_OWN_LIMIT.search(message)))


def was_stopped(end: Object) -> bool:
    """Whether a container of a disrupted pod only did as it was asked when it terminated."""
    return end["exitCode"] in _STOPPED_EXIT_CODES and end.get("reason") != "OOMKilled"


def count_disruption(draft: Draft) -> int:
    """Count one more in ``status.disruptions``; returns how many there were in a row."""
    lasted = draft.seconds_since("attemptStartTime") >= LASTED_SECONDS
    before = 0 if lasted and draft["phase"] == "Running" else draft["disruptions"] or 0
    draft["disruptions"] = before + 1
    return before + 1


def too_many(disruptions: int, last: str) -> str:
    """The message of a job that fails because so many attempts in a row were disrupted."""
    return (
        f"{disruptions} attempts in a row were disrupted before they had run for"
        f" {LASTED_SECONDS / 60:.0f} minutes; the operator's disruptionLimit is"
        f" {disruptions - 1}; last disruption: {last}"
    )


def pause_seconds(disruptions: int) -> float:
    """The pause before the next attempt after so many disruptions in a row."""
    doublings = min(disruptions - 1, 16)
    return float(min(_FIRST_PAUSE_SECONDS * 2**doublings, _LONGEST_PAUSE_SECONDS))
