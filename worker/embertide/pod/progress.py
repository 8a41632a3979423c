"""From rank 0's progress events to what people see: percent, time left, edges a second."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from embertide.facts.telemetry.progress import Pace, Progress, ProgressClock
from embertide.pod.board import Board
from embertide.spec.reports import ProgressReport

_LOG_SECONDS = 10.0

_log = logging.getLogger("embertide.pod")


class ProgressReporter:
    """Takes progress events, keeps the board's progress fresh and logs every so often."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._clock = ProgressClock()
        self._pace = Pace()
        self._logged = ("", 0, 0.0)
        self._seen = ("", 0, 0.0, 0)
        self._steps = 0
        self._message = ""

    def expect_edges(self, edges: int) -> None:
        """How many edges the plan counted."""
        self._pace = Pace(edges)

    def __call__(self, event: Progress) -> None:
        """Publish one progress event as the worker's /status progress."""
        done = self._clock.overall(event)
        pace = self._pace.note(event)
        left = self._clock.forecast(event).eta_seconds
        seen = event.stage, event.layer, event.fraction, event.steps
        if seen != self._seen:
            # A message alone, such as of a store that does not answer, is no progress.
            self._seen, self._steps = seen, self._steps + 1
        report = ProgressReport(
            stage=event.stage,
            layer=event.layer,
            layers=event.layers,
            percent=int(100 * done),
            steps=self._steps,
            eta_seconds=None if left is None else round(left),
            edges_per_second=None if pace is None else round(pace),
            last_update_time=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        )
        self._board.progressed(report)
        self._tell(report)
        if event.message != self._message:
            self._message = event.message
            if event.message:
                _log.info("%s", event.message)

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
