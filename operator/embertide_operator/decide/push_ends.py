"""How an attempt to push ends, and what the status then says."""

from __future__ import annotations

from datetime import timedelta

from embertide.spec.manifest import EmbeddingJob
from embertide.spec.reports import PushReport
from embertide_operator.api.routes import Object
from embertide_operator.config.settings import Settings
from embertide_operator.job.conditions import NOT_CURRENT
from embertide_operator.job.disruptions import was_stopped
from embertide_operator.job.failures import Failure, disruption_of, failure_of, why_not_running
from embertide_operator.job.observe import container_status
from embertide_operator.job.status import Draft, timestamp

PUSHED, PUSH_FAILED = "Pushed", "PushFailed"
"""Reasons of Events; the former is one of the condition too."""
_LONGEST_BACKOFF_SECONDS = 300.0
_DISRUPTED_SECONDS = 2.0
_DEADLINE = "DeadlineExceeded"


def read_push(pod: Object) -> PushReport | Failure | None:
    """What a pod that pushes has left; None while it runs or has not started."""
    end = (container_status(pod).get("state") or {}).get("terminated")
    status = pod.get("status") or {}
    report = PushReport.parse((end or {}).get("message") or "")
    if end is not None and end["exitCode"] == 0 and report is not None:
        return report
    if status.get("phase") == "Failed" and status.get("reason") == _DEADLINE:
        message = "the push took longer than spec.push.activeDeadlineSeconds"
        return Failure(_DEADLINE, message, worker=pod["metadata"]["name"])
    disruption = disruption_of(pod)
    if disruption is not None and (end is None or was_stopped(end)):
        return disruption
    if end is not None:
        return failure_of(pod, end, PUSH_FAILED)
    if status.get("phase") == "Failed":
        message = f"the push: {status.get('message') or 'its node terminated the pod'}"
        return Failure(PUSH_FAILED, message, worker=pod["metadata"]["name"])
    return None


def note_obstacle(pod: Object, mount_error: str, draft: Draft) -> str | None:
    """Say what keeps a pod from starting, once by an Event; returns it, None for nothing."""
    trouble = why_not_running(pod) or (("FailedMount", mount_error) if mount_error else None)
    if trouble is None:
        return None
    _note_trouble(draft, *trouble)
    return trouble[1]


def note_refused(draft: Draft, why: str) -> None:
    """The API server refuses the pod, or what it needs; it is tried again."""
    _note_trouble(draft, "ChildRefused", f"the API server rejected an object of the push: {why}")


def _note_trouble(draft: Draft, reason: str, message: str) -> None:
    known = draft.condition("Pushed").get("reason") == reason
    draft.set("Pushed", False, reason, message)
    if not known:
        draft.add_event(PUSH_FAILED, message, warning=True)


def note_pushed(report: PushReport, draft: Draft, how: str) -> None:
    """The pod has ended well: readers were switched, or another version is current."""
    if not report.version:
        message = f"{report.current} is current now, so the version is not pushed; {how} pushes it"
        end_push(draft, NOT_CURRENT, message)
        return
    names = ", ".join(report.names)
    message = f"readers of {names} see version {report.version}, {report.rows} rows"
    if report.not_dropped:
        message += f"; tables that could not be dropped: {report.not_dropped}"
    draft["push"] = {
        **{name: draft["push"][name] for name in ("request", "requestTime")},
        "completionTime": timestamp(draft.now),
        "version": report.version,
        "pushedTime": timestamp(draft.now),
        "rows": report.rows,
        "seconds": report.seconds,
        "names": report.names,
    }
    draft.set("Pushed", True, PUSHED, message)
    draft.add_event(PUSHED, message)


def end_push(draft: Draft, reason: str, message: str) -> None:
    """No more attempts for this request; readers of the index keep what they have."""
    push = {name: value for name, value in draft["push"].items() if name not in _OF_ATTEMPTS}
    draft["push"] = push | {"completionTime": timestamp(draft.now)}
    draft.set("Pushed", False, reason, message)


_OF_ATTEMPTS = ("startTime", "retryTime")


def note_attempt_failed(
    failure: Failure, job: EmbeddingJob, settings: Settings, draft: Draft, how: str
) -> None:
    """Retry after a back-off, or end the push; a disruption does not count."""
    assert job.spec.push is not None
    push = {name: value for name, value in draft["push"].items() if name not in _OF_ATTEMPTS}
    failed = push.get("attempts", 0) + failure.counts
    draft["push"] = push | {"attempts": failed}
    limit = job.spec.push.backoff_limit
    if not failure.retryable or failed > limit:
        rest = "" if not failure.retryable else f" (spec.push.backoffLimit is {limit})"
        message = (
            f"not pushed{rest}: {failure.message}; the version is published, {how} tries again"
        )
        end_push(draft, failure.reason, message)
        draft.add_event(PUSH_FAILED, message, warning=True)
        return
    pause = _DISRUPTED_SECONDS
    if failure.counts:
        pause = min(settings.backoff_seconds * 2 ** (failed - 1), _LONGEST_BACKOFF_SECONDS)
    draft["push"]["retryTime"] = timestamp(draft.now + timedelta(seconds=pause))
    message = f"attempt {failed} to push failed and is repeated: {failure.message}"
    draft.set("Pushed", False, failure.reason, message)
    draft.add_event(PUSH_FAILED, message, warning=True)
