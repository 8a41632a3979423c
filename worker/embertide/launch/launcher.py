"""What a run asks of the fork server: its plan, its devices, its workers.

A launcher starts the workers, notices a dead one within a fraction of a second and stops the
others. A laptop has one launcher with all workers, a cluster one in each pod with one worker each.
Either way it is a process of the fork server's, which has imported all that workers need, so they
are forked from it at once (``agent.py``).

Importing this module does not import torch; calling what it has does, so ``fork_server.call`` it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import psutil

from embertide.errors import EmbertideError, WorkerFailed
from embertide.launch.failure import Cause, Workers, first_cause
from embertide.launch.fork_server import die_with_asker
from embertide.launch.run_folder import last_stage
from embertide.launch.settings import Meeting, WorkerSettings
from embertide.planning.inputs import Inputs
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.telemetry.report import Estimate

if TYPE_CHECKING:
    from embertide.storage.protocol import Storage

NEEDED = "embertide.launch.preload"
"""What the fork server has to import."""


def plan_run(
    job: EmbeddingJob, inputs: Inputs, grid: GridShape | None, workers: int | None
) -> Estimate:
    """Choose the grid where nobody did, and estimate the run.

    Raises:
        EmbertideError: the model cannot be read, or the grid does not fit.
    """
    from embertide.planning.estimate import choose_grid, estimate
    from embertide.storage.opening import open_storage

    chosen = choose_grid(job, inputs, grid, workers)
    return estimate(open_storage(job.spec.storage), job, inputs, chosen)


def cuda_devices() -> int:
    """How many this machine has."""
    import torch

    return torch.cuda.device_count()


def check_output(storage: Storage, output_uri: str, version: str) -> None:
    """Learn before the work that the output cannot be written, not after it."""
    from embertide.spec.version_names import version_uri

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
    """Start this launcher's workers and wait for their end; returns why they failed, if so.

    It forks, so :func:`fork_server.call_alone` it.
    """
    from torch.distributed import DistError
    from torch.distributed.elastic.rendezvous.api import RendezvousError

    from embertide.launch.agent import start_waiting, supervise
    from embertide.launch.worker import main

    debug = bool(os.environ.get("EMBERTIDE_DEBUG"))
    waiting = start_waiting(
        meeting.workers_each, main, (settings,), None if debug else workers.folder
    )
    die_with_asker()
    with nullcontext() if debug else _quiet("torch.distributed", "torch.multiprocessing"):
        try:
            exits = supervise(waiting, meeting, settings.rank)
        except (RendezvousError, DistError) as error:
            said = first_cause(workers, [], last_stage(workers.folder))
            return said or _lost(workers, settings.rank or 0, error)
    return first_cause(workers, exits, last_stage(workers.folder)) if exits else None


def _lost(workers: Workers, rank: int, error: Exception) -> Cause:
    """The other launchers did not come, or one fell silent."""
    why = str(error) or "they did not come in time"
    text = f"{workers.grid.describe(rank)} lost the other workers' pods: {why}"
    return Cause(WorkerFailed(text), rank, peer=True)


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
