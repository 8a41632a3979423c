"""What to do about one job: a pure function of what was seen and the time.

Called for every event and every few seconds, it never relies on having been called before:
what an earlier call decided is in the job's status, which is written before anything else is
done. So an operator that dies anywhere is continued by the next one.

    rejected                   the spec cannot be run: say so, stop
    finished                   scale to zero, remove after its time to live
    suspended                  stop, keep the job
    no attempt under way       wait for the output, the pause and old pods; then begin one
    an attempt under way       plan it, apply its children, watch it (``watch.py``)
"""

from __future__ import annotations

from datetime import datetime, timedelta

from embertide.spec.manifest import EmbeddingJob
from embertide.spec.version_names import new_version
from embertide_operator.advance import advance, check_deadline
from embertide_operator.children import needs_plan
from embertide_operator.decision import Decision, Deletion, stop_pods
from embertide_operator.failures import Failure
from embertide_operator.observe import Observed, is_finished
from embertide_operator.settings import Settings
from embertide_operator.status import Draft, timestamp
from embertide_operator.validate import read_job

_WAIT_SECONDS = 5.0


def decide(seen: Observed, settings: Settings, now: datetime) -> Decision:
    """The next status of a job, and what to apply and delete."""
    draft = Draft(seen.job, now)
    if seen.job["metadata"].get("deletionTimestamp"):
        return Decision(draft)
    if is_finished(seen.job):
        return _finished(seen, draft)
    job = read_job(seen.job, settings)
    if not isinstance(job, EmbeddingJob):
        text = "; ".join(f"{path}: {message}" for path, message in job)
        return _reject(seen, draft, "InvalidSpec", text)
    if seen.name_conflicts:
        names = " and ".join(seen.name_conflicts)
        message = f"{names} exists and does not belong to this job; rename one of them"
        return _reject(seen, draft, "NameTaken", message)
    if draft.set("Accepted", True, "Valid", "the spec can be run"):
        draft.add_event("Accepted", "the spec can be run")
    if job.spec.suspend:
        return _suspend(seen, draft)
    if draft.is_true("Suspended"):
        draft.set("Suspended", False, "Resumed", "")
        draft.add_event("Resumed", "workers are started again, from the beginning")
        # As with a Job: the time before does not count against activeDeadlineSeconds.
        draft["startTime"] = draft["plan"] = None
    if (late := check_deadline(job, draft)) is not None:
        return fail_job(seen, draft, late)
    if draft["attemptStartTime"] is None:
        return _begin(seen, job, settings, draft)
    outcome: Decision | Failure
    if draft["phase"] == "Planning" and _spec_is_new(seen):
        outcome = Failure("SpecChanged", "the spec was changed; it is planned anew")
    else:
        outcome = advance(seen, job, settings, draft)
    if isinstance(outcome, Failure):
        return _end_attempt(seen, job, settings, draft, outcome)
    return outcome


def _spec_is_new(seen: Observed) -> bool:
    """Whether no pass has seen the spec as it is now."""
    return bool(seen.status.get("observedGeneration") != seen.job["metadata"]["generation"])


def _reject(seen: Observed, draft: Draft, reason: str, message: str) -> Decision:
    if draft.set("Accepted", False, reason, message):
        draft.add_event("Rejected", message, warning=True)
    draft["attemptStartTime"] = draft["plan"] = None
    if not seen.pods:
        draft["phase"] = "Pending"  # which lets others have the output
    draft.drop("Progressing")
    return stop_pods(seen, draft, requeue_after=_WAIT_SECONDS * 4)


def _finished(seen: Observed, draft: Draft) -> Decision:
    """Take the workers away, then the job itself once its time to live is over."""
    decision = stop_pods(seen, draft)
    ttl = seen.job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None:
        return decision
    left = ttl - draft.seconds_since("completionTime")
    if left <= 0 and not seen.pods:
        meta = seen.job["metadata"]
        decision.delete.append(Deletion("EmbeddingJob", meta["name"], meta["uid"]))
    decision.requeue_after = min(decision.requeue_after or left + 1, max(1.0, left + 1))
    return decision


def _suspend(seen: Observed, draft: Draft) -> Decision:
    if draft.set("Suspended", True, "Suspended", "spec.suspend is true"):
        draft.add_event("Suspended", "workers are stopped, the job is kept")
    draft["attemptStartTime"] = draft["progress"] = draft["retryTime"] = None
    draft.set("Progressing", False, "Suspended", "spec.suspend is true")
    if not seen.pods:
        draft["phase"] = "Suspended"
    return stop_pods(seen, draft)


def _begin(seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft) -> Decision:
    """Start the next attempt, once everything that must be over is over."""
    if _spec_is_new(seen):
        draft["plan"] = None
    if seen.competing_job:
        draft["phase"] = "Pending"
        message = f"waits for another job: {seen.competing_job}"
        old = draft.condition("Progressing").get("message")
        draft.set("Progressing", False, "OutputInUse", message)
        if old != message:
            draft.add_event("Waiting", message)
        return stop_pods(seen, draft, requeue_after=_WAIT_SECONDS)
    pause = -draft.seconds_since("retryTime")
    decision = stop_pods(seen, draft)
    if seen.pods or pause > 0 or decision.scale_to_zero is not None:
        decision.requeue_after = 1.0 if pause <= 0 else min(_WAIT_SECONDS, pause + 0.1)
        return decision
    number = draft["attempt"] + 1
    draft["attempt"], draft["attemptStartTime"] = number, timestamp(draft.now)
    draft["versions"] = [*(draft["versions"] or []), new_version(draft.now)]
    draft["startTime"] = draft["startTime"] or timestamp(draft.now)
    draft["progress"] = draft["retryTime"] = None
    draft["phase"] = "Planning" if needs_plan(job) and draft["plan"] is None else "Starting"
    draft.set("Progressing", True, "AttemptStarted", f"attempt {number}")
    draft.add_event("AttemptStarted", f"attempt {number} writes version {draft['versions'][-1]}")
    outcome = advance(seen, job, settings, draft)
    assert isinstance(outcome, Decision), "an attempt without pods cannot have failed"
    return outcome


def _end_attempt(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft, failure: Failure
) -> Decision:
    """An attempt is over: try again after a pause, or give up."""
    if failure.reason == "SpecChanged":
        draft["attemptStartTime"] = draft["plan"] = None
        draft["phase"] = "Restarting"
        draft.add_event("SpecChanged", failure.message)
        return stop_pods(seen, draft)
    draft["failures"] = draft["failures"] + failure.counts
    _remember(draft, failure)
    number, limit = draft["attempt"], job.spec.backoff_limit
    if failure.permanent:
        return fail_job(seen, draft, failure)
    if draft["failures"] > limit:
        times = f"{draft['failures']} time{'s' if draft['failures'] != 1 else ''}"
        message = f"the workers failed {times}, spec.backoffLimit is {limit}; last: "
        return fail_job(seen, draft, Failure("BackoffLimitExceeded", message + failure.message))
    pause = settings.backoff_seconds * 2 ** max(0, draft["failures"] - 1)
    pause = min(pause, 300.0) if failure.counts else 0.0
    draft.add_event("AttemptFailed", f"attempt {number}: {failure.message}", warning=True)
    draft["attemptStartTime"] = draft["progress"] = None
    draft["retryTime"] = timestamp(draft.now + timedelta(seconds=pause))
    draft["phase"] = "Restarting"
    draft.set("Progressing", False, failure.reason, failure.message)
    return stop_pods(seen, draft)


def _remember(draft: Draft, failure: Failure) -> None:
    last = {"reason": failure.reason, "message": failure.message}
    if failure.worker:
        last["worker"] = failure.worker
    draft["lastFailure"] = last
    if failure.exit_code is not None:
        draft["lastFailure"]["exitCode"] = failure.exit_code


def fail_job(seen: Observed, draft: Draft, failure: Failure) -> Decision:
    """The job has failed for good; the version before stays what readers see."""
    if draft["lastFailure"] is None:
        _remember(draft, failure)
    draft["phase"], draft["attemptStartTime"] = "Failed", None
    draft["retryTime"], draft["completionTime"] = None, timestamp(draft.now)
    draft.set("Progressing", False, failure.reason, failure.message)
    draft.set("Failed", True, failure.reason, failure.message)
    draft.add_event("Failed", failure.message, warning=True)
    return stop_pods(seen, draft)
