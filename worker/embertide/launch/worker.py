"""One worker process: join the others, run the pipeline, leave word of what went wrong.

What a worker is told and what it has to say goes through its run folder (``run_folder.py``). In
pods each rank has a folder of its own, so only rank 0's holds the order; it tells the others.
Importing this module imports all that a worker needs, so that a fork server can do it once.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
import traceback
from contextlib import nullcontext, suppress
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from embertide.context import RunContext
from embertide.errors import EmbertideError, WorkerFailed
from embertide.grid import Grid
from embertide.launch.failure import leave_word
from embertide.launch.run_folder import delivered_path, metrics_path, write_text
from embertide.launch.settings import WorkerSettings
from embertide.launch.vitals import look, telling
from embertide.pipeline import Clock, WorkOrder, run
from embertide.primitives.exchange import Exchange
from embertide.spec.manifest import EmbeddingJob
from embertide.storage.opening import open_storage
from embertide.telemetry.memory import MemoryWatch
from embertide.telemetry.progress import Progress
from embertide.telemetry.recorder import CountingRecorder

_PR_SET_NAME = 15
_PEER_WORDS = ("Connection closed by peer", "Connection reset", "Broken pipe", "gloo", "NCCL")
_PEER_SECONDS = 5.0
_OOM_SCORE = Path("/proc/self/oom_score_adj")


def main(settings: WorkerSettings) -> None:
    """Run one rank; its number and meeting place come from the environment.

    Exits with the error's exit code when the run fails.
    """
    if settings.rank is not None:
        # Launchers number themselves as they arrive. All ranks reach the meeting place as
        # clients of a launcher's store, so any numbering will do.
        os.environ["RANK"] = str(settings.rank)
        _go_first()
    rank = int(os.environ["RANK"])
    _show_rank(rank)
    torch.set_num_threads(settings.threads)
    folder = Path(settings.run_dir)
    try:
        _run(settings, folder, rank)
    except Exception as error:
        peer = _is_lost_peer(error)
        if os.environ.get("EMBERTIDE_DEBUG") or not (peer or isinstance(error, EmbertideError)):
            traceback.print_exc()
        leave_word(folder, rank, error, peer=peer)
        if peer and settings.rank is None:
            # The launcher looks at its processes every so often. It must find the one that
            # failed, not us; then it stops us.
            time.sleep(_PEER_SECONDS)
        sys.stderr.flush()
        os._exit(error.exit_code if isinstance(error, EmbertideError) else 1)


def _go_first() -> None:
    """In a container whose memory runs out: be the one to go, so that others can tell of it."""
    # Not every container runtime knows this.
    with suppress(OSError):
        _OOM_SCORE.write_text(str(min(1000, int(_OOM_SCORE.read_text()) + 300)))


def _run(settings: WorkerSettings, folder: Path, rank: int) -> None:
    device = _device(settings.device, rank)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if settings.interface:
            os.environ.setdefault(name, settings.interface)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        timeout=timedelta(seconds=settings.timeout_seconds),
    )
    grid = Grid(settings.grid, rank)
    recorder = CountingRecorder()
    clock = Clock(MemoryWatch())
    job = EmbeddingJob.model_validate_json((folder / "job.json").read_text())
    order = WorkOrder.from_json(json.loads(_from_first(folder / "order.json", rank, device)))
    alone = settings.rank is not None  # in this folder, as in a pod
    reporter = _Reporter(folder / "progress.jsonl") if rank == 0 or alone else _ignore
    ctx = RunContext(
        job,
        Exchange(grid, device, recorder),
        open_storage(job.spec.storage),
        reporter,
        delivered_path(folder, rank).touch,
    )
    path, period = metrics_path(folder, rank), settings.metrics_seconds
    vitals = partial(look, rank, order.planned_bytes, clock, recorder)
    with telling(path, vitals, period) if period else nullcontext():
        report = run(ctx, order, recorder, clock)
    if report is not None:
        write_text(folder / "report.json", json.dumps(report.to_json()))
    dist.destroy_process_group()


def _from_first(path: Path, rank: int, device: torch.device) -> str:
    """A file of rank 0's folder, on every rank. All ranks must call."""
    told = [path.read_text() if rank == 0 else ""]
    dist.broadcast_object_list(told, src=0, device=device)
    return told[0]


def _device(name: str, rank: int) -> torch.device:
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.device_count():
        raise WorkerFailed(
            f"spec.workers.device is cuda, but worker {rank} finds no CUDA device; the container"
            " needs one (nvidia.com/gpu) and the image torch's CUDA build"
        )
    local = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(local % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def _ignore(_event: Progress) -> None:
    """Of the workers that share a folder, only rank 0 reports."""


class _Reporter:
    """Appends progress to a file, a few times a second at most."""

    def __init__(self, path: Path, period_seconds: float = 0.1) -> None:
        self._path = path
        self._period = period_seconds
        self._last = ("", 0, 0.0)

    def __call__(self, event: Progress) -> None:
        stage, layer, at = self._last
        now = time.monotonic()
        if (stage, layer) == (event.stage, event.layer) and now - at < self._period:
            return
        self._last = (event.stage, event.layer, now)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(event)) + "\n")


def _is_lost_peer(error: Exception) -> bool:
    """The error came from a connection to a worker that went away."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _PEER_WORDS)


def _show_rank(rank: int) -> None:
    """Where the system can: name the process, so that ``top`` tells the workers apart."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, f"embertide-{rank}".encode())
