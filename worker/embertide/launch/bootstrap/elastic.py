"""torch's elastic agent and rendezvous, where each pod has a launcher of its own.

torch's own agent starts workers after the rendezvous; ours exist before it
(``worker_processes.py``).

The rendezvous of an attempt takes place once. torch's own starts the workers over when a launcher
is lost and another one joins; an attempt ends then, because the next one has a version and pods of
its own. And torch's launchers ignore it when one of them stops answering, as when its node is
lost: connections to it stay open, so the workers would wait for half an hour. Missed heartbeats
tell sooner.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import timedelta
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
from torch.distributed.elastic.rendezvous.api import RendezvousError, rendezvous_handler_registry
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
    _NodeDesc,
    _NodeDescGenerator,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from embertide.launch.bootstrap.rendezvous_state import JsonBackend
from embertide.launch.bootstrap.worker_processes import WorkerProcess, stop_workers
from embertide.launch.failure import Exit
from embertide.launch.settings import ONCE, Rendezvous

MISSED_HEARTBEATS = 6
"""After so many in a row a launcher counts as lost."""
_CLOSE_SECONDS = 5


def supervise(
    workers: list[WorkerProcess], rendezvous: Rendezvous, own_rank: int | None = None
) -> list[Exit]:
    """Join the other launchers, assign our workers their ranks, and wait until all have ended.

    Args:
        own_rank: of the one worker that we have, where the rendezvous does not number it.

    Returns:
        The workers that failed. The others were stopped then.

    Raises:
        RendezvousError, DistError: the other launchers did not join in time, or one was lost.
    """
    rendezvous_handler_registry.register(ONCE, _create_once)
    handler = get_rendezvous_handler(
        RendezvousParameters(
            rendezvous.backend,
            rendezvous.endpoint,
            rendezvous.run_id,
            min_nodes=rendezvous.launchers,
            max_nodes=rendezvous.launchers,
            local_addr=rendezvous.address,
            **rendezvous.options,
        )
    )
    spec = WorkerSpec(
        role="embertide",
        local_world_size=len(workers),
        rdzv_handler=handler,
        entrypoint="embertide.launch.worker",
        max_restarts=0,
        monitor_interval=rendezvous.poll_seconds,
        local_addr=rendezvous.address,
    )
    try:
        result = _Agent(spec, workers).run()
    finally:
        handler.shutdown()
    if result is None:
        # torch's agent returns nothing when it was on the waiting list of a full rendezvous.
        raise RendezvousClosedError("they had started without it, and ended")
    return [
        Exit(rank if own_rank is None else own_rank, failure.exitcode, failure.local_rank)
        for rank, failure in result.failures.items()
    ]


class _Agent(SimpleElasticAgent):
    """Assigns waiting workers their ranks, monitors them, and stops all when one fails."""

    def __init__(self, spec: WorkerSpec, workers: list[WorkerProcess]) -> None:
        super().__init__(spec)
        self._workers = workers

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        for number, worker in enumerate(self._workers):
            # One that has died is found by monitoring.
            with suppress(OSError):
                worker.assignment.send(_environment(worker_group, number))
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
        stop_workers(self._workers)


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


class LauncherLost(RendezvousError):
    """A launcher stopped answering, or was replaced by another one."""


class _OnceHandler(DynamicRendezvousHandler):
    """torch's handler, but for what it makes of lost launchers."""

    def get_backend(self) -> str:
        """The name it is asked for by."""
        return ONCE

    def num_nodes_waiting(self) -> int:
        """Zero; torch's agent asks while its workers run.

        Raises:
            LauncherLost: where torch would start over, or wait.
        """
        waiting = super().num_nodes_waiting()
        # A launcher has its worker's rank as the number of its node; see _OfRank.
        present = {node.local_id for node in self._state_holder.state.participants}
        missing = [str(rank) for rank in range(self.settings.max_nodes) if rank not in present]
        if missing:
            who = f"worker{'s' * (len(missing) > 1)} {', '.join(missing)}"
            raise LauncherLost(f"{who} of {self.settings.max_nodes} stopped answering")
        if waiting:
            raise LauncherLost("another pod joined in the place of one")
        return 0


class _OfRank(_NodeDescGenerator):
    """Names a launcher's node by its worker's rank, where torch counts the nodes of a process."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._rank = rank

    def generate(self, local_addr: str | None = None) -> _NodeDesc:
        """The description of our node."""
        return _NodeDesc(local_addr or socket.getfqdn(), os.getpid(), self._rank)


def _create_once(params: RendezvousParameters) -> DynamicRendezvousHandler:
    backend, store = create_backend(params)

    class OfThisRank(_OnceHandler):
        _node_desc_generator = _OfRank(params.get("rank"))

    handler: DynamicRendezvousHandler = OfThisRank.from_backend(
        params.run_id,
        store,
        JsonBackend(backend),
        params.min_nodes,
        params.max_nodes,
        params.local_addr,
        RendezvousTimeout(
            join=timedelta(seconds=params.get("join_seconds")),
            close=timedelta(seconds=_CLOSE_SECONDS),
        ),
        keep_alive_interval=params.get("heartbeat_seconds"),
        keep_alive_max_attempt=MISSED_HEARTBEATS,
    )
    return handler
