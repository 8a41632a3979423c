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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import embertide.errors as errors
from embertide.errors import EmbertideError, GridError, Interrupted, WorkerFailed
from embertide.inputs import list_inputs
from embertide.progress import OnProgress, Progress
from embertide.report import RunReport
from embertide.spec.manifest import EmbeddingJob
from embertide.stages.estimate import choose_grid, estimate
from embertide.store.storage import open_storage
from embertide.store.versions import discard, new_version

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

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
            per core.
        threads: compute threads of each worker; default: the cores, shared evenly.

    Raises:
        EmbertideError: whatever went wrong, as its own type. The previous version stays.
    """
    on_progress(Progress("start", message="starting workers"))
    _warm_fork_server()
    storage = open_storage(job.spec.storage)
    inputs = list_inputs(storage, job)
    on_progress(Progress("plan", message=f"{len(inputs.objects())} input objects"))
    p, m = choose_grid(job, inputs, grid, workers)
    version = new_version()
    planned = estimate(storage, job, inputs, (p, m)).peak_memory_per_worker_bytes
    folder = Path(tempfile.mkdtemp(prefix="embertide-run-"))
    try:
        order = {"inputs": inputs.to_json(), "version": version, "planned_bytes": planned}
        (folder / "order.json").write_text(json.dumps(order))
        (folder / "job.json").write_text(job.model_dump_json(by_alias=True))
        threads = threads or max(1, (os.cpu_count() or 1) // (p * m))
        _launch(folder, p, m, threads, job.spec.workers.device, on_progress)
        return RunReport.from_json(json.loads((folder / "report.json").read_text()))
    except BaseException:
        with suppress(EmbertideError):
            discard(storage, job.spec.output.uri, version)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _warm_fork_server() -> None:
    """Start the fork server; it imports what workers need while we go on."""
    multiprocessing.set_forkserver_preload(["embertide.worker"])
    multiprocessing.forkserver.ensure_running()


def _launch(
    folder: Path, p: int, m: int, threads: int, device: str, on_progress: OnProgress
) -> None:
    """Start P * M workers and wait for their end."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from embertide.worker import WorkerSettings, main

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    if device == "cuda":
        _check_devices(p * m)
    settings = WorkerSettings(str(folder), p, m, threads, device)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=p * m,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=folder.name,
        max_restarts=0,
        monitor_interval=_POLL_SECONDS,
        start_method="forkserver",
    )
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with _following(folder / "progress.jsonl", on_progress):
        try:
            elastic_launch(config, main)(settings)
        except ChildFailedError as failure:
            raise _first_cause(folder, settings, failure) from None
        except (SignalException, KeyboardInterrupt) as interrupt:
            name = signal.Signals(getattr(interrupt, "sigval", signal.SIGINT)).name
            raise Interrupted(f"stopped by {name}; nothing was published") from None


def _check_devices(workers: int) -> None:
    import torch

    found = torch.cuda.device_count()
    if found < workers:
        raise GridError(
            f"spec.workers.device is cuda and the grid has {workers} workers, but this machine has"
            f" {found} CUDA device{'s' if found != 1 else ''}; use a smaller grid or device: cpu"
        )


def _first_cause(
    folder: Path, settings: WorkerSettings, failure: ChildFailedError
) -> EmbertideError:
    """The error that started it: a worker's own word, else the worker that died silently."""
    words = [json.loads(path.read_text()) for path in folder.glob("error-*.json")]
    causes = sorted((w for w in words if not w["peer"]), key=lambda w: w["time"])
    for word in causes:
        if word["known"]:
            error: EmbertideError = getattr(errors, word["kind"])(word["message"])
            return error
    if causes:
        where = _place(settings, causes[0]["rank"])
        return WorkerFailed(f"{where} failed: {causes[0]['message']}")
    spoke = {word["rank"] for word in words}
    silent = {rank: f for rank, f in failure.failures.items() if rank not in spoke}
    rank, found = min((silent or failure.failures).items(), key=lambda item: item[1].timestamp)
    how = (
        f"was killed by {signal.Signals(-found.exitcode).name}"
        if found.exitcode < 0
        else f"exited with code {found.exitcode}"
    )
    hint = (
        "; if that was the system running out of memory, use more workers"
        if found.exitcode == -signal.SIGKILL
        else ""
    )
    return WorkerFailed(
        f"{_place(settings, rank)} {how}{_stage(folder)}{hint}. Nothing was published, the"
        " previous version is intact."
    )


def _place(settings: WorkerSettings, rank: int) -> str:
    total = settings.graph * settings.feature
    p, m = divmod(rank, settings.feature)
    return f"worker {rank} of {total} (graph {p}, feature {m})"


def _stage(folder: Path) -> str:
    """What the run was doing last."""
    path = folder / "progress.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return f" during {json.loads(lines[-1])['stage']}" if lines else " while starting"


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
