"""How the pods of an attempt find each other: through rank 0, in whatever order they start.

A pod may run long before the others: they wait for room on the nodes, for images, for names
to appear in DNS. So every pod waits, first for rank 0's name, then for its port, then inside
torch's rendezvous for the last one to join.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from embertide.errors import WorkerFailed
from embertide.launch.failure import Cause
from embertide.launch.settings import ONCE, Rendezvous
from embertide.pod.endings import AttemptFailed
from embertide.pod.settings import WorkSettings

_PAUSE_SECONDS = 0.3
_ANSWER_SECONDS = 5.0
_STORE_SECONDS = 30


def find_rank_0(settings: WorkSettings, check: Callable[[], None]) -> str:
    """Wait until rank 0 can be reached; returns our own address as the others see it.

    Args:
        check: called over and over; ends the waiting by an exception.

    Raises:
        AttemptFailed: nothing was found for ``settings.join_seconds``.
    """
    host, port = settings.rendezvous
    deadline = time.monotonic() + settings.join_seconds
    problem: OSError | None = None
    while time.monotonic() < deadline:
        check()
        try:
            address = _own_address(host, port)
            if settings.rank > 0:
                socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
        except OSError as error:
            problem = error
            time.sleep(_PAUSE_SECONDS)
        else:
            return address
    lost = WorkerFailed(
        f"{settings.description} could not reach worker 0 at {host}:{port} for"
        f" {settings.join_seconds} seconds: {problem}"
    )
    raise AttemptFailed(Cause(lost, settings.rank, peer=True))


def _own_address(host: str, port: int) -> str:
    """The address we have on the way to a host; nothing is sent."""
    problem = OSError(f"{host} has no address")
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        with socket.socket(family, kind) as probe:
            try:
                probe.connect(address)
            except OSError as error:
                problem = error
                continue
            return str(probe.getsockname()[0])
    raise problem


def rendezvous_of(settings: WorkSettings, address: str) -> Rendezvous:
    """One launcher a pod; rank 0's hosts the rendezvous."""
    host, port = settings.rendezvous
    return Rendezvous(
        run_id=f"{settings.job_uid}-{settings.attempt}",
        launchers=settings.grid.workers,
        endpoint=f"{host}:{port}",
        address=address,
        options={
            "rank": settings.rank,
            "is_host": settings.rank == 0,
            "read_timeout": _STORE_SECONDS,
            "join_seconds": settings.join_seconds,
            "heartbeat_seconds": settings.heartbeat_seconds,
        },
        backend=ONCE,
        poll_seconds=0.5,
    )
