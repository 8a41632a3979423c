"""The trace of an attempt, sent by its pods once their workers have ended.

Rank 0's report has the spans of all workers, so it alone sends the trace of a version that was
published. Of an attempt that failed every pod knows its own worker: each sends that one, and rank 0
the root. The spans share a trace since its id follows from the job's uid and the attempt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from embertide.facts.report.otlp.send import asked, send
from embertide.facts.report.otlp.tree import (
    Failure,
    Node,
    TracedRun,
    of_earlier,
    of_failure,
    of_report,
)
from embertide.launch.run_folder import RunFolder
from embertide.pod.redact import redact
from embertide.pod.settings import WorkSettings
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.reports import Ending, OutputReport


class PodTrace:
    """One container's part of its attempt's trace; the first ending is the one that is sent."""

    def __init__(self, settings: WorkSettings, folder: RunFolder) -> None:
        self._settings, self._folder = settings, folder
        self._began = time.time()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def under_way(self) -> bool:
        """Whether it is being sent."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Until it is sent, or was given up, which takes seconds at most."""
        if self._thread is not None:
            self._thread.join()

    def published(self, job: EmbeddingJob, output: OutputReport | None) -> None:
        """Begin to send the whole trace, if we are the one who knows it."""
        if output is not None:
            self._begin(lambda: self._of_version(job, output))

    def failed(self, job: EmbeddingJob, ending: Ending) -> None:
        """Begin to send what our worker did until it failed."""
        # Of a lost peer another pod knows why.
        rank = None if ending.peer else ending.rank
        self._unfinished(job, "failed", ending.reason, redact(ending.message), rank)

    def stopped(self, job: EmbeddingJob) -> None:
        """Begin to send what our worker did until this pod was asked to stop."""
        self._unfinished(job, "stopped", "Stopped", "the pod was asked to stop", None)

    def _unfinished(
        self, job: EmbeddingJob, outcome: str, reason: str, message: str, rank: int | None
    ) -> None:
        failure = Failure(
            outcome=outcome, reason=reason, message=message, at=time.time(), rank=rank
        )
        self._begin(lambda: self._of_failure(job, failure))

    def _of_version(self, job: EmbeddingJob, output: OutputReport) -> Node:
        report, run = self._folder.read_report(), self._run(job)
        if report is None:
            return of_earlier(run, output.version, time.time())
        return of_report(run, report, time.time())

    def _of_failure(self, job: EmbeddingJob, failure: Failure) -> Node:
        snapshot = self._folder.read_snapshot(self._settings.rank)
        return of_failure(self._run(job), [] if snapshot is None else [snapshot], failure)

    def _run(self, job: EmbeddingJob) -> TracedRun:
        settings = self._settings
        return TracedRun(
            job=job.metadata.name,
            version=settings.version,
            output=job.spec.published_uri,
            began=self._began,
            key=self._key,
            attempt=settings.attempt,
            grid=settings.grid,
        )

    @property
    def _key(self) -> str:
        return f"{self._settings.job_uid}/{self._settings.attempt}"

    def _begin(self, make: Callable[[], Node]) -> None:
        """Send in a thread: the container goes on to serve its status."""
        whole = self._settings.rank == 0
        with self._lock:
            if self._thread is not None or not asked():
                return
            self._thread = threading.Thread(
                target=lambda: send(make, self._key, whole=whole), name="trace", daemon=True
            )
            self._thread.start()
