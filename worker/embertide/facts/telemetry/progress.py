"""How far a run is: the event that ranks send and the clock that turns it into a forecast.

Stages report a fraction of their own work; what the user wants is one percentage and a time.
`ProgressClock` joins them by fixed weights and scales by the time that the work has taken.
Drawing lives in `embertide.cli`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

# Shares of a run's time on graphs of some million edges; only ratios matter.
# In the order of the pipeline; sampling happens inside the layers when there is any.
STAGE_WEIGHTS: Mapping[str, float] = {
    "start": 4.0,
    "plan": 1.0,
    "features": 10.0,
    "ingest": 25.0,
    "csr": 10.0,
    "sample": 2.0,
    "infer": 38.0,
    "publish": 10.0,
}
_BEFORE_WORK = ("start", "plan")
"""Stages whose time is imports, listing and waiting for others, and says nothing of the work."""
_WORK_SECONDS = 2.0
"""Seconds of work before a forecast; what ends sooner needs none."""
_WORK_SHARE = 0.05
"""The share of the work that must be done before a forecast; from less it would jump around."""
_PACE_SECONDS = 0.5
"""A pace measured over less says nothing."""


@dataclass(frozen=True)
class Progress:
    """One report of how far a run is.

    ``layer`` counts from 1, 0 outside the layers; ``fraction`` is of the stage (of all layers
    together in ``infer``), 0 to 1. ``eta_seconds`` is None until it can be estimated. ``steps``
    counts what the worker has done; as long as it grows, the run goes on.
    """

    stage: str
    layer: int = 0
    layers: int = 0
    fraction: float = 0.0
    edges_per_second: float | None = None
    eta_seconds: float | None = None
    message: str = ""
    steps: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the event as JSON-able data."""
        return asdict(self)


OnProgress = Callable[[Progress], None]


class ProgressClock:
    """Turns stages' fractions into one overall fraction and the seconds left.

    What is left is forecast at the pace of the work that is done, both measured in weights. The
    clock starts with the first event of a stage that works; before `_WORK_SECONDS` and
    `_WORK_SHARE` of work there is no forecast.
    """

    def __init__(
        self,
        weights: Mapping[str, float] = STAGE_WEIGHTS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._weights = weights
        self._now = now
        self._best = 0.0
        self._began: tuple[float, float] | None = None

    def overall(self, event: Progress) -> float:
        """The part of the whole run that is done, 0 to 1; it never goes back."""
        names = list(self._weights)
        if event.stage not in names:
            return self._best
        done = sum(self._weights[name] for name in names[: names.index(event.stage)])
        done += self._weights[event.stage] * min(1.0, max(0.0, event.fraction))
        self._best = max(self._best, done / sum(self._weights.values()))
        return self._best

    def comes_after(self, stage: str, other: str) -> bool:
        """Whether a stage starts after another one is done; unknown stages stand nowhere."""
        names = list(self._weights)
        if stage not in names or other not in names:
            return stage != other
        return names.index(stage) > names.index(other)

    def forecast(self, event: Progress) -> Progress:
        """The event with ``eta_seconds`` filled in, where a forecast makes sense."""
        done = self.overall(event)
        if event.eta_seconds is not None or event.stage in _BEFORE_WORK:
            return event
        if self._began is None:
            self._began = self._now(), done
        began, before = self._began
        elapsed, worked = self._now() - began, done - before
        if elapsed < _WORK_SECONDS or worked <= _WORK_SHARE * (1.0 - before):
            return event
        return replace(event, eta_seconds=elapsed * (1.0 - done) / worked)


class Pace:
    """Edges per second of all workers, in the stages that go through all edges.

    Args:
        edges: of the graph.
    """

    def __init__(self, edges: int = 0, now: Callable[[], float] = time.monotonic) -> None:
        self._edges = edges
        self._now = now
        self._stage, self._began = "", 0.0

    def note(self, event: Progress) -> float | None:
        """The stage's mean so far, None where that means nothing."""
        now = self._now()
        if event.stage != self._stage:
            self._stage, self._began = event.stage, now
        passes = {"ingest": 1, "infer": event.layers}.get(event.stage, 0)
        done = self._edges * passes * event.fraction
        elapsed = now - self._began
        return done / elapsed if done and elapsed > _PACE_SECONDS else None
