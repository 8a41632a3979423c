"""What a schedule did and does: a pure function of its CronJob, its firings' Jobs and its jobs.

A schedule that never gets as far as an EmbeddingJob has none to look at: a wrong template, a quota,
an image or a right that is missing end in a Job of the CronJob that fails or hangs. So each firing
is judged by whether it made its job, or had no need to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from embertide.spec import naming
from embertide.spec.freshness import duration_seconds
from embertide.spec.schedule_status import MAX_AGE_ANNOTATION, OUTPUT_ANNOTATION
from embertide_operator.api.routes import Object
from embertide_operator.job.conditions import published_at
from embertide_operator.job.observe import condition, is_finished, is_true, label, owners
from embertide_operator.job.status import LONGEST_MESSAGE, parse_time, timestamp

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""Annotation of a Job that the CronJob controller made."""
_GRACE_SECONDS = 30.0
"""How long a firing may take to make its job before that is reported."""
_MISSED_SECONDS = 60.0
"""How late a firing may be before it counts as missed."""
_MOST_MISSED = 100
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

Why = Callable[[Object], str]
"""Why a Job of the batch API has no pod that succeeds; asked only where that matters."""
Verdict = tuple[bool | None, str, str]
"""Status of a condition (None: unknown), reason, message."""


@dataclass(frozen=True)
class ScheduleFacts:
    """What was read of a schedule.

    Attributes:
        firings: the Jobs of the batch API that belong to the CronJob.
        jobs: the EmbeddingJobs of the schedule.
    """

    cron_job: Object
    firings: list[Object]
    jobs: list[Object]

    @classmethod
    def of(cls, cron_job: Object, batch: Iterable[Object], jobs: Iterable[Object]) -> ScheduleFacts:
        """Choose those that belong to a CronJob among all of its namespace."""
        uid, name = cron_job["metadata"]["uid"], cron_job["metadata"]["name"]
        return cls(
            cron_job,
            [item for item in batch if uid in owners(item)],
            [item for item in jobs if label(item, naming.LABEL_SCHEDULE) == name],
        )

    @property
    def last(self) -> str:
        """When the CronJob last fired; "" for never."""
        return str((self.cron_job.get("status") or {}).get("lastScheduleTime") or "")

    @property
    def suspended(self) -> bool:
        """Whether it does not fire."""
        return bool(self.cron_job["spec"].get("suspend"))

    def firing(self) -> Object | None:
        """The Job of the last firing."""
        return next((job for job in self.firings if _annotation(job, SCHEDULED) == self.last), None)

    def job(self) -> Object | None:
        """The EmbeddingJob of the last firing."""
        own = (j for j in self.jobs if _annotation(j, naming.SCHEDULED_TIME) == self.last)
        return next(own, None) if self.last else None


def next_status(facts: ScheduleFacts, old: Object, now: datetime, why: Why) -> dict[str, Any]:
    """The status of a schedule.

    Args:
        old: its status before, which keeps what Jobs reported that are deleted by now.
    """
    meta, spec = facts.cron_job["metadata"], facts.cron_job["spec"]
    since = _since(facts, old, now)
    missed = 0 if facts.suspended else _count_missed(facts, since, now)
    job = facts.job()
    status: dict[str, Any] = {
        "schedule": spec["schedule"],
        "timeZone": spec.get("timeZone"),
        "suspended": facts.suspended,
        "since": since,
        "lastFiringTime": facts.last,
        "nextFiringTime": None if facts.suspended else _next_firing(spec, now),
        "missed": missed,
        "job": job["metadata"]["name"] if job is not None else None,
        "jobPhase": ((job or {}).get("status") or {}).get("phase"),
        "lastSuccessTime": _last_success(facts, old),
        "output": _annotation(facts.cron_job, OUTPUT_ANNOTATION),
        "maxAgeSeconds": _max_age(facts.cron_job),
    }
    submitted = _submitted(facts, old, missed, now, why)
    status |= _count_failed(facts, old, submitted)
    verdicts = {"Submitted": submitted, "Fresh": _fresh(status, meta["creationTimestamp"], now)}
    verdicts["Ready"] = _ready(verdicts)
    status["conditions"] = _conditions(verdicts, old, now)
    return {key: value for key, value in status.items() if value not in (None, "")}


def _annotation(item: Object, key: str) -> str:
    return str((item["metadata"].get("annotations") or {}).get(key) or "")


def _since(facts: ScheduleFacts, old: Object, now: datetime) -> str:
    """From when firings may count as missed: the first look, or the end of a suspension."""
    changed = old.get("schedule") != facts.cron_job["spec"]["schedule"]
    if old.get("since") and not changed and not old.get("suspended"):
        return str(old["since"])
    return timestamp(now)


def _firings(spec: Object, after: datetime) -> Iterator[datetime]:
    """The times of a schedule after a time; none where it is not understood."""
    written = str(spec["schedule"])
    text = _MACROS.get(written, written).replace("?", "*")
    try:
        zone = ZoneInfo(spec.get("timeZone") or "UTC")
        yield from CronSim(text, after.astimezone(zone))
    except (CronSimError, OSError, ValueError, LookupError):
        return


def _next_firing(spec: Object, now: datetime) -> str | None:
    firing = next(_firings(spec, now), None)
    return None if firing is None else timestamp(firing.astimezone(UTC))


def _count_missed(facts: ScheduleFacts, since: str, now: datetime) -> int:
    """Firings in a row, up to now, that did not take place."""
    last, count = parse_time(max(facts.last, since)), 0
    late = now - timedelta(seconds=_MISSED_SECONDS)
    for at in _firings(facts.cron_job["spec"], last):
        if at > late or count == _MOST_MISSED:
            break
        count += 1
    return count


def _last_success(facts: ScheduleFacts, old: Object) -> str:
    """When a job of the schedule last published, also one that is deleted by now."""
    return max([str(old.get("lastSuccessTime") or ""), *map(published_at, facts.jobs)])


def _max_age(cron_job: Object) -> int | None:
    try:
        return duration_seconds(_annotation(cron_job, MAX_AGE_ANNOTATION))
    except (ValueError, KeyError, IndexError):
        return None


def _submitted(facts: ScheduleFacts, old: Object, missed: int, now: datetime, why: Why) -> Verdict:
    """Whether the last firing made its job, or had no need to."""
    firing, job = facts.firing(), facts.job()
    if job is not None and (not missed or not is_finished(job)):
        return True, "Submitted", f"{job['metadata']['name']} was created"
    active = firing is not None and not (is_true(firing, "Complete") or is_true(firing, "Failed"))
    if firing is not None and active and job is None:
        waited = (now - parse_time(firing["metadata"]["creationTimestamp"])).total_seconds()
        if waited > _GRACE_SECONDS:
            name = firing["metadata"]["name"]
            return False, "NotSubmitted", f"Job {name} has made no EmbeddingJob: {why(firing)}"
    elif missed:
        return False, "Missed", _missed_text(missed)
    elif firing is not None and is_true(firing, "Failed"):
        name = firing["metadata"]["name"]
        return False, "SubmitFailed", f"Job {name} failed: {why(firing)}"
    elif firing is not None and job is None and is_true(firing, "Complete"):
        return True, "Skipped", "the firing needed no job: its policy skipped it, or it is deleted"
    return _as_before(old) if facts.last else (None, "NotFiredYet", "it has not fired yet")


def _missed_text(missed: int) -> str:
    return (
        f"{missed} firings did not take place; look at the CronJob's Events: its time zone, its"
        " startingDeadlineSeconds, a Job that it waits for (concurrencyPolicy), or its controller"
    )


def _as_before(old: Object) -> Verdict:
    """What was known before; of a firing that has not ended, and of one whose Job is deleted."""
    before = condition({"status": old}, "Submitted")
    if not before:
        return None, "Unknown", "the last firing's Job is gone, or just begins"
    value = {"True": True, "False": False}.get(before["status"])
    return value, before["reason"], before["message"]


def _count_failed(facts: ScheduleFacts, old: Object, submitted: Verdict) -> dict[str, Any]:
    """How many firings in a row made no job; each counts once."""
    count, judged = int(old.get("failedFirings") or 0), str(old.get("judgedTime") or "")
    if submitted[0] is False and judged != facts.last:
        count, judged = count + 1, facts.last
    if submitted[0] is True:
        count, judged = 0, facts.last
    return {"failedFirings": count, "judgedTime": judged}


def _fresh(status: dict[str, Any], created: str, now: datetime) -> Verdict | None:
    """Whether a job of the schedule has published within its objective; None without one."""
    limit = status["maxAgeSeconds"]
    if limit is None:
        return None
    last = status["lastSuccessTime"]
    age = now - parse_time(last or created)
    if age <= timedelta(seconds=limit):
        return True, "WithinMaxAge", f"last published at {last}" if last else "not published yet"
    if not last:
        return False, "NeverPublished", "no job of the schedule has published"
    return False, "TooOld", f"last published at {last}"


def _ready(verdicts: dict[str, Verdict | None]) -> Verdict:
    for verdict in verdicts.values():
        if verdict is not None and verdict[0] is False:
            return verdict
    return True, "AsScheduled", "the schedule does what it says"


def _conditions(
    verdicts: dict[str, Verdict | None], old: Object, now: datetime
) -> list[dict[str, str]]:
    conditions = []
    for kind, verdict in verdicts.items():
        if verdict is None:
            continue
        value, reason, message = verdict
        before = condition({"status": old}, kind)
        status = "Unknown" if value is None else str(value)
        same = before.get("status") == status
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message[:LONGEST_MESSAGE],
                "lastTransitionTime": before["lastTransitionTime"] if same else timestamp(now),
            }
        )
    return conditions
