"""Workers that are forked before their launcher has threads, and wait for their place.

A process that is forked while other threads run inherits the locks that they hold at that moment,
and those are never released: a worker that needs one, such as the name resolver's, deadlocks.
What assigns ranks and addresses, be it torch's rendezvous or a store of our own, has threads. So
the workers exist before it: they are forked while nothing else runs, and wait for what it assigns.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from embertide.launch.bootstrap.process_tree import die_with_requester

_STOP_SECONDS = 2.0
"""Workers end at SIGTERM at once, unless something has stopped them."""

LogPath = Callable[[int], Path] | None


@dataclass(frozen=True)
class WorkerProcess:
    """A worker process that waits for its assignment: the rank and address, as environment."""

    process: BaseProcess
    assignment: Connection


def start_workers(
    count: int, main: Callable[..., None], args: tuple[Any, ...], log_path: LogPath
) -> list[WorkerProcess]:
    """Start ``count`` workers, which will call ``main(*args)`` with their assignment.

    Args:
        log_path: where local worker i writes what libraries print, since what those say as peers
            disappear is no message for users; None: to our own stdout and stderr.

    Raises:
        RuntimeError: this process has threads.
    """
    if threading.active_count() > 1:
        raise RuntimeError("workers are started before the launcher has threads")
    context = _context(main)
    started: list[WorkerProcess] = []
    for number in range(count):
        theirs, ours = context.Pipe(duplex=False)
        output = log_path(number) if log_path else None
        arguments = (theirs, output, main, args)
        process = context.Process(target=_wait_and_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        started.append(WorkerProcess(process, ours))
    return started


def _context(main: Callable[..., None]) -> ForkContext | ForkServerContext:
    """fork on Linux only: other systems' libraries do not survive it."""
    if sys.platform == "linux":
        return multiprocessing.get_context("fork")
    multiprocessing.set_forkserver_preload([main.__module__])
    return multiprocessing.get_context("forkserver")


def _wait_and_work(
    assignment: Connection, output: Path | None, main: Callable[..., None], args: tuple[Any, ...]
) -> None:
    die_with_requester()
    if output is not None:
        _redirect_output(output)
    # For a native crash: where in our code it was.
    faulthandler.enable(all_threads=False)
    os.environ.update(assignment.recv())
    main(*args)


def _redirect_output(path: Path) -> None:
    """Send what we and native libraries print to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    with path.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


def stop_workers(workers: list[WorkerProcess]) -> None:
    """Leave no worker."""
    processes = [worker.process for worker in workers]
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _STOP_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join(_STOP_SECONDS)
