"""A run on one machine: all workers as processes here, with one launcher.

The inputs are listed while the fork server, which the workers come from, imports.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from embertide.engine.planning.confirmed import Confirmed
from embertide.engine.planning.sizing import asked_grid, machine_problem, this_machine
from embertide.errors import GridError, Interrupted, OutputError, StorageError, WorkerFailed
from embertide.facts.telemetry.estimate import Estimate
from embertide.facts.telemetry.progress import OnProgress, Pace, Progress
from embertide.facts.telemetry.report import RunReport
from embertide.kernels.prefault import Prefaulted
from embertide.launch.bootstrap.fork_server import call, fork_server, preloads
from embertide.launch.bootstrap.local_workers import LOCALHOST
from embertide.launch.bootstrap.start import interface_of, launch_workers, prepare
from embertide.launch.bootstrap.warmup import Warmup
from embertide.launch.output_lock import output_lock
from embertide.launch.run_folder import RunFolder
from embertide.launch.settings import WorkerSettings
from embertide.launch.signals import Stopped, interruptible
from embertide.launch.stage_reporter import StageReporter
from embertide.launch.traced import Noted, snapshot_period, traced
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.version_names import new_version

if TYPE_CHECKING:
    from embertide.engine.planning.inputs import Inputs
    from embertide.io.storage.protocol import Storage


def run_job(
    job: EmbeddingJob,
    *,
    grid: GridShape | None = None,
    workers: int | None = None,
    threads: int | None = None,
    on_progress: OnProgress = lambda _event: None,
    began: float | None = None,
) -> RunReport:
    """Compute and publish one version with worker processes on this machine.

    Args:
        grid: by default the manifest's, else chosen for ``workers``.
        workers: how many when the grid is to be chosen; default: the manifest's, else one
            with all cores as threads.
        threads: compute threads of each worker; default: the cores, shared evenly.
        began: when the caller began, in seconds since the epoch, from which the report counts the
            start; default: now.

    Raises:
        EmbertideError: whatever went wrong, as its own type. The previous version stays.
    """
    # Waiting holds the output: of two runs to it the first one also publishes first.
    with interruptible(), output_lock(job.spec.published_uri, job.spec.storage, on_progress):
        if job.spec.waits:
            _wait_for_inputs(job, on_progress)
            began = None  # the time of the wait is no time of the run
        return _run_ready(job, grid, workers, threads, on_progress, began or time.time())


def _wait_for_inputs(job: EmbeddingJob, on_progress: OnProgress) -> None:
    """Return once all inputs are ready. No process is started before."""
    from embertide.engine.planning.readiness import wait_for_inputs
    from embertide.io.storage.opening import open_storage

    def say(text: str) -> None:
        on_progress(Progress("start", message=text))

    wait_for_inputs(open_storage(job.spec.storage, say), job, say)


def _run_ready(
    job: EmbeddingJob,
    grid: GridShape | None,
    workers: int | None,
    threads: int | None,
    on_progress: OnProgress,
    began: float,
) -> RunReport:
    """Compute and publish, from inputs that are ready; see :func:`run_job`."""
    with (
        fork_server(*preloads(job.model_dump_json())),
        RunFolder.temporary() as folder,
        closing(Warmup()) as warmup,
    ):
        asked = asked_grid(job.spec.workers, grid, workers)

        def begin_warmup(inputs: Inputs) -> None:
            # Before the plan is there, it is not known how much fits in the memory of a worker.
            if job.spec.workers.device == "cpu" and job.spec.workers.memory is None:
                hashed = any(node.ids != "dense" for node in job.spec.input.nodes)
                warmup.begin(inputs, asked.workers, hashed=hashed)

        reporter = StageReporter(on_progress)
        reporter(Progress("start", message="starting workers"))
        # Imported beside the fork server's imports, not before them.
        from embertide.io.storage.opening import open_storage

        storage, version = open_storage(job.spec.storage, reporter.waits), new_version()
        with traced(folder, job, version, began) as noted:
            try:
                estimate = prepare(
                    folder,
                    job,
                    storage,
                    version=version,
                    grid=grid,
                    workers=workers,
                    began=began,
                    on_progress=reporter,
                    on_listed=begin_warmup,
                    on_planned=lambda plan: _check_machine(job, plan),
                )
            except Confirmed as confirmed:
                noted.confirmed = True
                return _report_of(storage, job.spec.published_uri, confirmed)
            prefaulted = warmup.end(estimate.memory_per_worker_bytes)
            noted.grid = estimate.grid
            settings = _settings(job, folder, estimate.grid, threads, prefaulted)
            try:
                return _run_workers(folder, settings, estimate, reporter, noted)
            except BaseException as error:
                raise _clean_up(error, storage, job.spec.published_uri, version, folder) from None


def _report_of(storage: Storage, output_uri: str, confirmed: Confirmed) -> RunReport:
    """The report of the run that computed a version, with what this run did."""
    from embertide.io.versions.run_reports import read_report

    info = confirmed.version
    report = read_report(storage, output_uri, info.version)
    warnings = [info.not_removed] if info.not_removed else []
    return replace(
        report,
        confirmed=True,
        current=info.current,
        held=list(info.held),
        not_removed=info.not_removed,
        not_current=info.not_current,
        warnings=warnings,
    )


def _settings(
    job: EmbeddingJob,
    folder: RunFolder,
    grid: GridShape,
    threads: int | None,
    prefaulted: Prefaulted,
) -> WorkerSettings:
    return WorkerSettings(
        run_folder=str(folder.path),
        grid=grid,
        threads=threads or max(1, (os.cpu_count() or 1) // grid.workers),
        device=job.spec.workers.device,
        interface=interface_of(LOCALHOST),
        prefaulted=prefaulted,
        snapshot_seconds=snapshot_period(),
    )


def _run_workers(
    folder: RunFolder,
    settings: WorkerSettings,
    estimate: Estimate,
    on_progress: OnProgress,
    noted: Noted,
) -> RunReport:
    """The workers, to the version that they published."""
    pace = Pace(estimate.edges)

    def with_pace(event: Progress) -> None:
        on_progress(replace(event, edges_per_second=pace.note(event)))

    noted.cause = cause = launch_workers(folder, settings, None, with_pace)
    if cause is not None:
        raise cause.error
    report = folder.read_report()
    assert report is not None
    return report


def _clean_up(
    error: BaseException, storage: Storage, output_uri: str, version: str, folder: RunFolder
) -> BaseException:
    """Remove what a failed run has written; returns the error, with the outcome if it is open."""
    from embertide.io.versions.publish import discard

    outcome = "Nothing was published, the previous version is intact"
    try:
        discard(storage, output_uri, version, folder.uploads())
    except OutputError:
        outcome = f"Version {version} was complete by then and stays; see embertide versions"
    except StorageError as failure:
        outcome += f". What was written could not be removed ({failure})"
    if isinstance(error, Stopped):
        error = error.interrupted
    if isinstance(error, Interrupted | WorkerFailed):
        return type(error)(f"{error}\n{outcome}." if "\n" in str(error) else f"{error}. {outcome}.")
    return error


def _check_machine(job: EmbeddingJob, plan: Estimate) -> None:
    """Refuse, before anything starts, what this machine has too few cores or memory for."""
    problem = machine_problem(plan.grid, plan.peak_memory_per_worker_bytes, this_machine())
    if problem is not None:
        raise GridError(problem)
    _check_devices(job, plan.grid)


def _check_devices(job: EmbeddingJob, grid: GridShape) -> None:
    if job.spec.workers.device != "cuda":
        return
    found = call(_cuda_devices)
    if found < grid.workers:
        raise GridError(
            f"spec.workers.device is cuda and the grid has {grid.workers} workers, but this machine"
            f" has {found} CUDA device{'s' if found != 1 else ''}; use a smaller grid or device:"
            " cpu"
        )


def _cuda_devices() -> int:
    """How many this machine has."""
    import torch

    return torch.cuda.device_count()
