"""The worker's status, for /status and the main loop: an immutable value, replaced on change."""

from __future__ import annotations

import threading
import time
from typing import Any

from embertide.pod.settings import WorkSettings
from embertide.spec.reports import Ending, OutputReport, ProgressReport, WorkerStatus
from embertide.spec.run_status import RunStatus

_ENDED = ("succeeded", "failed")
_DONE = {"stage": "publish", "layer": 0, "layers": 0, "percent": 100, "eta_seconds": 0}
HEARTBEAT_SECONDS = 30.0


class Board:
    """Holds the status; any thread may read, any may write. The first ending stays."""

    def __init__(self, settings: WorkSettings) -> None:
        self._lock = threading.Lock()
        self._beat = time.monotonic()
        self._status = WorkerStatus(
            job_uid=settings.job_uid,
            attempt=settings.attempt,
            rank=settings.rank,
            state="starting",
        )

    @property
    def status(self) -> WorkerStatus:
        """The current status; it never changes in place."""
        return self._status

    @property
    def ended(self) -> bool:
        """Whether the attempt is over, well or not."""
        return self._status.state in _ENDED

    def beat(self) -> None:
        """Record that the main loop runs."""
        self._beat = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the main loop ran within the last 30 seconds."""
        return time.monotonic() - self._beat < HEARTBEAT_SECONDS

    def hold(self, status: WorkerStatus) -> None:
        """Report again what an earlier container of this pod reported."""
        with self._lock:
            self._status = status

    def progressed(self, progress: ProgressReport) -> None:
        """Set how far the run is."""
        self._change(progress=progress)

    def running(self) -> None:
        """All workers have met and are at work."""
        if self._status.state == "starting":
            self._change(state="running")

    def succeeded(self, output: OutputReport | None, report: RunStatus | None = None) -> bool:
        """The attempt is done; returns whether that is news."""
        progress = self._status.progress
        if progress is not None:
            # The last events may still be in flight.
            progress = progress.model_copy(update=_DONE)
        return self._change(state="succeeded", output=output, report=report, progress=progress)

    def failed(self, ending: Ending) -> bool:
        """The attempt is over; returns whether that is news."""
        return self._change(state="failed", failure=ending)

    def stopped(self) -> None:
        """We were asked to stop before the attempt was over."""
        self._change(state="stopped")

    def _change(self, **fields: Any) -> bool:
        with self._lock:
            if self._status.state in (*_ENDED, "stopped"):
                return False
            self._status = self._status.model_copy(update=fields)
            return True
