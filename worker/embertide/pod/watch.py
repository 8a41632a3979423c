"""From rank 0's progress events to what people see: percent, time left, edges a second."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from embertide.pod.board import Board
from embertide.spec.reports import ProgressReport
from embertide.telemetry.progress import Progress, ProgressClock

_LOG_SECONDS = 10.0
_PACE_SECONDS = 0.5
"""A pace measured over less says nothing."""
_BEFORE_WORK = ("start", "plan")

_log = logging.getLogger("embertide.pod")


class Watch:
    """Takes progress events, keeps the board's progress fresh and logs every so often."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._clock = ProgressClock()
        self._working = False
        self._pace = _Pace()
        self._logged = ("", 0, 0.0)

    def expect_edges(self, edges: int) -> None:
        """How many edges the plan counted."""
        self._pace = _Pace(edges)

    def __call__(self, event: Progress) -> None:
        """One event."""
        if not self._working and event.stage not in _BEFORE_WORK:
            # Until then pods waited for each other, which says nothing about the work.
            self._working, self._clock = True, ProgressClock()
        done = self._clock.overall(event)
        left = self._clock.forecast(event).eta_seconds if self._working else None
        report = ProgressReport(
            stage=event.stage,
            layer=event.layer,
            layers=event.layers,
            percent=int(100 * done),
            eta_seconds=None if left is None else round(left),
            edges_per_second=self._pace.note(event),
            last_update_time=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        )
        self._board.progressed(report)
        self._tell(report)

    def _tell(self, report: ProgressReport) -> None:
        stage, layer, at = self._logged
        now = time.monotonic()
        if (stage, layer) == (report.stage, report.layer) and now - at < _LOG_SECONDS:
            return
        self._logged = (report.stage, report.layer, now)
        layers = f" layer {report.layer}/{report.layers}" if report.layer else ""
        pace = f", {report.edges_per_second} edges/s" if report.edges_per_second else ""
        left = f", {report.eta_seconds} s left" if report.eta_seconds is not None else ""
        _log.info("progress: %s%s, %d%%%s%s", report.stage, layers, report.percent, pace, left)


class _Pace:
    """Edges a second of all workers in the stages that go through all edges."""

    def __init__(self, edges: int = 0) -> None:
        self._edges = edges
        self._stage, self._began = "", 0.0

    def note(self, event: Progress) -> int | None:
        """The stage's mean so far, None where that means nothing."""
        now = time.monotonic()
        if event.stage != self._stage:
            self._stage, self._began = event.stage, now
        passes = {"ingest": 1, "infer": event.layers}.get(event.stage, 0)
        done = self._edges * passes * event.fraction
        elapsed = now - self._began
        return round(done / elapsed) if done and elapsed > _PACE_SECONDS else None
