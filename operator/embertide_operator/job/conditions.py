"""What follows from the other conditions: Ready and Stalled, Fresh, and the failure to show.

Ready and Stalled are what GitOps tools wait for (kstatus): Ready is True once the job is complete;
Stalled is there, and True, only once it has failed or its spec is refused.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from embertide.spec.freshness import duration_seconds
from embertide_operator.api.routes import Object
from embertide_operator.job.observe import condition, output_of
from embertide_operator.job.status import LONGEST_MESSAGE, Draft, parse_time

NOT_CURRENT = "NotCurrent"
"""Reason of ``Published=True`` where LATEST names another version."""
HELD = "Held"
"""Reason of ``Published=True`` where the job's gate keeps the version from becoming current."""
_MARGIN_SECONDS = 1.0
"""Added to the time until a version is too old, so that it is when the job is reconciled again."""


def set_ready(draft: Draft) -> None:
    """Set Ready and Stalled from the other conditions and the phase."""
    if draft.is_true("Complete"):
        draft.set("Ready", True, "Complete", draft.condition("Complete")["message"])
        draft.drop("Stalled")
        return
    problem = draft.condition("Failed")
    if draft.condition("Accepted").get("status") == "False":
        problem = draft.condition("Accepted")
    if problem:
        draft.set("Ready", False, problem["reason"], problem["message"])
        draft.set("Stalled", True, problem["reason"], problem["message"])
        return
    draft.set("Ready", False, draft["phase"], f"phase {draft['phase']}; see the other conditions")
    draft.drop("Stalled")


def set_failure(draft: Draft) -> None:
    """Set ``status.failure``, which people see first; a job that has succeeded shows none."""
    failed, last = draft.condition("Failed"), draft["lastFailure"] or {}
    if draft.is_true("Complete"):
        draft["failure"] = draft["failureLog"] = None
        return
    shown = last if failed.get("reason") in (None, "BackoffLimitExceeded") else failed
    draft["failure"] = f"{shown['reason']}: {shown['message']}"[:LONGEST_MESSAGE] if shown else None


def set_push_state(draft: Draft) -> None:
    """Set ``status.push.state``, which people see first."""
    if draft["push"] is not None:
        draft["push"] = {**draft["push"], "state": draft.condition("Pushed")["reason"]}


def objective_of(job: Object) -> int | None:
    """``spec.freshness.maxAge`` in seconds; None without one, or with one that is refused."""
    text = ((job["spec"].get("freshness") or {}).get("maxAge")) or ""
    try:
        return duration_seconds(text)
    except (ValueError, KeyError, IndexError):
        return None


def published_at(job: Object) -> str:
    """When the job published the current version of its output; "" if it has not."""
    published = condition(job, "Published")
    if published.get("status") != "True" or published.get("reason") in (NOT_CURRENT, HELD):
        return ""
    return str(job["status"].get("completionTime") or "")


def set_fresh(draft: Draft, job: Object, last_success: str) -> float | None:
    """Set Fresh; returns the seconds until it changes by itself, None for never.

    Args:
        last_success: when the output was last published by any job; "" for never.
    """
    limit = objective_of(job)
    if limit is None:
        draft.drop("Fresh")
        return None
    last = max(last_success, published_at({"status": draft.fields}))
    value, reason, message = _freshness(job, last, limit, draft.now)
    was_fresh = draft.is_true("Fresh")
    if draft.set("Fresh", value, reason, message) and was_fresh:
        draft.add_event("Stale", message, warning=True)
    if not value:
        return None
    return (parse_time(last) - draft.now).total_seconds() + limit + _MARGIN_SECONDS


def is_outdated(job: Object, last_success: str, now: datetime) -> bool:
    """Whether the condition Fresh of a job has to be set again."""
    limit = objective_of(job)
    found = condition(job, "Fresh")
    if limit is None:
        return bool(found)
    last = max(last_success, published_at(job))
    value, reason, message = _freshness(job, last, limit, now)
    wanted = ("True" if value else "False", reason, message[:LONGEST_MESSAGE])
    return (found.get("status"), found.get("reason"), found.get("message")) != wanted


def _freshness(job: Object, last: str, limit: int, now: datetime) -> tuple[bool, str, str]:
    """(status, reason, message) of Fresh; the message changes only with what it names."""
    output, given = output_of(job), job["spec"]["freshness"]["maxAge"]
    if not last:
        return False, "NeverPublished", f"no job is known to have published {output}"
    message = f"{output} was last published at {last}; spec.freshness.maxAge is {given}"
    if now - parse_time(last) > timedelta(seconds=limit):
        return False, "TooOld", message
    return True, "WithinMaxAge", message
