"""A firing: the minute that a schedule's job stands for, and the zone its dates are meant in.

The same firing has the same time whichever pod asks and however often, so its job has the same
name. A pod's own clock would not do: a pod that is started again a minute later would start a
second job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from embertide.errors import ClusterError
from embertide.spec import naming

ENV_JOB = "EMBERTIDE_SUBMIT_JOB"
"""The name of the Kubernetes Job that a pod belongs to, set by the downward API."""
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""Annotation of a Job that the CronJob controller made; pods do not have it."""
AT = f"{naming.GROUP}/at"
"""Annotation of a Job that a person made from a CronJob, for another time than now."""


@dataclass(frozen=True)
class Firing:
    """One firing of a schedule.

    Attributes:
        time: the minute, in the schedule's time zone.
        automatic: whether a Kubernetes Job stands for it, whose pods may be started again.
        backfill: whether a person asked for this time, so that no policy skips it.
    """

    time: datetime
    automatic: bool
    backfill: bool = False

    @classmethod
    def at(
        cls, time: datetime, zone: ZoneInfo, *, automatic: bool = False, backfill: bool = False
    ) -> Firing:
        """The firing of the minute that contains ``time``."""
        minute = time.astimezone(zone).replace(second=0, microsecond=0)
        return cls(minute, automatic, backfill)

    @classmethod
    def of_text(cls, at: str, time_zone: str, *, backfill: bool = False) -> Firing:
        """The firing of a time as `parse_time` reads it, in a zone by its name.

        Raises:
            ValueError: it is no time, or there is no such zone.
        """
        zone = parse_zone(time_zone)
        return cls.at(parse_time(at, zone), zone, backfill=backfill)

    @property
    def utc(self) -> str:
        """RFC 3339 in UTC, as annotations hold it."""
        return f"{self.time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def parse_zone(name: str) -> ZoneInfo:
    """A time zone by its IANA name.

    Raises:
        ValueError: there is no such zone.
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        message = f"--time-zone is {name!r}; must be a name such as Europe/Berlin, or UTC"
        raise ValueError(message) from None


def parse_time(text: str, zone: ZoneInfo, option: str = "--at") -> datetime:
    """``now``, or an ISO 8601 time; one without an offset is meant in ``zone``.

    Args:
        option: where it was given, for messages.

    Raises:
        ValueError: anything else.
    """
    if text == "now":
        return datetime.now(UTC)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        message = f"{option} is {text!r}; must be now, or a time such as 2026-11-22T03:00"
        raise ValueError(message) from None
    return time if time.tzinfo else time.replace(tzinfo=zone)


def own_job(environment: Mapping[str, str]) -> str:
    """The name of the Kubernetes Job that this pod belongs to.

    Raises:
        ValueError: this is no pod of a Job that says so; the message tells what to do.
    """
    if name := environment.get(ENV_JOB, ""):
        return name
    raise ValueError(
        "the scheduled time is not known: give --at TIME, or --at now. In the pod of a CronJob "
        f"set {ENV_JOB} from metadata.labels['{JOB_NAME_LABEL}'] (downward API)"
    )


def asked_time(job: Mapping[str, Any], zone: ZoneInfo) -> datetime | None:
    """The time that a person gave to a Kubernetes Job by the annotation ``embertide.dev/at``.

    Raises:
        ValueError: the annotation is no time.
    """
    text = (job["metadata"].get("annotations") or {}).get(AT)
    return None if text is None else parse_time(text, zone, f"the Job's annotation {AT}")


def time_of_job(job: Mapping[str, Any]) -> datetime:
    """The time that a Kubernetes Job was scheduled for.

    A Job without a CronJob's annotation, such as one of ``kubectl create job --from``, stands for
    the time when it was created; all its pods see the same.

    Raises:
        ClusterError: the annotation is no time.
    """
    meta = job["metadata"]
    text = (meta.get("annotations") or {}).get(SCHEDULED) or meta["creationTimestamp"]
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ClusterError(f"Job {meta['name']}: annotation {SCHEDULED} is {text!r}") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
