"""What is said of a schedule: firings that made their job, failed, hang, or did not take place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from embertide_operator.schedules.state import SCHEDULED, ScheduleFacts, next_status

NOW = datetime(2026, 11, 22, 3, 5, 0, tzinfo=UTC)
LAST = "2026-11-22T03:00:00Z"
EARLIER = "2026-11-21T03:00:00Z"


def cron_job(last: str = LAST, **spec: Any) -> dict[str, Any]:
    annotations = {
        "embertide.dev/output": "s3://shop/embeddings",
        "embertide.dev/max-age": "26h",
    }
    return {
        "metadata": {
            "name": "products",
            "namespace": "shop",
            "uid": "cron",
            "creationTimestamp": "2026-11-20T12:00:00Z",
            "annotations": annotations,
        },
        "spec": {"schedule": "0 3 * * *", "timeZone": "UTC"} | spec,
        "status": {"lastScheduleTime": last} if last else {},
    }


def firing(kind: str = "", at: str = LAST) -> dict[str, Any]:
    """A Job of the CronJob; ``kind``: Complete or Failed."""
    conditions = [{"type": kind, "status": "True", "message": "it failed"}] if kind else []
    meta = {
        "name": "products-29",
        "uid": "job",
        "creationTimestamp": at,
        "annotations": {SCHEDULED: at},
        "ownerReferences": [{"uid": "cron"}],
    }
    return {"metadata": meta, "status": {"conditions": conditions}}


def job(phase: str = "Running", at: str = LAST, done: str = "") -> dict[str, Any]:
    """An EmbeddingJob of the schedule; ``done``: when it published."""
    published = {"type": "Published", "status": "True", "reason": "Published"}
    ended = {"type": "Complete" if phase == "Succeeded" else "Failed", "status": "True"}
    conditions = ([published] if done else []) + (
        [ended] if phase in ("Succeeded", "Failed") else []
    )
    meta = {
        "name": "products-20261122-0300",
        "labels": {"embertide.dev/schedule": "products"},
        "annotations": {"embertide.dev/scheduled-time": at},
    }
    return {
        "metadata": meta,
        "status": {"phase": phase, "conditions": conditions, "completionTime": done},
    }


def look(
    *firings: dict[str, Any],
    jobs: tuple[dict[str, Any], ...] = (),
    old: dict[str, Any] | None = None,
    now: datetime = NOW,
    cron: dict[str, Any] | None = None,
) -> dict[str, Any]:
    known = {"since": "2026-11-21T00:00:00Z", "schedule": "0 3 * * *"} if old is None else old
    facts = ScheduleFacts.of(cron or cron_job(), firings, jobs)
    return next_status(facts, known, now, lambda _job: "the reason")


def condition(status: dict[str, Any], kind: str) -> tuple[str, str]:
    found = next(c for c in status["conditions"] if c["type"] == kind)
    return found["status"], found["reason"]


def message(status: dict[str, Any]) -> str:
    return str(status["conditions"][0]["message"])


def test_a_firing_that_made_its_job() -> None:
    status = look(firing("Complete"), jobs=(job(),))
    assert condition(status, "Submitted") == ("True", "Submitted")
    assert (status["job"], status["jobPhase"]) == ("products-20261122-0300", "Running")
    assert status["lastFiringTime"] == LAST
    assert status["nextFiringTime"] == "2026-11-23T03:00:00Z"
    assert (status["missed"], status["failedFirings"], status["suspended"]) == (0, 0, False)
    assert status["output"] == "s3://shop/embeddings"


def test_a_firing_whose_pod_fails() -> None:
    status = look(firing("Failed"))
    assert condition(status, "Submitted") == ("False", "SubmitFailed")
    assert message(status) == "Job products-29 failed: the reason"
    assert condition(status, "Ready") == ("False", "SubmitFailed")
    assert status["failedFirings"] == 1
    # The same firing counts once, the next one again, and one that works ends it.
    status = look(firing("Failed"), old=status, now=NOW + timedelta(minutes=1))
    assert status["failedFirings"] == 1
    next_day, at = NOW + timedelta(days=1), "2026-11-23T03:00:00Z"
    cron = cron_job(at)
    status = look(firing("Failed", at), old=status, now=next_day, cron=cron)
    assert status["failedFirings"] == 2
    status = look(firing("Complete", at), jobs=(job(at=at),), old=status, now=next_day, cron=cron)
    assert status["failedFirings"] == 0


def test_a_firing_that_hangs_is_told_before_its_deadline() -> None:
    """As of a quota that refuses the pod: the Job is active for ten minutes."""
    begun = datetime(2026, 11, 22, 3, 0, 0, tzinfo=UTC)
    status = look(firing(), now=begun + timedelta(seconds=20))
    assert condition(status, "Submitted")[0] == "Unknown"
    status = look(firing(), now=begun + timedelta(seconds=40))
    assert condition(status, "Submitted") == ("False", "NotSubmitted")
    assert message(status) == "Job products-29 has made no EmbeddingJob: the reason"


def test_a_minutely_schedule_that_a_hanging_job_blocks() -> None:
    """With Forbid no other firing takes place meanwhile; the hanging one is what is told."""
    cron = cron_job(schedule="* * * * *")
    old = {"since": "2026-11-21T00:00:00Z", "schedule": "* * * * *"}
    status = look(firing(), cron=cron, old=old)
    assert condition(status, "Submitted") == ("False", "NotSubmitted")
    assert status["missed"] == 4


def test_a_firing_that_its_policy_skipped() -> None:
    assert condition(look(firing("Complete")), "Submitted") == ("True", "Skipped")


def test_a_deleted_job_of_the_history_says_what_it_said() -> None:
    status = look(firing("Failed"))
    later = look(old=status, now=NOW + timedelta(hours=1))
    assert condition(later, "Submitted") == ("False", "SubmitFailed")
    assert later["conditions"][0]["lastTransitionTime"] == "2026-11-22T03:05:00Z"


def test_firings_that_do_not_take_place() -> None:
    cron = cron_job(EARLIER)
    on_time = datetime(2026, 11, 22, 3, 0, 30, tzinfo=UTC)
    done = (firing("Complete", EARLIER),)
    status = look(*done, jobs=(job("Succeeded", EARLIER),), cron=cron, now=on_time)
    assert (status["missed"], condition(status, "Submitted")[0]) == (0, "True")
    status = look(*done, jobs=(job("Succeeded", EARLIER),), cron=cron)
    assert (status["missed"], condition(status, "Submitted")) == (1, ("False", "Missed"))
    assert "1 firings did not take place" in message(status)


def test_a_schedule_that_never_fired() -> None:
    cron = cron_job("", schedule="0 4 * * *")
    status = look(cron=cron, old={})
    assert condition(status, "Submitted") == ("Unknown", "NotFiredYet")
    assert status["nextFiringTime"] == "2026-11-22T04:00:00Z"
    status = look(cron=cron, old=status, now=NOW + timedelta(hours=1))
    assert condition(status, "Submitted") == ("False", "Missed")


def test_an_old_schedule_that_is_seen_first_now_has_missed_nothing() -> None:
    cron = cron_job("2026-11-01T03:00:00Z")
    assert look(cron=cron, old={})["missed"] == 0


def test_suspended_and_resumed() -> None:
    cron = cron_job(EARLIER, suspend=True)
    status = look(cron=cron)
    assert (status["suspended"], status["missed"]) == (True, 0)
    assert "nextFiringTime" not in status
    status = look(cron=cron_job(EARLIER), old=status, now=NOW + timedelta(hours=1))
    assert status["missed"] == 0
    assert status["since"] == "2026-11-22T04:05:00Z"


def test_freshness_is_known_before_any_job() -> None:
    status = look(firing("Failed"))
    assert status["maxAgeSeconds"] == 93600
    # Counted from when the schedule was created, 2026-11-20 12:00.
    assert condition(status, "Fresh") == ("False", "NeverPublished")
    done = job("Succeeded", done="2026-11-22T03:04:00Z")
    status = look(firing("Complete"), jobs=(done,))
    assert condition(status, "Fresh") == ("True", "WithinMaxAge")
    # Also once that job is deleted.
    later = look(firing("Complete"), old=status, now=NOW + timedelta(hours=25))
    assert condition(later, "Fresh") == ("True", "WithinMaxAge")
    later = look(firing("Complete"), old=status, now=NOW + timedelta(hours=27))
    assert condition(later, "Fresh") == ("False", "TooOld")


@pytest.mark.parametrize(
    ("schedule", "zone", "expected"),
    [
        ("@daily", "UTC", "2026-11-23T00:00:00Z"),
        ("@hourly", None, "2026-11-22T04:00:00Z"),
        ("0 3 * * *", "Europe/Berlin", "2026-11-23T02:00:00Z"),
        ("*/15 3 ? * *", "UTC", "2026-11-22T03:15:00Z"),
        ("every day", "UTC", None),
        ("0 3 * * *", "Mars", None),
    ],
)
def test_the_next_firing(schedule: str, zone: str | None, expected: str | None) -> None:
    cron = cron_job(schedule=schedule, timeZone=zone)
    assert look(cron=cron, old={}).get("nextFiringTime") == expected
