"""The decision about one job: a pure function of the observed state and the time.

It is called for every event and every few seconds, and keeps no state between calls: earlier
decisions are in the job's status, which is written before any other action. So a new operator
continues where one died.

    published                  the job is complete, whatever else is true (``published.py``)
    finished                   push the version (``pushing.py``); scale to zero, delete its objects;
                               the job after its time to live
    invalid spec               reject the job, stop its pods
    suspended                  stop the pods, keep the job
    no running attempt         wait for a competing job, the inputs (``waiting.py``), room, the
                               back-off and old pods; then start
    a running attempt          plan it, apply its children, track its workers (``advance.py``)
"""

from __future__ import annotations

from datetime import datetime, timedelta

from embertide.spec.manifest import EmbeddingJob
from embertide.spec.version_names import new_version
from embertide_operator.config.settings import Settings
from embertide_operator.decide.advance import advance
from embertide_operator.decide.deadlines import check_active, note_held, start_attempt_clock
from embertide_operator.decide.decision import (
    Decision,
    Deletion,
    child_deletion,
    is_terminating,
    stop_pods,
)
from embertide_operator.decide.earlier_versions import forget_settled, with_next
from embertide_operator.decide.ending_namespace import LEFT_ALONE_SECONDS, is_left_alone
from embertide_operator.decide.published import complete_if_published
from embertide_operator.decide.pushing import push_version
from embertide_operator.decide.tracking import set_stage
from embertide_operator.decide.validate import read_job
from embertide_operator.decide.waiting import await_inputs
from embertide_operator.decide.worker_limit import TOO_MANY, too_many_workers
from embertide_operator.job.conditions import set_failure, set_fresh, set_push_state, set_ready
from embertide_operator.job.disruptions import count_disruption, pause_seconds, too_many
from embertide_operator.job.failures import Failure
from embertide_operator.job.observe import Observed, is_finished
from embertide_operator.job.ownership import claim
from embertide_operator.job.status import Draft, timestamp
from embertide_operator.pods.children import needs_plan

_LONGEST_WAIT_SECONDS = 5.0
"""How often a job that waits for the end of its back-off is looked at."""
_REJECTED_SECONDS = 20.0
_OLD_PODS_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 300.0
_MARGIN_SECONDS = 0.1
"""Added to the rest of a back-off, so that it is over when the job is reconciled again."""


def decide(seen: Observed, settings: Settings, now: datetime) -> Decision:
    """The next status of a job, and the objects to apply, scale and delete."""
    draft = Draft(seen.job, now)
    if seen.job["metadata"].get("deletionTimestamp"):
        return Decision(draft)
    if is_left_alone(draft):
        return Decision(draft, requeue_after=LEFT_ALONE_SECONDS)
    claim(draft, settings.identity)
    decision = _decide(seen, settings, draft)
    set_ready(draft)
    set_stage(draft)
    set_failure(draft)
    set_push_state(draft)
    stale_after = set_fresh(draft, seen.job, seen.last_success)
    if stale_after is not None:
        sooner = [item for item in (stale_after, decision.requeue_after) if item is not None]
        decision.requeue_after = min(sooner)
    return decision


def _decide(seen: Observed, settings: Settings, draft: Draft) -> Decision:
    """The decision, but for the conditions that follow from the others."""
    if not draft.is_true("Complete"):
        # Also of a job that has failed: its workers may have published while they were stopped.
        published = complete_if_published(seen, draft)
        if published is not None:
            return published
    if is_finished(seen.job):
        return push_version(seen, settings, draft) or _finished(seen, draft)
    job = read_job(seen.job, settings)
    if not isinstance(job, EmbeddingJob):
        text = "; ".join(f"{path}: {message}" for path, message in job)
        return _reject(seen, draft, "InvalidSpec", text)
    if seen.name_conflicts:
        names = " and ".join(seen.name_conflicts)
        message = f"name conflict: {names} exists and is not owned by this job; rename one of them"
        return _reject(seen, draft, "NameConflict", message)
    if draft["attemptStartTime"] is None and (many := too_many_workers(job, settings)):
        return _reject(seen, draft, TOO_MANY, many)
    if draft.set("Accepted", True, "Valid", "the spec is valid"):
        draft.add_event("Accepted", "the spec is valid")
    if job.spec.suspend:
        return _suspend(seen, draft)
    if draft.is_true("Suspended"):
        draft.set("Suspended", False, "Resumed", "")
        draft.add_event("Resumed", "the job resumes with a new attempt, from the beginning")
        # As with a Kubernetes Job, activeDeadlineSeconds counts from here again.
        draft["startTime"] = draft["plan"] = draft["queued"] = draft["disruptions"] = None
        draft["inputs"] = None
        draft.drop("InputsReady")
    note_held(seen, draft)
    if (exceeded := check_active(seen, job, draft)) is not None:
        return fail_job(seen, draft, exceeded)
    if draft["attemptStartTime"] is None:
        return _start_attempt(seen, job, settings, draft)
    outcome: Decision | Failure
    if draft["phase"] == "Planning" and _spec_is_new(seen):
        outcome = Failure("SpecChanged", "the spec changed; the job is planned again")
    elif draft["phase"] == "Planning" and draft["plan"] is not None and seen.queued:
        return _take_back(seen, draft)
    else:
        outcome = advance(seen, job, settings, draft)
    if isinstance(outcome, Failure):
        return _end_attempt(seen, job, settings, draft, outcome)
    return outcome


def _spec_is_new(seen: Observed) -> bool:
    """Whether the current generation of the spec has not been reconciled yet."""
    return bool(seen.status.get("observedGeneration") != seen.job["metadata"]["generation"])


def _reject(seen: Observed, draft: Draft, reason: str, message: str) -> Decision:
    if draft.set("Accepted", False, reason, message):
        draft.add_event("Rejected", message, warning=True)
    draft["attemptStartTime"] = draft["plan"] = draft["obstacle"] = draft["progress"] = None
    if not seen.pods:
        draft["phase"] = "Pending"  # releases the output to competing jobs
    draft.drop("Progressing")
    return stop_pods(seen, draft, requeue_after=_REJECTED_SECONDS)


def _finished(seen: Observed, draft: Draft) -> Decision:
    """Stop the workers, delete their objects, and the job once its time to live is over.

    All that is asked of a finished job is in its status.
    """
    decision = stop_pods(seen, draft)
    if not seen.pods:
        decision.delete += [
            child_deletion(kind, child)
            for kind, child in seen.children.items()
            if not is_terminating(child)
        ]
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
        draft.add_event("Suspended", "the workers are stopped, the job is kept")
    forget_settled(draft)
    draft["attemptStartTime"] = draft["progress"] = draft["retryTime"] = None
    draft["obstacle"] = None
    draft.set("Progressing", False, "Suspended", "spec.suspend is true")
    if not seen.pods:
        draft["phase"] = "Suspended"
    return stop_pods(seen, draft)


def _start_attempt(seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft) -> Decision:
    """Start the next attempt, once the output is free, the back-off over and old pods gone."""
    if _spec_is_new(seen):
        draft["plan"] = None
    if seen.competing_job:
        message = f"waiting for a competing job: {seen.competing_job}"
        return _wait(seen, draft, "OutputInUse", message)
    if seen.predecessors:
        names = ", ".join(seen.predecessors)
        message = f"waiting until what is left of a deleted job of this name is gone: {names}"
        waiting = _wait(seen, draft, "PredecessorLeft", message)
        waiting.requeue_after = _LONGEST_WAIT_SECONDS
        return waiting
    awaited = await_inputs(seen, job, settings, draft)
    if awaited is not None:
        return fail_job(seen, draft, awaited) if isinstance(awaited, Failure) else awaited
    if seen.queued:
        return _wait(seen, draft, "Queued", f"waiting for room: {seen.queued}")
    backoff = -draft.seconds_since("retryTime")
    decision = stop_pods(seen, draft)
    old = is_terminating(seen.children.get("StatefulSet")) or bool(seen.pods)
    if old or backoff > 0 or decision.scale_to_zero is not None:
        until_retry = min(_LONGEST_WAIT_SECONDS, backoff + _MARGIN_SECONDS)
        decision.requeue_after = until_retry if backoff > 0 else _OLD_PODS_SECONDS
        return decision
    number = draft["attempt"] + 1
    draft["attempt"], draft["attemptStartTime"] = number, timestamp(draft.now)
    draft["versions"] = with_next(draft["versions"] or [], new_version(draft.now))
    draft["startTime"] = draft["startTime"] or timestamp(draft.now)
    draft["progress"] = draft["retryTime"] = draft["workers"] = draft["obstacle"] = None
    start_attempt_clock(draft)
    draft["phase"] = (
        "Planning" if needs_plan(job, settings) and draft["plan"] is None else "Starting"
    )
    draft.set("Progressing", True, "AttemptStarted", f"attempt {number} has started")
    draft.add_event("AttemptStarted", f"attempt {number} writes version {draft['versions'][-1]}")
    outcome = advance(seen.before_answers(), job, settings, draft)
    assert isinstance(outcome, Decision), "an attempt without pods cannot have failed"
    return outcome


def _take_back(seen: Observed, draft: Draft) -> Decision:
    """There is no room for the workers that were planned: the attempt has not begun."""
    draft["attempt"], draft["versions"] = draft["attempt"] - 1, draft["versions"][:-1]
    draft["attemptStartTime"] = draft["obstacle"] = None
    return _wait(seen, draft, "Queued", f"waiting for room: {seen.queued}")


def _wait(seen: Observed, draft: Draft, reason: str, message: str) -> Decision:
    """Wait for other jobs; the controller comes back when their end changes something."""
    draft["phase"] = "Pending"
    old = draft.condition("Progressing")
    draft.set("Progressing", False, reason, message)
    if reason != old.get("reason") or (reason != "Queued" and message != old.get("message")):
        draft.add_event("Waiting", message)
    return stop_pods(seen, draft)


def _end_attempt(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft, failure: Failure
) -> Decision:
    """An attempt has failed: retry after a back-off, or fail the job."""
    forget_settled(draft)
    if failure.reason == "SpecChanged":
        draft["attemptStartTime"] = draft["plan"] = draft["obstacle"] = draft["progress"] = None
        draft["phase"] = "Restarting"
        draft.add_event("SpecChanged", failure.message)
        return stop_pods(seen, draft)
    draft["failures"] = draft["failures"] + failure.counts
    _set_last_failure(draft, failure)
    number, limit = draft["attempt"], job.spec.backoff_limit
    if not failure.retryable:
        return fail_job(seen, draft, failure)
    if draft["failures"] > limit:
        attempts = f"{draft['failures']} attempt{'s' if draft['failures'] != 1 else ''}"
        message = f"{attempts} failed, spec.backoffLimit is {limit}; last failure: "
        message += f"{failure.reason}: {failure.message}"
        return fail_job(seen, draft, Failure("BackoffLimitExceeded", message))
    if failure.counts:
        draft["disruptions"] = None
        backoff = settings.backoff_seconds * 2 ** max(0, draft["failures"] - 1)
        backoff = min(backoff, _LONGEST_BACKOFF_SECONDS)
    else:
        disruptions = count_disruption(draft)
        if disruptions > settings.disruption_limit:
            message = too_many(disruptions, failure.message)
            return fail_job(seen, draft, Failure("TooManyDisruptions", message))
        backoff = pause_seconds(disruptions)
    draft.add_event("AttemptFailed", f"attempt {number} failed: {failure.message}", warning=True)
    draft["attemptStartTime"] = draft["progress"] = draft["obstacle"] = None
    draft["retryTime"] = timestamp(draft.now + timedelta(seconds=backoff))
    draft["phase"] = "Restarting"
    draft.set("Progressing", False, failure.reason, failure.message)
    return stop_pods(seen, draft)


def _set_last_failure(draft: Draft, failure: Failure) -> None:
    """Set ``status.lastFailure`` and ``failureLog``, which outlives the pod."""
    last = {"reason": failure.reason, "message": failure.message}
    if failure.worker:
        last["worker"] = failure.worker
    draft["lastFailure"], draft["failureLog"] = last, failure.log or None
    if failure.exit_code is not None:
        draft["lastFailure"]["exitCode"] = failure.exit_code


def fail_job(seen: Observed, draft: Draft, failure: Failure) -> Decision:
    """The job has failed without further retries; the current version stays current."""
    if draft["lastFailure"] is None:
        _set_last_failure(draft, failure)
    draft["phase"], draft["attemptStartTime"] = "Failed", None
    draft["retryTime"], draft["completionTime"] = None, timestamp(draft.now)
    draft.set("Progressing", False, failure.reason, failure.message)
    draft.set("Failed", True, failure.reason, failure.message)
    draft.add_event("Failed", failure.message, warning=True)
    return stop_pods(seen, draft)
