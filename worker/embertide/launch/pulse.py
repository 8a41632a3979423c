"""How far a worker is, reported a few times a second, also while a stage reports nothing.

Stages report where they stand, and between two of their reports may lie minutes: one step over a
billion edges. Whether work goes on meanwhile shows in what is counted anyway: groups received,
tasks and edges of the kernels' loops, rows read, bytes of the store. A thread looks at these
counts, so nothing is added to the loops, and the cost does not depend on the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from embertide.facts.telemetry.progress import OnProgress, Progress

PERIOD_SECONDS = 0.25


@dataclass(frozen=True)
class Counts:
    """What a worker has done so far; both only grow.

    Attributes:
        steps: of any kind; means nothing but that it changes while work is done.
        edges: gone over by aggregations.
    """

    steps: int
    edges: int


@dataclass(frozen=True)
class _Ahead:
    """The fraction of the stage once ``edges`` more have been gone over, counted from ``start``."""

    until: float
    start: int
    edges: int


class Pulse:
    """Passes on what stages report, and what happens in between; any thread may call.

    Args:
        report: receives all of it.
        count: what has been done so far.
    """

    def __init__(self, report: OnProgress, count: Callable[[], Counts]) -> None:
        self._report, self._count = report, count
        self._lock = threading.Lock()
        self._last = Progress("plan")
        self._ahead: _Ahead | None = None
        self._steps = 0

    def __call__(self, event: Progress) -> None:
        """Pass on a stage's report."""
        with self._lock:
            self._last, self._ahead = event, None
            self._say(self._count())

    def ahead(self, until: float, edges: int) -> None:
        """Until its next report, the stage goes over so many edges and is at ``until`` then."""
        with self._lock:
            self._ahead = _Ahead(until, self._count().edges, edges)

    def beat(self) -> None:
        """Report what was done since the last time; nothing, if it was nothing."""
        with self._lock:
            counts = self._count()
            if counts.steps > self._steps:
                self._say(counts)

    def _say(self, counts: Counts) -> None:
        self._steps = max(self._steps, counts.steps)
        fraction = self._last.fraction
        if (ahead := self._ahead) is not None:
            part = min(1.0, (counts.edges - ahead.start) / max(1, ahead.edges))
            fraction += part * (ahead.until - fraction)
        self._report(replace(self._last, fraction=fraction, steps=self._steps))
