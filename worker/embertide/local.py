"""The laptop's way in: the workers of one run as processes on this machine.

A fork server imports torch and the pipeline once; ``torch.distributed``'s launcher starts the
workers from it, notices a dead one within a fraction of a second and stops the others. The
inputs are listed while the fork server imports.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import multiprocessing.forkserver
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from embertide.errors import (
    EmbertideError,
    GridError,
    Interrupted,
    OutputError,
    StorageError,
    WorkerFailed,
)
from embertide.postmortem import Ending, Workers, first_cause
from embertide.progress import OnProgress, Progress
from embertide.report import RunReport
from embertide.spec.manifest import EmbeddingJob
from embertide.stopping import Stopped, interruptible

if TYPE_CHECKING:
    from embertide.store.storage import Storage
    from embertide.worker import WorkerSettings

_POLL_SECONDS = 0.1


def run_job(
    job: EmbeddingJob,
    *,
    grid: tuple[int, int] | None = None,
    workers: int | None = None,
    threads: int | None = None,
    on_progress: OnProgress = lambda _event: None,
) -> RunReport:
    """Compute and publish one version with worker processes on this machine.

    Args:
        grid: (P, M); by default the manifest's, else chosen for ``workers``.
        workers: how many when the grid is to be chosen; default: the manifest's, else one
            with all cores as threads.
        threads: compute threads of each worker; default: the cores, shared evenly.

    Raises:
        EmbertideError: whatever went wrong, as its own type. The previous version stays.
    """
    with interruptible(), _fork_server():
        on_progress(Progress("start", message="starting workers"))
        # Imported beside the fork server's imports, not before them.
        from embertide.inputs import list_inputs
        from embertide.store.storage import open_storage

        storage = open_storage(job.spec.storage)
        inputs = list_inputs(storage, job)
        on_progress(Progress("plan", message=f"{len(inputs.objects())} input objects"))
        # Last, since this imports torch.
        from embertide.stages.estimate import choose_grid, estimate
        from embertide.store.versions import new_version

        p, m = choose_grid(job, inputs, grid, workers)
        planned = estimate(storage, job, inputs, (p, m)).peak_memory_per_worker_bytes
        version = new_version()
        if job.spec.workers.device == "cuda":
            _check_devices(p * m)
        _check_output(storage, job.spec.output.uri, version)
        order = {"inputs": inputs.to_json(), "version": version, "planned_bytes": planned}
        threads = threads or max(1, (os.cpu_count() or 1) // (p * m))
        try:
            return _run_workers(job, order, (p, m), threads, on_progress)
        except BaseException as error:
            raise _clean_up(error, storage, job.spec.output.uri, version) from None


@contextmanager
def _fork_server() -> Iterator[None]:
    """Start the fork server, which imports what workers need; after an error, end it at once.

    It would end by itself, but not before it is done importing, and it holds our stderr.
    """
    me = psutil.Process()
    multiprocessing.set_forkserver_preload(["embertide.worker", "embertide.cli"])
    # First, since it unblocks signals.
    resource_tracker.ensure_running()
    others = me.children()
    # Ctrl-C reaches every process of the terminal. The server and the workers it makes inherit
    # that it is blocked: we stop them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        multiprocessing.forkserver.ensure_running()
    except OSError as error:
        raise OutputError(
            f"no socket can be made in the temporary folder {tempfile.gettempdir()}: {error}; set"
            " TMPDIR to a shorter path with space"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        yield
    except BaseException:
        for server in set(me.children()) - set(others):
            with suppress(psutil.NoSuchProcess):
                server.kill()
        raise


def _check_output(storage: Storage, output_uri: str, version: str) -> None:
    """Learn before the work that the output cannot be written, not after it."""
    from embertide.store.versions import version_uri

    probe = f"{version_uri(output_uri, version)}/_begun"
    storage.write(probe, b"")
    # Where objects may be made but not removed, one is left behind; it is hidden and empty.
    with suppress(EmbertideError):
        storage.delete([probe])


def _clean_up(
    error: BaseException, storage: Storage, output_uri: str, version: str
) -> BaseException:
    """Remove what a failed run has written; returns the error, with the outcome if it is open."""
    from embertide.store.versions import discard

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
    grid: tuple[int, int],
    threads: int,
    on_progress: OnProgress,
) -> RunReport:
    """Tell the workers by files what to do, run them, and read what they report."""
    from embertide.worker import WorkerSettings

    folder = _run_folder()
    try:
        _write(folder / "order.json", json.dumps(order))
        _write(folder / "job.json", job.model_dump_json(by_alias=True))
        settings = WorkerSettings(str(folder), *grid, threads, job.spec.workers.device)
        with _following(folder / "progress.jsonl", on_progress), _no_child_left():
            _launch(Workers(folder, *grid), settings)
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


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}; free space there, or set TMPDIR to"
            " another folder"
        ) from error


def _launch(workers: Workers, settings: WorkerSettings) -> None:
    """Start the P * M workers and wait for their end."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from embertide.worker import main

    debug = bool(os.environ.get("EMBERTIDE_DEBUG"))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers.graph * workers.feature,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=workers.folder.name,
        max_restarts=0,
        monitor_interval=_POLL_SECONDS,
        start_method="forkserver",
        # What libraries print as their peers vanish is no message for users.
        logs_specs=DefaultLogsSpecs(
            str(workers.folder / "logs"), redirects=Std.NONE if debug else Std.ALL
        ),
        # Signals are ours already.
        signals_to_handle="",
    )
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with nullcontext() if debug else _quiet("torch.distributed", "torch.multiprocessing"):
        try:
            elastic_launch(config, main)(settings)
        except ChildFailedError as failure:
            endings = sorted(failure.failures.items(), key=lambda item: item[1].timestamp)
            stage = _stage(workers.folder)
            raise first_cause(
                workers, [Ending(rank, found.exitcode) for rank, found in endings], stage
            ) from None


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Keep libraries' logs off stderr: what they say of failed workers, we say better."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _no_child_left() -> Iterator[None]:
    """End workers that the launcher did not know yet when it was interrupted."""
    before = multiprocessing.active_children()
    try:
        yield
    finally:
        for child in multiprocessing.active_children():
            if child not in before:
                child.kill()
                child.join()


def _check_devices(workers: int) -> None:
    import torch

    found = torch.cuda.device_count()
    if found < workers:
        raise GridError(
            f"spec.workers.device is cuda and the grid has {workers} workers, but this machine has"
            f" {found} CUDA device{'s' if found != 1 else ''}; use a smaller grid or device: cpu"
        )


def _stage(folder: Path) -> str:
    """What the run was doing last, "" before it did anything."""
    path = folder / "progress.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return str(json.loads(lines[-1])["stage"]) if lines else ""


@contextmanager
def _following(path: Path, on_progress: OnProgress) -> Iterator[None]:
    """Pass on what rank 0 appends to its progress file."""
    done = threading.Event()

    def follow() -> None:
        at = 0
        while not done.wait(_POLL_SECONDS):
            at = _pass_on(path, at, on_progress)
        _pass_on(path, at, on_progress)

    thread = threading.Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _pass_on(path: Path, at: int, on_progress: OnProgress) -> int:
    """Report complete lines from byte ``at``; returns where to go on."""
    if not path.exists():
        return at
    with path.open("rb") as file:
        file.seek(at)
        text = file.read()
    complete = text[: text.rfind(b"\n") + 1]
    for line in complete.splitlines():
        fields: dict[str, Any] = json.loads(line)
        on_progress(Progress(**fields))
    return at + len(complete)
