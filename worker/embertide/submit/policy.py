"""What a firing does about its schedule's other jobs: Allow, Forbid or Replace.

A CronJob's own policy sees only the pods that submit, which end at once unless they wait. So the
jobs themselves are looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from embertide.spec import naming
from embertide.spec.version_names import published_uri_of


class Policy(StrEnum):
    """What to do while an earlier job of the schedule is unfinished."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


@dataclass(frozen=True)
class SubmittedJob:
    """A job of the schedule that exists.

    Attributes:
        time: what it was scheduled for, None if it is not set.
        output: the URI of its output, without a slash at the end.
    """

    name: str
    uid: str
    phase: str
    schedule: str
    time: datetime | None
    output: str = ""

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> Self:
        """From the API's object."""
        meta = job["metadata"]
        text = (meta.get("annotations") or {}).get(naming.SCHEDULED_TIME)
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            phase=(job.get("status") or {}).get("phase") or "Pending",
            schedule=(meta.get("labels") or {}).get(naming.LABEL_SCHEDULE, ""),
            time=datetime.fromisoformat(text) if text else None,
            output=published_uri_of(job.get("spec") or {}).rstrip("/"),
        )

    @property
    def finished(self) -> bool:
        """Whether it has ended, either way."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True)
class Decision:
    """``skip``: why nothing is created, "" to create; ``replace``: what to delete before."""

    skip: str = ""
    replace: tuple[SubmittedJob, ...] = ()


def overtaken_by(
    time: datetime, output: str, others: Sequence[SubmittedJob]
) -> SubmittedJob | None:
    """The job that publishes data of a later time to the same output; None where none does.

    A back-fill that published after it would make older data current.
    """
    later = [
        other
        for other in others
        if other.time is not None
        and other.time > time
        and other.output == output.rstrip("/")
        and other.phase != "Failed"
    ]
    return min(later, key=lambda other: other.name, default=None)


def decide(policy: Policy, time: datetime, others: Sequence[SubmittedJob]) -> Decision:
    """What to do for a firing whose own job does not exist.

    With Forbid and Replace a firing that comes late never undoes a later one: it is skipped.
    """
    if policy is Policy.ALLOW:
        return Decision()
    for other in others:
        if other.time is not None and other.time > time:
            return Decision(skip=f"a later firing was first: {other.name} ({other.phase})")
    unfinished = tuple(other for other in others if not other.finished)
    if unfinished and policy is Policy.FORBID:
        other = unfinished[0]
        return Decision(skip=f"{other.name} is not finished ({other.phase}; policy Forbid)")
    return Decision(replace=unfinished)
