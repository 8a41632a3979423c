"""Deadlines of a job, all by the operator's own clock.

Time in which a queue holds the pods (scheduling gates) counts for none of them. Nor does time in
which rank 0 cannot be asked count as time without progress: being blind is not being stuck. Such a
job still ends: by the version that its pod's status tells of, by a container that ends, or by
``activeDeadlineSeconds``.
"""

from __future__ import annotations

from embertide.spec.manifest import EmbeddingJob
from embertide_operator.config.settings import Settings
from embertide_operator.decide.obstacles import GATED
from embertide_operator.decide.tracking import UNREACHABLE
from embertide_operator.job.failures import Failure, bounded_log, is_ready
from embertide_operator.job.observe import Observed, condition
from embertide_operator.job.status import Draft, parse_time, timestamp


def note_held(seen: Observed, draft: Draft) -> None:
    """Remember in ``status.queued`` for how long a queue holds the job, or pods of its attempt."""
    if draft["startTime"] is None:
        return
    found = dict(draft["queued"] or {})
    since = found.get("since")
    held = _is_held(seen, draft)
    if held and since is None:
        # Gates are only ever taken away: they were there when the attempt created its pods.
        created = draft["attemptStartTime"] if not found.get("attemptSeconds") else None
        found["since"] = created or timestamp(draft.now)
    elif not held and since is not None:
        found = _held_until_now(draft)
    draft["queued"] = found or None


def _is_held(seen: Observed, draft: Draft) -> bool:
    """Whether other jobs keep this one from its next attempt, or gates its pods from a node."""
    if draft["attemptStartTime"] is None:
        return bool(seen.queued or seen.competing_job)
    return any(condition(pod, "PodScheduled").get("reason") == GATED for pod in seen.pods)


def start_attempt_clock(draft: Draft) -> None:
    """An attempt starts now: nothing of it has been held yet."""
    if draft["queued"] is not None:
        draft["queued"] = {**_held_until_now(draft), "attemptSeconds": 0}


def _held_until_now(draft: Draft) -> dict[str, int]:
    return {name: _held_seconds(draft, name) for name in ("seconds", "attemptSeconds")}


def _held_seconds(draft: Draft, name: str) -> int:
    """``seconds`` of the job or ``attemptSeconds``, with those that go on now."""
    found = draft["queued"] or {}
    since = found.get("since")
    return int(found.get(name, 0) + (draft.seconds_since_time(since) if since else 0))


def check_active(seen: Observed, job: EmbeddingJob, draft: Draft) -> Failure | None:
    """The failure of a job that exceeds its time limit."""
    limit = job.spec.active_deadline_seconds
    if limit is None or _is_not_asked_yet(seen, draft):
        return None
    if draft.seconds_since("startTime") - _held_seconds(draft, "seconds") <= limit:
        return None
    message = f"the job exceeded spec.activeDeadlineSeconds, {limit} s"
    return Failure("DeadlineExceeded", message, log=_log(seen))


def _log(seen: Observed) -> str:
    """The last lines of rank 0's log, as it answered; no container ends by a deadline itself."""
    return "" if seen.report is None else bounded_log(seen.report.log)


def _is_not_asked_yet(seen: Observed, draft: Draft) -> bool:
    """Whether rank 0 may have published, and has not been asked yet.

    So it is for a moment when the operator has been away.
    """
    pod = seen.rank_zero(draft["attempt"])
    return seen.report is None and not seen.unreachable_why and pod is not None and is_ready(pod)


def attempt_seconds(draft: Draft) -> float:
    """For how long the attempt has lasted, without the time for which a queue held it."""
    return draft.seconds_since("attemptStartTime") - _held_seconds(draft, "attemptSeconds")


def blocks_evictions(settings: Settings, draft: Draft) -> bool:
    """Whether the attempt has a PodDisruptionBudget: not if it has lasted for too long.

    A budget without an end makes a drain take as long as the longest job.
    """
    if not settings.disruption_budget:
        return False
    limit = settings.disruption_budget_seconds
    return not limit or attempt_seconds(draft) < limit


def check_running(seen: Observed, job: EmbeddingJob, draft: Draft, why: str) -> Failure | None:
    """The failure of workers that do not all run in time, because of ``why``."""
    limit = job.spec.pre_running_deadline_seconds
    if attempt_seconds(draft) <= limit:
        return None
    return Failure(
        "PreRunningDeadlineExceeded",
        f"the workers were not running within spec.preRunningDeadlineSeconds, {limit} s: {why}",
        retryable=False,
        log=_log(seen),
    )


def check_progress(seen: Observed, job: EmbeddingJob, draft: Draft) -> Failure | None:
    """The failure of workers that did not start running, or make no progress, in time."""
    ready, progressing = draft.condition("WorkersReady"), draft.condition("Progressing")
    if draft["phase"] != "Running" and ready["status"] == "False":
        return check_running(seen, job, draft, ready["message"])
    if progressing.get("reason") == UNREACHABLE or _is_not_asked_yet(seen, draft):
        return None
    progress = draft["progress"] or {}
    # Progressing was set again when rank 0 could be asked again.
    moments = (ready["lastTransitionTime"], progressing.get("lastTransitionTime"))
    last = max(filter(None, (*moments, progress.get("lastUpdateTime"))), key=parse_time)
    limit = job.spec.progress_deadline_seconds
    if draft.seconds_since_time(last) <= limit:
        return None
    where = f"stage {progress['stage']}" if progress else "startup"
    message = f"no progress in {where} within spec.progressDeadlineSeconds, {limit} s"
    return Failure("ProgressDeadlineExceeded", message, log=_log(seen))
