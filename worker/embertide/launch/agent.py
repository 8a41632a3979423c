"""torch's elastic agent, whose workers were forked before it came.

A process that is forked while other threads run inherits the locks that they hold just then, and
nobody ever opens those: a worker that needs one, such as the name resolver's, stands still for
ever. The rendezvous has threads. So the workers are there before it: they are forked while
nothing else runs, and wait to be told the place that the rendezvous gives them.

torch's own agent starts workers after the rendezvous.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.multiprocessing import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from embertide.launch.failure import Exit, log_path
from embertide.launch.fork_server import die_with_asker
from embertide.launch.rendezvous import register
from embertide.launch.settings import ONCE, Meeting

_STOP_SECONDS = 2.0
"""Workers end at SIGTERM at once, unless something has stopped them."""


@dataclass(frozen=True)
class Waiting:
    """A worker process that waits to be told its place."""

    process: BaseProcess
    place: Connection


def start_waiting(
    count: int, main: Callable[..., None], args: tuple[Any, ...], folder: Path | None
) -> list[Waiting]:
    """Start ``count`` workers, which will call ``main(*args)`` with their place as environment.

    Args:
        folder: where they write what libraries print, since what those say as peers vanish is no
            message for users; None: to our own stdout and stderr.

    Raises:
        RuntimeError: this process has threads.
    """
    if threading.active_count() > 1:
        raise RuntimeError("workers are started before the launcher has threads")
    context = _context(main)
    started: list[Waiting] = []
    for number in range(count):
        theirs, ours = context.Pipe(duplex=False)
        output = log_path(folder, number) if folder else None
        arguments = (theirs, output, main, args)
        process = context.Process(target=_wait_and_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        started.append(Waiting(process, ours))
    return started


def _context(main: Callable[..., None]) -> ForkContext | ForkServerContext:
    """Systems other than Linux do not like being forked."""
    if sys.platform == "linux":
        return multiprocessing.get_context("fork")
    multiprocessing.set_forkserver_preload([main.__module__])
    return multiprocessing.get_context("forkserver")


def _wait_and_work(
    place: Connection, output: Path | None, main: Callable[..., None], args: tuple[Any, ...]
) -> None:
    die_with_asker()
    if output is not None:
        _write_to(output)
    # For a native crash: where in our code it was.
    faulthandler.enable(all_threads=False)
    os.environ.update(place.recv())
    main(*args)


def _write_to(path: Path) -> None:
    """Send what we and native libraries print to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    with path.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


def supervise(waiting: list[Waiting], meeting: Meeting, own_rank: int | None) -> list[Exit]:
    """Meet the other launchers, tell our workers their places, and see them to their end.

    Args:
        own_rank: of the one worker that we have, where the rendezvous does not number it.

    Returns:
        The workers that failed. The others were stopped then.

    Raises:
        RendezvousError, DistError: the other launchers did not come, or one was lost.
    """
    if meeting.backend == ONCE:
        register()
    parameters = RendezvousParameters(
        meeting.backend,
        meeting.endpoint,
        meeting.run_id,
        min_nodes=meeting.launchers,
        max_nodes=meeting.launchers,
        local_addr=meeting.address,
        **meeting.options,
    )
    handler = get_rendezvous_handler(parameters)
    spec = WorkerSpec(
        role="embertide",
        local_world_size=len(waiting),
        rdzv_handler=handler,
        entrypoint="embertide.launch.worker",
        max_restarts=0,
        monitor_interval=meeting.poll_seconds,
        local_addr=meeting.address,
    )
    try:
        result = _Agent(spec, waiting).run()
    finally:
        handler.shutdown()
    if result is None:
        # The agent's way to say that it stood in line for a place.
        raise RendezvousClosedError("they had begun without it, and ended")
    return [
        Exit(rank if own_rank is None else own_rank, failure.exitcode, failure.local_rank)
        for rank, failure in result.failures.items()
    ]


class _Agent(SimpleElasticAgent):
    """Tells waiting workers their places, watches them, and stops all when one fails."""

    def __init__(self, spec: WorkerSpec, workers: list[Waiting]) -> None:
        super().__init__(spec)
        self._workers = workers

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        for number, worker in enumerate(self._workers):
            # One that died meanwhile is found by looking at it.
            with suppress(OSError):
                worker.place.send(_environment(worker_group, number))
        return {number: worker.process.pid for number, worker in enumerate(self._workers)}

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        codes = [worker.process.exitcode for worker in self._workers]
        ranks = [worker.global_rank for worker in worker_group.workers]
        failures = {
            rank: ProcessFailure(number, self._workers[number].process.pid or 0, code, "")
            for number, (rank, code) in enumerate(zip(ranks, codes, strict=True))
            if code
        }
        if failures:
            return RunResult(WorkerState.FAILED, failures=failures)
        if None in codes:
            return RunResult(WorkerState.HEALTHY)
        return RunResult(WorkerState.SUCCEEDED, return_values=dict.fromkeys(ranks))

    def _stop_workers(self, worker_group: WorkerGroup) -> None:  # noqa: ARG002  # all there are
        self._shutdown()

    def _shutdown(self, *_signal: object, **_patience: object) -> None:
        """Leave no worker; we know better than the agent how, and how long it takes."""
        processes = [worker.process for worker in self._workers]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join(_STOP_SECONDS)


def _environment(group: WorkerGroup, number: int) -> dict[str, str]:
    """What ``torch.distributed.init_process_group`` reads, as torchrun sets it."""
    worker = group.workers[number]
    handler = group.spec.rdzv_handler
    return {
        "RANK": str(worker.global_rank),
        "WORLD_SIZE": str(worker.world_size),
        "LOCAL_RANK": str(worker.local_rank),
        "MASTER_ADDR": str(group.master_addr),
        "MASTER_PORT": str(group.master_port),
        "TORCHELASTIC_RUN_ID": handler.get_run_id(),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": str(handler.use_agent_store),
    }
