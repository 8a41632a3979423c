"""A worker container's life: serve at once, attempt once, then hold still or end.

The main thread only watches: it answers signals within a fraction of a second, whatever the
attempt's thread is doing in a library, and its heartbeat is what /healthz reports.

- Success: /status says so until SIGTERM comes. Worker process and fork server end at once, so what
  holds is small. Rank 0 writes what was published into the termination message, too; where nothing
  has stopped it within 10 seconds, its container ends with 0, so that the message shows in the
  pod's status, which an operator can read where it cannot reach /status.
- Failure: the reason goes into the termination message and the container ends.
- Kubernetes starts a container that ended again in the same pod; then it only holds, saying and
  serving what it did, because an attempt is joined once and the operator starts the next one with
  new pods. So a container ends by itself once.
- SIGTERM: the worker process is killed, what it wrote of an incomplete version is removed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from http import HTTPStatus

from embertide.errors import EmbertideError, ManifestError
from embertide.launch.bootstrap.process_tree import adopt_orphans, end_children
from embertide.launch.run_folder import RunFolder, write_text
from embertide.launch.signals import StopRequest
from embertide.pod.attempt import Stopping, WorkerAttempt
from embertide.pod.board import Board
from embertide.pod.endings import (
    ending_of,
    explains_itself,
    out_of_memory,
    write_ending,
    write_termination_message,
)
from embertide.pod.http import serve, text_page
from embertide.pod.logs import last_lines, log_to_stderr
from embertide.pod.memory import oom_kills, peak_memory
from embertide.pod.metrics import CONTENT_TYPE, WorkerCollector, render
from embertide.pod.progress import ProgressReporter
from embertide.pod.restart import begun_path, earlier_status, ended_path
from embertide.pod.settings import ContainerFiles, WorkSettings, read_settings
from embertide.pod.traced import PodTrace
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.reports import Ending, OutputReport, WorkerStatus

_TICK_SECONDS = 0.1
_PATIENCE_SECONDS = 5.0
"""How long to wait for a thread that is writing."""
_LAUNCHER_SECONDS = 30.0
"""How long rank 0, once it has published, waits for a launcher that waits for the others'."""

_log = logging.getLogger("embertide.pod")


def work(stop: StopRequest) -> int:
    """From start to end; returns the exit code."""
    log_to_stderr()
    adopt_orphans()
    # torch warns of every lost connection, with a native stack; what they mean is our Ending.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    files = ContainerFiles.of(os.environ)
    try:
        settings = read_settings(os.environ)
        files.make_temporary()
        worker = Worker(settings, files, stop)
    except Exception as error:
        ending = ending_of(error)
        _log.error("%s: %s", ending.reason, ending.message)
        write_ending(files.termination_log, ending)
        return ending.exit_code
    return worker.run()


class Worker:
    """One container. Making it starts its HTTP server."""

    def __init__(self, settings: WorkSettings, files: ContainerFiles, stop: StopRequest) -> None:
        self._settings, self._files, self._stop = settings, files, stop
        self._folder = RunFolder(files.scratch / f"attempt-{settings.attempt}")
        self._board = Board(settings)
        self._reporter = ProgressReporter(self._board)
        self._metrics = WorkerCollector(settings, self._board, self._folder)
        self._trace = PodTrace(settings, self._folder)
        self._job: EmbeddingJob | None = None
        self._attempt: WorkerAttempt | None = None
        self._thread = threading.Thread(target=self._run_attempt, name="attempt", daemon=True)
        self._kills = oom_kills()
        self._published_at: float | None = None
        # Before /status is served: a success must never look undone.
        self._earlier = earlier_status(files.scratch, settings)
        if self._earlier is not None:
            self._board.hold(self._earlier)
            with suppress(ManifestError):
                self._metrics.job = files.read_job()
        port = serve(
            settings.http_port,
            {
                "/healthz": self._healthz,
                "/status": lambda: _json(self._answer().to_text()),
                "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE, render(self._metrics)),
            },
        )
        _log.info(
            "%s of job %s, attempt %d, version %s; serving on port %d",
            settings.description, settings.job_uid, settings.attempt, settings.version, port,
        )  # fmt: skip

    def run(self) -> int:
        """Watch the attempt and listen for signals; returns the exit code."""
        if self._earlier is not None:
            _log.info("this container was started again; holding: %s", self._earlier.to_text())
        else:
            write_text(begun_path(self._files.scratch), self._board.status.to_text())
            self._thread.start()
        while not self._stop.asked:
            self._board.beat()
            self._look()
            if self._earlier is None and (code := self._exit_code()) is not None:
                end_children()
                return code
            time.sleep(_TICK_SECONDS)
        self._stopped()
        return 0

    def _exit_code(self) -> int | None:
        """With which the container ends by itself; None while it works or holds."""
        status = self._board.status
        over = not self._thread.is_alive() and not self._trace.under_way
        if status.failure is not None:
            return status.failure.exit_code if over else None
        if self._published_at is None:
            return None
        # The other launchers meet ours once more at their end.
        patience = self._settings.stay_seconds + (0 if over else _LAUNCHER_SECONDS)
        return 0 if time.monotonic() - self._published_at >= patience else None

    def _look(self) -> None:
        """What the worker process has written lately."""
        if self._board.status.state == "starting":
            if self._folder.read_snapshot(self._settings.rank) is not None:
                self._board.running()
                _log.info("all workers joined; running")
        elif self._board.status.state == "running" and self._attempt is not None:
            # The launcher goes on to wait for the other pods' launchers, who may have ended.
            output = self._attempt.published()
            if output is not None:
                self._succeed(output)

    def _run_attempt(self) -> None:
        """The attempt, in its thread: ends on the board, or because we were asked to stop."""
        try:
            self._job = self._metrics.job = job = self._files.read_job()
            self._attempt = WorkerAttempt(
                self._settings, job, self._folder, self._reporter, self._check
            )
            self._succeed(self._attempt.run())
            # The fork server is of no more use and holds memory.
            end_children()
        except Stopping:
            return
        except BaseException as error:
            if not self._stop.asked:
                self._fail(error)

    def _check(self) -> None:
        if self._stop.asked:
            raise Stopping

    def _succeed(self, output: OutputReport | None) -> None:
        report = self._attempt.report() if self._attempt is not None else None
        if not self._board.succeeded(output, report):
            return
        remembered = self._remember()
        _log.info("succeeded%s", f": {output.to_text()}" if output else "")
        if output is not None:
            write_termination_message(self._files.termination_log, output.to_text())
            # A container that does not know how the one before it ended would say that it failed.
            self._published_at = time.monotonic() if remembered else None
        if self._job is not None:
            self._trace.published(self._job, output)

    def _fail(self, error: BaseException) -> None:
        """Unless the version turns out to be complete: say why, remove what was written."""
        if self._board.ended:
            return
        ending = self._ending(error)
        try:
            output = self._attempt.clean_up() if self._attempt is not None else None
        except EmbertideError as unfinished:
            ending, output = ending_of(unfinished, self._settings.rank), None
        if output is not None:
            _log.warning("the version is complete all the same; afterwards: %s", ending.message)
            self._succeed(output)
        elif self._board.failed(ending):
            self._remember()
            _log.error("failed: %s: %s", ending.reason, ending.message)
            write_ending(self._files.termination_log, ending)
            if self._job is not None:
                self._trace.failed(self._job, ending)

    def _ending(self, error: BaseException) -> Ending:
        if not explains_itself(error) and oom_kills() > self._kills:
            _log.error("unexpected", exc_info=error)
            return out_of_memory(self._settings, self._folder.last_stage(), peak_memory())
        return ending_of(error, self._settings.rank)

    def _remember(self) -> bool:
        """Write down the status for the next container of this pod; whether that worked."""
        try:
            write_text(ended_path(self._files.scratch), self._board.status.to_text())
        except EmbertideError as error:
            _log.warning("%s", error)
            return False
        return True

    def _stopped(self) -> None:
        """Asked to stop: end the worker process, and leave nothing of an incomplete version."""
        _log.info("asked to stop while %s", self._board.status.state)
        over = self._board.ended
        self._board.stopped()
        end_children()
        if over or self._attempt is None:
            self._trace.wait()
            return
        if not self._attempt.interruptible:
            self._thread.join(_PATIENCE_SECONDS)
        try:
            self._attempt.clean_up()
        except EmbertideError as error:
            _log.warning("%s", error)
        if self._job is not None:
            self._trace.stopped(self._job)
            self._trace.wait()
        _log.info("stopped")

    def _answer(self) -> WorkerStatus:
        """What ``/status`` says: the status, and rank 0's log until its work has ended."""
        status = self._board.status
        if self._settings.rank > 0 or status.state not in ("starting", "running"):
            return status
        return status.model_copy(update={"log": last_lines()})

    def _healthz(self) -> tuple[HTTPStatus, str, bytes]:
        if self._board.alive:
            return text_page(HTTPStatus.OK, "ok")
        return text_page(HTTPStatus.SERVICE_UNAVAILABLE, "the main loop does not answer")


def _json(text: str) -> tuple[HTTPStatus, str, bytes]:
    return HTTPStatus.OK, "application/json", text.encode()
