"""Workers of one machine: their numbers are their ranks, and their launcher is where they meet.

No rendezvous is needed, which takes torch a third of a second: no other process can join.
"""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from embertide.launch.bootstrap.worker_processes import WorkerProcess, stop_workers
from embertide.launch.failure import Exit

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

LOCALHOST = "127.0.0.1"


def supervise_local(workers: list[WorkerProcess]) -> list[Exit]:
    """Assign the workers their ranks, and wait until all have ended.

    Returns:
        The workers that failed. The others were stopped then.
    """
    store = _store() if len(workers) > 1 else None
    for number, worker in enumerate(workers):
        # One that has died is found below.
        with suppress(OSError):
            worker.assignment.send(_environment(number, len(workers), store))
    try:
        return _failures(workers)
    finally:
        stop_workers(workers)


def _store() -> TCPStore:
    """Where the workers learn each other's addresses, on a free port."""
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(LOCALHOST, 0, is_master=True, wait_for_workers=False)


def _environment(number: int, count: int, store: TCPStore | None) -> dict[str, str]:
    """What ``torch.distributed.init_process_group`` reads, as torchrun sets it."""
    return {
        "RANK": str(number),
        "WORLD_SIZE": str(count),
        "LOCAL_RANK": str(number),
        "MASTER_ADDR": LOCALHOST,
        "MASTER_PORT": str(store.port if store else 0),
        "TORCHELASTIC_USE_AGENT_STORE": str(store is not None),
    }


def _failures(workers: list[WorkerProcess]) -> list[Exit]:
    """Those that had failed when the first one was found to have; none once all ended well."""
    living = [worker.process for worker in workers]
    while living:
        ready = set(wait([process.sentinel for process in living]))
        for process in living:
            if process.sentinel in ready:
                # It closes its end of the sentinel a moment before the system has its code.
                process.join()
        living = [process for process in living if process.sentinel not in ready]
        codes = [worker.process.exitcode for worker in workers]
        failed = [Exit(number, code, number) for number, code in enumerate(codes) if code]
        if failed:
            return failed
    return []
