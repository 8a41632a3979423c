"""The laptop's way in: the workers of one run as processes on this machine.

The inputs are listed while the fork server, which the workers come from, imports.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embertide.errors import (
    GridError,
    Interrupted,
    OutputError,
    StorageError,
    WorkerFailed,
)
from embertide.launch.failure import Workers
from embertide.launch.fork_server import call, call_alone, fork_server
from embertide.launch.launcher import (
    NEEDED,
    check_output,
    cuda_devices,
    interface_of,
    launch,
    plan_run,
)
from embertide.launch.run_folder import following, write_text
from embertide.launch.settings import Meeting, WorkerSettings
from embertide.launch.signals import Stopped, interruptible
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.telemetry.progress import OnProgress, Progress
from embertide.telemetry.report import RunReport

if TYPE_CHECKING:
    from embertide.storage.protocol import Storage

_HERE = "127.0.0.1"


def run_job(
    job: EmbeddingJob,
    *,
    grid: GridShape | None = None,
    workers: int | None = None,
    threads: int | None = None,
    on_progress: OnProgress = lambda _event: None,
) -> RunReport:
    """Compute and publish one version with worker processes on this machine.

    Args:
        grid: by default the manifest's, else chosen for ``workers``.
        workers: how many when the grid is to be chosen; default: the manifest's, else one
            with all cores as threads.
        threads: compute threads of each worker; default: the cores, shared evenly.

    Raises:
        EmbertideError: whatever went wrong, as its own type. The previous version stays.
    """
    with interruptible(), fork_server(NEEDED, "embertide.cli"):
        on_progress(Progress("start", message="starting workers"))
        # Imported beside the fork server's imports, not before them.
        from embertide.planning.inputs import list_inputs
        from embertide.storage.opening import open_storage

        storage = open_storage(job.spec.storage)
        inputs = list_inputs(storage, job)
        on_progress(Progress("plan", message=f"{len(inputs.objects())} input objects"))
        from embertide.spec.version_names import new_version

        # Waits for the fork server.
        plan = call(plan_run, job, inputs, grid, workers)
        grid = plan.grid
        version = new_version()
        if job.spec.workers.device == "cuda":
            _check_devices(grid.workers)
        check_output(storage, job.spec.output.uri, version)
        order = {
            "inputs": inputs.to_json(),
            "version": version,
            "planned_bytes": plan.peak_memory_per_worker_bytes,
        }
        threads = threads or max(1, (os.cpu_count() or 1) // grid.workers)
        try:
            return _run_workers(job, order, grid, threads, on_progress)
        except BaseException as error:
            raise _clean_up(error, storage, job.spec.output.uri, version) from None


def _clean_up(
    error: BaseException, storage: Storage, output_uri: str, version: str
) -> BaseException:
    """Remove what a failed run has written; returns the error, with the outcome if it is open."""
    from embertide.versions.publish import discard

    outcome = "Nothing was published, the previous version is intact"
    try:
        discard(storage, output_uri, version)
    except OutputError:
        outcome = f"Version {version} was complete by then and stays; see embertide versions"
    except StorageError as failure:
        outcome += f". What was written could not be removed ({failure})"
    if isinstance(error, Stopped):
        error = error.interrupted
    if isinstance(error, Interrupted | WorkerFailed):
        return type(error)(f"{error}\n{outcome}." if "\n" in str(error) else f"{error}. {outcome}.")
    return error


def _run_workers(
    job: EmbeddingJob,
    order: dict[str, Any],
    grid: GridShape,
    threads: int,
    on_progress: OnProgress,
) -> RunReport:
    """Tell the workers by files what to do, run them, and read what they report."""
    folder = _run_folder()
    try:
        write_text(folder / "order.json", json.dumps(order))
        write_text(folder / "job.json", job.model_dump_json(by_alias=True))
        settings = WorkerSettings(
            str(folder), grid, threads, job.spec.workers.device, interface_of(_HERE)
        )
        meeting = Meeting(folder.name, workers_each=grid.workers, address=_HERE)
        with following(folder / "progress.jsonl", on_progress):
            cause = call_alone(launch, Workers(folder, grid), settings, meeting)
        if cause is not None:
            raise cause.error
        return RunReport.from_json(json.loads((folder / "report.json").read_text()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="embertide-run-"))
    except OSError as error:
        raise OutputError(
            f"no temporary folder can be made: {error.strerror}; set TMPDIR to one with space"
        ) from error


def _check_devices(workers: int) -> None:
    found = call(cuda_devices)
    if found < workers:
        raise GridError(
            f"spec.workers.device is cuda and the grid has {workers} workers, but this machine has"
            f" {found} CUDA device{'s' if found != 1 else ''}; use a smaller grid or device: cpu"
        )
