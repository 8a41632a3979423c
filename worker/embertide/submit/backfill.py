"""Jobs of many scheduled times, oldest first, and only so many unfinished at once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from embertide.errors import JobFailed
from embertide.spec.manifest import EmbeddingJob
from embertide.submit.cluster import Cluster
from embertide.submit.create import Outcome, create
from embertide.submit.firing import Firing
from embertide.submit.placeholders import moved
from embertide.submit.policy import Policy
from embertide.submit.wait import describe, ended, read_status

MOST_TIMES = 1000
_POLL_SECONDS = 2.0
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_EVERY = re.compile(r"([1-9]\d{0,3})(h|d|w|mo)")


def range_of(first: datetime, last: datetime, last_text: str, every: str) -> list[datetime]:
    """The scheduled times from ``first`` to ``last``, both included, oldest first.

    Args:
        first, last: in the schedule's time zone.
        last_text: as it was written; a date stands for its whole day.
        every: the distance, such as 1d, 6h, 1w or 1mo; days count by the calendar.

    Raises:
        ValueError: ``every`` is none, the range is empty, or it has more than 1000 times.
    """
    parts = _EVERY.fullmatch(every)
    if parts is None:
        raise ValueError(f"--every is {every!r}; must be a number and h, d, w or mo, such as 1d")
    if _DATE.fullmatch(last_text):
        last = last.replace(hour=23, minute=59)
    found: list[datetime] = []
    while (at := moved(first, len(found) * int(parts[1]), parts[2])) <= last:
        found.append(at)
        if len(found) > MOST_TIMES:
            raise ValueError(
                f"--from, --to and --every give more than {MOST_TIMES} times; take a part of them"
            )
    if not found:
        raise ValueError(f"--to is {last_text!r}, which is before --from")
    return found


def firings_of(times: Sequence[datetime], zone: ZoneInfo) -> list[Firing]:
    """The firings of a range of times."""
    return [Firing.at(at, zone, backfill=True) for at in times]


@dataclass
class Backfill:
    """Submits jobs one after another, at most ``parallel`` unfinished at once.

    Attributes:
        say: called with a line for people, whenever a job changes.
        note: called with what became of each submission.
    """

    cluster: Cluster
    parallel: int
    say: Callable[[str], None]
    note: Callable[[Outcome], None]
    _shown: dict[str, str] = field(default_factory=dict)

    def run(self, jobs: Sequence[tuple[EmbeddingJob, Firing]]) -> None:
        """Submit all of them, and return when all are published.

        The first failure ends it: later ones are not submitted, those that run go on.

        Raises:
            JobFailed: one failed; says which were not submitted.
            ClusterError, ManifestError: the API refused, or did not answer.
        """
        left = list(jobs)
        running: list[str] = []
        try:
            while left or running:
                while left and len(running) < self.parallel:
                    outcome = create(self.cluster, *left[0], Policy.ALLOW)
                    left.pop(0)
                    self.note(outcome)
                    running.append(outcome.name)
                running = [name for name in running if not self._is_done(name)]
                if running and (not left or len(running) >= self.parallel):
                    time.sleep(_POLL_SECONDS)
        except JobFailed as error:
            raise JobFailed(f"{error}{_not_submitted(left)}") from error

    def _is_done(self, name: str) -> bool:
        """Whether a job has published; says when its state has changed."""
        status: dict[str, Any] = read_status(self.cluster, name)
        line = describe(status)
        if self._shown.get(name) != line:
            self._shown[name] = line
            self.say(f"{name}: {line}")
        return ended(name, status)


def _not_submitted(left: Sequence[tuple[EmbeddingJob, Firing]]) -> str:
    if not left:
        return ""
    names = [job.metadata.name for job, _ in left]
    shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    at = left[0][1].time.strftime("%Y-%m-%dT%H:%M")
    return f". Not submitted: {shown}; go on with --from {at}"
