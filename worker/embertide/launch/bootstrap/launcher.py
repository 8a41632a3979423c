"""The launcher: starts the workers of one machine or pod, and waits for their end.

It notices a dead worker within a fraction of a second and stops the others. A laptop has one
launcher with all workers, a cluster one in each pod with one worker each. Either way it is a
process of the fork server's, which has imported all that workers need, so they are forked from it
at once (``worker_processes.py``).

Importing this module does not import torch; calling what it has does, so ``fork_server.call`` it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from embertide.errors import WorkerFailed
from embertide.launch.bootstrap.local_workers import supervise_local
from embertide.launch.bootstrap.process_tree import die_with_requester
from embertide.launch.bootstrap.worker_processes import WorkerProcess, start_workers
from embertide.launch.failure import Cause, Exit, first_cause
from embertide.launch.run_folder import RunFolder
from embertide.launch.settings import Rendezvous, WorkerSettings


def launch(settings: WorkerSettings, rendezvous: Rendezvous | None) -> Cause | None:
    """Start this launcher's workers and wait for their end; returns why they failed, if so.

    It forks, so :func:`fork_server.call_alone` it.

    Args:
        rendezvous: with the launchers of other pods, each of one worker; None: all are ours.
    """
    from embertide.launch.worker import main

    folder = RunFolder(Path(settings.run_folder))
    debug = bool(os.environ.get("EMBERTIDE_DEBUG"))
    count = settings.grid.workers if rendezvous is None else 1
    workers = start_workers(count, main, (settings,), None if debug else folder.log_path)
    die_with_requester()
    with nullcontext() if debug else _quiet("torch.distributed", "torch.multiprocessing"):
        if rendezvous is None:
            exits = supervise_local(workers)
        else:
            ended = _supervise_one(workers, settings, rendezvous, folder)
            if isinstance(ended, Cause):
                return ended
            exits = ended
    return first_cause(folder, settings.grid, exits) if exits else None


def _supervise_one(
    workers: list[WorkerProcess],
    settings: WorkerSettings,
    rendezvous: Rendezvous,
    folder: RunFolder,
) -> list[Exit] | Cause:
    """Whether our pod's worker failed; or why, where the pods did not find or lost each other."""
    from torch.distributed import DistError
    from torch.distributed.elastic.rendezvous.api import RendezvousError

    from embertide.launch.bootstrap.elastic import supervise

    try:
        return supervise(workers, rendezvous, settings.rank)
    except (RendezvousError, DistError) as error:
        return first_cause(folder, settings.grid, []) or _lost_peers(settings, error)


def _lost_peers(settings: WorkerSettings, error: Exception) -> Cause:
    """The other launchers did not join, or one stopped answering."""
    why = str(error) or "they did not join in time"
    rank = settings.rank or 0
    text = f"{settings.grid.describe(rank)} lost the other workers' pods: {why}"
    return Cause(WorkerFailed(text), rank, peer=True)


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Keep libraries' logs off stderr: we report failed workers better."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
