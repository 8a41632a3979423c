"""Starting workers through torch's launcher, and finding out why they ended.

A fork server imports torch and the pipeline once; ``torch.distributed``'s launcher starts the
workers from it, notices a dead one within a fraction of a second and stops the others. A laptop
has one launcher with all workers, a cluster one in each pod with one worker each.
"""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from embertide.errors import EmbertideError, OutputError
from embertide.postmortem import Cause, Exit, Workers, first_cause
from embertide.run_folder import last_stage

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

    from embertide.store.storage import Storage
    from embertide.worker import WorkerSettings

_SHUTDOWN_SECONDS = 2


@dataclass(frozen=True)
class Meeting:
    """How the launchers of one run find each other.

    Attributes:
        endpoint: host:port of the launcher that hosts the meeting.
        address: where the other launchers reach us; None: the machine's own name.
        backend: of torch's rendezvous.
        options: for the backend.
    """

    run_id: str
    launchers: int = 1
    workers_each: int = 1
    endpoint: str = "localhost:0"
    address: str | None = None
    backend: str = "c10d"
    options: dict[str, Any] = field(default_factory=dict)
    poll_seconds: float = 0.1


@contextmanager
def fork_server(*modules: str) -> Iterator[None]:
    """Start the fork server, which imports ``modules``; after an error, end it at once.

    It would end by itself, but not before it is done importing, and it holds our stderr.
    """
    me = psutil.Process()
    multiprocessing.set_forkserver_preload(list(modules))
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
    """Start this launcher's workers and wait for their end; returns why they failed, if so.

    Raises:
        torch's RendezvousError: the other launchers did not come, or one was lost.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    from embertide.worker import main

    debug = bool(os.environ.get("EMBERTIDE_DEBUG"))
    config = _config(meeting, workers.folder / "logs", debug)
    with nullcontext() if debug else _quiet("torch.distributed", "torch.multiprocessing"):
        try:
            elastic_launch(config, main)(settings)
        except ChildFailedError as failure:
            found = sorted(failure.failures.items(), key=lambda item: item[1].timestamp)
            exits = [
                Exit(
                    rank if settings.rank is None else settings.rank,
                    process.exitcode,
                    process.local_rank,
                )
                for rank, process in found
            ]
            return first_cause(workers, exits, last_stage(workers.folder))
    return None


def _config(meeting: Meeting, logs: Path, debug: bool) -> LaunchConfig:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig

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
        start_method="forkserver",
        local_addr=meeting.address,
        # What libraries print as their peers vanish is no message for users.
        logs_specs=DefaultLogsSpecs(str(logs), redirects=Std.NONE if debug else Std.ALL),
        # Signals are ours already.
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
