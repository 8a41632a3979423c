"""One worker process: join the process group, run the pipeline, report what went wrong.

What a worker gets and what it reports goes through its run folder (``run_folder.py``). In pods
each rank has a folder of its own, so only rank 0's holds the order; it broadcasts it.
Importing this module imports all that a worker needs, so that a fork server can do it once.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time
import traceback
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from embertide.context import RunContext
from embertide.engine.pipeline import run
from embertide.engine.planning.order import WorkOrder
from embertide.errors import EmbertideError, WorkerFailed
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.container import working_set_bytes
from embertide.facts.telemetry.memory import MemoryWatch, count_shared
from embertide.facts.telemetry.progress import OnProgress, Progress
from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.facts.telemetry.snapshot import Snapshot
from embertide.facts.telemetry.transfers import Work
from embertide.graph.exchange import Exchange
from embertide.graph.objects import broadcast_object
from embertide.grid import Grid
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.kernels.host_store import HostStore
from embertide.kernels.lanes import lanes_of
from embertide.kernels.scratch import Scratch
from embertide.kernels.store import Store
from embertide.kernels.threads import set_threads, work_done
from embertide.launch.pulse import PERIOD_SECONDS, Counts, Pulse
from embertide.launch.run_folder import RunFolder, repeating
from embertide.launch.scratch import allow_files, make_folder
from embertide.launch.settings import WorkerSettings
from embertide.launch.stage_reporter import StageReporter
from embertide.spec import naming
from embertide.spec.manifest import EmbeddingJob

_PR_SET_NAME = 15
_LOST_PEER = re.compile(
    r"(\[\S*gloo/transport/\S+\] )?"
    r"(Connection closed by peer \[|Socket closed \[|Read error \[|Read timeout \[|Write timeout \["
    r"|writev \[|Timed out waiting \d+ms for |Application timeout caused pair closure"
    r"|Gloo connectFullMesh failed with )"
)
"""What gloo's TCP transport says, in a plain RuntimeError, when another worker is gone."""
_PEER_SECONDS = 5.0
_OOM_SCORE = Path("/proc/self/oom_score_adj")


def main(settings: WorkerSettings) -> None:
    """Run one rank; its number and the rendezvous' address come from the environment.

    Exits with the error's exit code when the run fails.
    """
    if settings.rank is not None:
        # Launchers are numbered as they join. All ranks connect to the rendezvous as clients of
        # a launcher's store, so any numbering will do.
        os.environ["RANK"] = str(settings.rank)
        _go_first()
    rank = int(os.environ["RANK"])
    _show_rank(rank)
    torch.set_num_threads(settings.threads)
    set_threads(settings.threads)
    if settings.prefaulted is not None and (file := settings.prefaulted.take(rank)) is not None:
        count_shared(file)
    folder = RunFolder(Path(settings.run_folder))
    try:
        _run(settings, folder, rank)
    except Exception as raised:
        error = _explained(raised, rank)
        peer = is_lost_peer(error)
        if os.environ.get("EMBERTIDE_DEBUG") or not (peer or isinstance(error, EmbertideError)):
            traceback.print_exc()
        folder.write_error(rank, error, peer=peer)
        if peer and settings.rank is None:
            # The launcher looks at its processes every so often. It must find the one that
            # failed, not us; then it stops us.
            time.sleep(_PEER_SECONDS)
        sys.stderr.flush()
        os._exit(error.exit_code if isinstance(error, EmbertideError) else 1)


def _explained(error: Exception, rank: int) -> Exception:
    """The error itself, or what to do about a GPU that is full."""
    if not isinstance(error, torch.OutOfMemoryError):
        return error
    return WorkerFailed(
        f"worker {rank}: its GPU has no memory left ({str(error).splitlines()[0]}); give workers a"
        " smaller --gpu-memory (spec.workers.deviceMemory), by which the plan keeps tensors in host"
        " memory, or use more workers"
    )


def _go_first() -> None:
    """In a container whose memory runs out: be the one to go, so that others can tell of it."""
    # Not every container runtime knows this.
    with suppress(OSError):
        _OOM_SCORE.write_text(str(min(1000, int(_OOM_SCORE.read_text()) + 300)))


def _store(job: EmbeddingJob, folder: RunFolder, rank: int, device: torch.device) -> Store:
    """Where tensors of nodes are that don't fit where layers are computed."""
    if device.type == "cuda":
        return HostStore(lanes_of(device))
    allow_files()
    scratch = make_folder(job)
    folder.note_scratch(rank, scratch)
    return Scratch(scratch)


def _run(settings: WorkerSettings, folder: RunFolder, rank: int) -> None:
    device = _device(settings.device, rank)
    alone = settings.grid.workers == 1
    if not alone:
        _join(settings, device)
    job = folder.read_job()
    written: Any = folder.read_order() if rank == 0 else None
    order = WorkOrder.from_json(written if alone else broadcast_object(written, rank))
    _limit(job, device)
    on_progress = StageReporter(_reporter(settings, folder, rank), "plan")
    storage, recorder, work = (
        open_storage(job.spec.storage, on_progress.waits, folder.note_upload),
        CountingRecorder(),
        Work(),
    )
    pulse = Pulse(on_progress, partial(_counts, recorder, work, storage))
    container = working_set_bytes if naming.ENV_IN_POD in os.environ else None
    clock = Clock(MemoryWatch(container=container), pulse, recorder)
    ctx = RunContext(
        job,
        Exchange(Grid(settings.grid, rank), device, recorder, settings.timeout_seconds),
        storage,
        pulse,
        partial(folder.mark_delivered, rank),
        settings.threads,
        work,
        ahead=pulse.ahead,
        scratch=_store(job, folder, rank, device) if order.panel else None,
        panel=order.panel,
        parts_bytes=order.parts_bytes,
        spills_graph=order.spills_graph,
    )
    take, period = partial(_snapshot, ctx, order, clock, recorder), settings.snapshot_seconds
    nothing = nullcontext(lambda: None)
    with (
        folder.writing_snapshots(rank, take, period) if period else nothing as write,
        repeating(pulse.beat, PERIOD_SECONDS) if _tells(settings, rank) else nullcontext(),
    ):
        clock.on_stage = write
        report = run(ctx, order, recorder, clock)
    if report is not None:
        folder.write_report(report)
    if not alone:
        dist.destroy_process_group()


def _join(settings: WorkerSettings, device: torch.device) -> None:
    """Join the process group. Collective: every rank must call."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if settings.interface:
            os.environ.setdefault(name, settings.interface)
    timeout = timedelta(seconds=settings.timeout_seconds)
    dist.init_process_group(backend(device), timeout=timeout)


def backend(device: torch.device) -> str:
    """What carries tensors: NCCL those on GPUs, gloo all that are in the host's memory.

    Ids, edges, counts and small objects are made and read there; over NCCL each would be copied to
    the GPU and back, and wait for all that the GPU has to do.
    """
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def _counts(recorder: CountingRecorder, work: Work, storage: Storage) -> Counts:
    """What this worker has done so far, in whatever unit."""
    tasks, entries = work_done()
    stored = storage.stats.bytes_read + storage.stats.bytes_written
    # The kernels count edges task by task; on torch they are counted by groups.
    return Counts(recorder.steps + tasks + work.total + stored, entries or recorder.edges)


def _snapshot(
    ctx: RunContext, order: WorkOrder, clock: Clock, recorder: CountingRecorder
) -> Snapshot:
    return clock.snapshot(
        ctx.grid.rank,
        order.planned_bytes,
        ctx.graph_facts,
        recorder,
        order.planned_traffic,
        ctx.work,
        ctx.storage.stats,
    )


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


def _limit(job: EmbeddingJob, device: torch.device) -> None:
    """Let torch take no more of a GPU than the job says."""
    most = job.spec.workers.device_memory_bytes
    if device.type == "cuda" and most is not None:
        _, total = torch.cuda.mem_get_info(device)
        torch.cuda.set_per_process_memory_fraction(min(1.0, most / total), device)


def _tells(settings: WorkerSettings, rank: int) -> bool:
    """Whether this worker reports: of those that share a folder, rank 0; in a pod, each."""
    return rank == 0 or settings.rank is not None


def _reporter(settings: WorkerSettings, folder: RunFolder, rank: int) -> OnProgress:
    return _Reporter(folder) if _tells(settings, rank) else lambda _event: None


class _Reporter:
    """Appends progress to the run folder, a few times a second at most."""

    def __init__(self, folder: RunFolder, period_seconds: float = PERIOD_SECONDS) -> None:
        self._folder = folder
        self._period = period_seconds
        self._last = ("", 0, "", 0.0)

    def __call__(self, event: Progress) -> None:
        *place, at = self._last
        now = time.monotonic()
        if place == [event.stage, event.layer, event.message] and now - at < self._period:
            return
        self._last = (event.stage, event.layer, event.message, now)
        self._folder.append_progress(event)


def is_lost_peer(error: Exception) -> bool:
    """Whether the error came from a connection to a worker that is gone."""
    if isinstance(error, dist.DistError):
        return True
    return type(error) is RuntimeError and _LOST_PEER.match(str(error)) is not None


def _show_rank(rank: int) -> None:
    """Where the system can: name the process, so that ``top`` tells the workers apart."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, f"embertide-{rank}".encode())
