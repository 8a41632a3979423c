"""One attempt of one worker, from an empty folder to a published version or a known cause.

Rank 0 prepares: it looks at what earlier attempts left, lists the inputs and writes the order.
Then all pods join the rendezvous, and each runs one worker process. Whatever happens, nothing of
an incomplete version stays: every rank removes it once its own worker has ended, unless its part
was delivered, because from then on rank 0 may be publishing, and removing is rank 0's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from embertide.engine.planning.confirmed import Confirmed
from embertide.engine.planning.sizing import container_problem
from embertide.errors import EmbertideError, OutputError, ProcessDied, WorkerFailed
from embertide.facts.telemetry.estimate import Estimate
from embertide.facts.telemetry.progress import Progress
from embertide.facts.telemetry.report import RunReport
from embertide.launch.bootstrap.fork_server import fork_server, preloads
from embertide.launch.bootstrap.start import interface_of, launch_workers, prepare
from embertide.launch.failure import Cause
from embertide.launch.run_folder import RunFolder
from embertide.launch.settings import WorkerSettings
from embertide.pod.endings import AttemptFailed
from embertide.pod.memory import usable_cores
from embertide.pod.progress import ProgressReporter
from embertide.pod.rendezvous import find_rank_0, rendezvous_of
from embertide.pod.settings import WorkSettings
from embertide.pod.summary import output_report, run_status
from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.reports import OutputReport
from embertide.spec.run_status import RunStatus
from embertide.spec.schemes import is_local

if TYPE_CHECKING:
    from embertide.io.storage.protocol import Storage
    from embertide.io.versions.catalog import VersionInfo

SNAPSHOT_SECONDS = 2.0
_UNDER_WAY_SECONDS = 2.0
"""How long a request may be in flight to the store when the process that sent it is killed."""

_log = logging.getLogger("embertide.pod")


class Stopping(Exception):
    """We were asked to stop."""


class WorkerAttempt:
    """What one worker does; ``check`` raises Stopping when it shall end.

    Attributes:
        may_have_written: something of the version may lie in the output.
        interruptible: nothing is being written, so this rank need not be waited for.
    """

    def __init__(
        self,
        settings: WorkSettings,
        job: EmbeddingJob,
        folder: RunFolder,
        reporter: ProgressReporter,
        check: Callable[[], None],
    ) -> None:
        self._settings, self._job, self._folder = settings, job, folder
        self._reporter, self._check = reporter, check
        self._began = time.time()
        self.may_have_written = False
        self.interruptible = False

    def run(self) -> OutputReport | None:
        """To the end; rank 0 knows what was published.

        Raises:
            EmbertideError, AttemptFailed: why it failed.
            Stopping: raised by ``check``.
        """
        with fork_server(*preloads(self._job.model_dump_json())):
            self._folder.path.mkdir(parents=True, exist_ok=True)
            if self._settings.rank == 0:
                self._reporter(Progress("start"))
                if (earlier := self._adopt_earlier()) is not None:
                    return earlier
                try:
                    self._prepare()
                except Confirmed as confirmed:
                    return self._output_report(confirmed.version, confirmed=True)
            else:
                self._folder.write_job(self._job)
            self.interruptible = True
            self._work()
        return self.published()

    def _adopt_earlier(self) -> OutputReport | None:
        """The version of an attempt that published unnoticed, if this job would make the same.

        Incomplete versions are removed; complete ones of another spec of the job stay as they are.
        Our own is looked at too: this pod may be a second one for the same attempt.
        """
        from embertide.io.versions.objects import is_complete, objects_of

        storage, uri = self._storage(), self._job.spec.published_uri
        for version in (self._settings.version, *reversed(self._settings.earlier)):
            self._check()
            objects = objects_of(storage, uri, version)
            if is_complete(objects):
                if (finished := self._finish(storage, version)) is not None:
                    return finished
                continue
            if objects and version != self._settings.version:
                _log.info("removing incomplete version %s of an earlier attempt", version)
            if version != self._settings.version:
                self._discard(version)
        return None

    def _finish(self, storage: Storage, version: str) -> OutputReport | None:
        """Do what may be left to do for a complete version of this job.

        None for an earlier attempt's that other inputs, another model, sampling or format made.
        One whose manifest does not say what made it counts as such: to compute again is never
        wrong.

        Raises:
            OutputError: the version is another job's.
            WorkerFailed: it has this attempt's name, so this attempt cannot write another one.
        """
        from embertide.io.versions.manifest import read_manifest
        from embertide.io.versions.publish import finish

        uri, name = self._job.spec.published_uri, self._job.metadata.name
        manifest = read_manifest(storage, uri, version)[0]
        if (owner := manifest.get("job")) != name:
            raise OutputError(
                f"version {version} of {uri} was published by the job {owner}, not by"
                f" {name}; give each job an output of its own"
            )
        if manifest.get("jobDigest") != job_digest(self._job):
            what = f"version {version} of {uri} was made from another spec of this job"
            if version == self._settings.version:
                raise WorkerFailed(f"{what}; the next attempt writes a version of its own")
            _log.info("%s; it stays, and a new one is made", what)
            return None
        _log.info("version %s is complete already", version)
        return self._output_report(
            finish(storage, uri, version, self._job.spec.output.keep_versions)
        )

    def _prepare(self) -> None:
        """Plan, and write the order for all workers."""
        with self._ours_to_report():
            plan = prepare(
                self._folder,
                self._job,
                self._storage(),
                version=self._settings.version,
                grid=self._settings.grid,
                tables=self._settings.tables,
                container=self._settings.memory_limit,
                workers_here=1,
                began=self._began,
                on_progress=self._reporter,
                on_listed=lambda _inputs: self._check(),
                on_planned=self._planned,
            )
        _log.info(
            "%d input objects, %d nodes, %d edges; planned memory %d MiB beyond imports",
            len(plan.inputs), plan.nodes, plan.edges, plan.peak_memory_per_worker_bytes >> 20,
        )  # fmt: skip

    def _planned(self, plan: Estimate) -> None:
        """Nothing is written before this."""
        self._reporter.expect_edges(plan.edges)
        for budget in plan.budgets:
            _log.info("%s", budget.sentence)
        limit = self._settings.memory_limit
        if limit and (problem := container_problem(plan.peak_memory_per_worker_bytes, limit)):
            _log.warning("%s", problem)
        self._check()
        self.may_have_written = True

    def _work(self) -> None:
        """Join the others and run our worker process to its end."""
        settings = self._settings
        _log.info("looking for worker 0 at %s:%d", *settings.rendezvous)
        address = find_rank_0(settings, self._check)
        self._check()
        self.may_have_written = True
        _log.info("waiting for %d workers; our address is %s", settings.grid.workers, address)
        with self._ours_to_report():
            cause = launch_workers(
                self._folder,
                self._worker_settings(address),
                rendezvous_of(settings, address),
                self._reporter,
            )
        if cause is not None:
            if cause.internal or cause.silent:
                _log_output(self._folder.log_lines(0))
            raise AttemptFailed(cause)

    def _worker_settings(self, address: str) -> WorkerSettings:
        settings = self._settings
        return WorkerSettings(
            run_folder=str(self._folder.path),
            grid=settings.grid,
            threads=settings.threads or usable_cores(),
            device=self._job.spec.workers.device,
            interface=interface_of(address),
            rank=settings.rank,
            snapshot_seconds=SNAPSHOT_SECONDS,
            timeout_seconds=settings.peer_timeout_seconds,
        )

    @contextmanager
    def _ours_to_report(self) -> Iterator[None]:
        """A process of ours that dies is our worker's failure."""
        try:
            yield
        except ProcessDied as died:
            lost = WorkerFailed(f"{self._settings.description} failed: {died}")
            raise AttemptFailed(Cause(lost, self._settings.rank, silent=True)) from died

    def published(self) -> OutputReport | None:
        """What rank 0's worker reported; None before, and on other ranks."""
        report = self._folder.read_report()
        return None if report is None else self._output_report(report)

    def report(self) -> RunStatus | None:
        """What rank 0's run did in total; None where it did not publish."""
        report = self._folder.read_report()
        return None if report is None else run_status(report, self._settings.attempt)

    def _output_report(
        self, info: VersionInfo | RunReport, *, confirmed: bool = False
    ) -> OutputReport:
        report = output_report(info, self._job, confirmed=confirmed)
        whose = {"job_uid": self._settings.job_uid, "attempt": self._settings.attempt}
        return report.model_copy(update=whose)

    def clean_up(self) -> OutputReport | None:
        """Once our worker has ended: leave nothing of an incomplete version.

        Returns what was published where rank 0 finds the version complete all the same.
        """
        settings = self._settings
        if not self.may_have_written:
            return None
        if settings.rank > 0:
            if not self._folder.is_delivered(settings.rank):
                self._discard_own()
            return None
        from embertide.io.versions.objects import is_complete, objects_of

        storage = self._storage()
        if is_complete(objects_of(storage, self._job.spec.published_uri, settings.version)):
            return self._finish(storage, settings.version)
        self._discard_own()
        return None

    def _discard_own(self) -> None:
        """Remove what there is of our version, also what our killed worker has begun just now.

        A request that was in flight may begin an upload, or add an object, after the first look.
        """
        self._discard(self._settings.version)
        remote = not is_local(self._job.spec.published_uri)
        if remote and self._folder.last_stage() == "publish":
            time.sleep(_UNDER_WAY_SECONDS)
            self._discard(self._settings.version)

    def _discard(self, version: str) -> None:
        from embertide.io.versions.publish import discard

        try:
            discard(self._storage(), self._job.spec.published_uri, version, self._folder.uploads())
        except EmbertideError as error:
            _log.warning("what was written of version %s is still there: %s", version, error)

    def _storage(self) -> Storage:
        from embertide.io.storage.opening import open_storage

        return open_storage(self._job.spec.storage, _log.warning)


def _log_output(lines: list[str]) -> None:
    """What a worker that failed without a message printed; in the pod's log it is at hand."""
    for line in lines[-200:]:
        _log.error("worker process: %s", line)
