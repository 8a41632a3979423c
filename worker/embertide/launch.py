"""What a run asks of the fork server: its plan, its devices, its workers.

``torch.distributed``'s launcher starts the workers, notices a dead one within a fraction of a
second and stops the others. A laptop has one launcher with all workers, a cluster one in each pod
with one worker each. Either way it is a process of the fork server's, which has imported all that
workers need, so they are forked from it at once.

Importing this module does not import torch; calling what it has does, so ``fork_server.call`` it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from embertide.errors import EmbertideError, WorkerFailed
from embertide.inputs import Inputs
from embertide.launch_settings import ONCE, Meeting, WorkerSettings
from embertide.postmortem import Cause, Exit, Workers, first_cause
from embertide.report import Estimate
from embertide.run_folder import last_stage
from embertide.spec.manifest import EmbeddingJob

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig

    from embertide.store.storage import Storage

NEEDED = "embertide.imports"
"""What the fork server has to import."""
_SHUTDOWN_SECONDS = 2


def plan_run(
    job: EmbeddingJob, inputs: Inputs, grid: tuple[int, int] | None, workers: int | None
) -> Estimate:
    """Choose the grid where nobody did, and estimate the run.

    Raises:
        EmbertideError: the model cannot be read, or the grid does not fit.
    """
    from embertide.stages.estimate import choose_grid, estimate
    from embertide.store.storage import open_storage

    chosen = choose_grid(job, inputs, grid, workers)
    return estimate(open_storage(job.spec.storage), job, inputs, chosen)


def cuda_devices() -> int:
    """How many this machine has."""
    import torch

    return torch.cuda.device_count()


def check_output(storage: Storage, output_uri: str, version: str) -> None:
    """Learn before the work that the output cannot be written, not after it."""
    from embertide.store.versions import version_uri

    probe = f"{version_uri(output_uri, version)}/_begun"
    storage.write(probe, b"")
    # Where objects may be made but not removed, one is left behind; it is hidden and empty.
    with suppress(EmbertideError):
        storage.delete([probe])


def interface_of(address: str) -> str:
    """The network interface that has an address, "" when none has."""
    for name, there in psutil.net_if_addrs().items():
        if any(found.address == address for found in there):
            return name
    return ""


def launch(workers: Workers, settings: WorkerSettings, meeting: Meeting) -> Cause | None:
    """Start this launcher's workers and wait for their end; returns why they failed, if so."""
    from torch.distributed import DistError
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.launcher.api import elastic_launch

    from embertide.worker import main

    debug = bool(os.environ.get("EMBERTIDE_DEBUG"))
    config = _config(meeting, _start_method(settings.device), workers.folder / "logs", debug)
    with nullcontext() if debug else _quiet("torch.distributed", "torch.multiprocessing"):
        try:
            elastic_launch(config, main)(settings)
        except ChildFailedError as failure:
            exits = _exits(failure, settings.rank)
            return first_cause(workers, exits, last_stage(workers.folder))
        except (RendezvousError, DistError) as error:
            said = first_cause(workers, [], last_stage(workers.folder))
            return said or _lost(workers, settings.rank or 0, error)
    return None


def _exits(failure: ChildFailedError, own_rank: int | None) -> list[Exit]:
    """How the failed workers ended, the first one first."""
    found = sorted(failure.failures.items(), key=lambda item: item[1].timestamp)
    return [
        Exit(rank if own_rank is None else own_rank, process.exitcode, process.local_rank)
        for rank, process in found
    ]


def _lost(workers: Workers, rank: int, error: Exception) -> Cause:
    """The other launchers did not come, or one fell silent."""
    text = f"{workers.place(rank)} lost the other workers' pods: {error}"
    return Cause(WorkerFailed(text), rank, peer=True)


def _start_method(device: str) -> str:
    """Fork, where that is sound; else by a fork server of the launcher's own.

    torch's launcher looks for CUDA devices, and a process forked after that cannot use them.
    Systems other than Linux do not like being forked.
    """
    if device == "cpu" and sys.platform == "linux":
        return "fork"
    multiprocessing.set_forkserver_preload([NEEDED])
    return "forkserver"


def _config(meeting: Meeting, start_method: str, logs: Path, debug: bool) -> LaunchConfig:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig

    if meeting.backend == ONCE:
        from embertide.rendezvous import register

        register()
    return LaunchConfig(
        min_nodes=meeting.launchers,
        max_nodes=meeting.launchers,
        nproc_per_node=meeting.workers_each,
        rdzv_backend=meeting.backend,
        rdzv_endpoint=meeting.endpoint,
        rdzv_configs=dict(meeting.options),
        run_id=meeting.run_id,
        max_restarts=0,
        monitor_interval=meeting.poll_seconds,
        start_method=start_method,
        local_addr=meeting.address,
        # What libraries print as their peers vanish is no message for users.
        logs_specs=DefaultLogsSpecs(str(logs), redirects=Std.NONE if debug else Std.ALL),
        # Whoever called us listens for signals.
        signals_to_handle="",
        # Workers end at SIGTERM at once, unless something has stopped them.
        shutdown_timeout=_SHUTDOWN_SECONDS,
    )


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
