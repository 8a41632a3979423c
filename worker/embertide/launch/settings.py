"""What launchers and workers get as they start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from embertide.kernels.prefault import Prefaulted
from embertide.spec.grid import GridShape

ONCE = "embertide-once"
"""The rendezvous backend of ``bootstrap/elastic.py``."""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How the workers of one run are set up.

    Attributes:
        run_folder: path of the folder through which launcher and workers talk.
        threads: compute threads of each worker.
        device: ``cpu`` or ``cuda``.
        interface: the network interface that workers talk over, "" for the library's choice.
        prefaulted: memory that is ready for workers on this machine.
        rank: ours, where each worker has a launcher of its own, as in a pod; else the launcher
            numbers its workers.
        snapshot_seconds: how often to write a snapshot of our metrics; 0: never.
        timeout_seconds: how long to wait for another worker that does not answer.
    """

    run_folder: str
    grid: GridShape
    threads: int
    device: str
    interface: str
    prefaulted: Prefaulted | None = None
    rank: int | None = None
    snapshot_seconds: float = 0.0
    timeout_seconds: float = 1800.0


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """How the launchers of one run find each other.

    Attributes:
        launchers: how many there are.
        endpoint: host:port of the launcher that hosts the rendezvous.
        address: where the other launchers reach us; None: the machine's own name.
        backend: of torch's rendezvous.
        options: for the backend.
        poll_seconds: how often a launcher looks at its workers.
    """

    run_id: str
    launchers: int = 1
    endpoint: str = "localhost:0"
    address: str | None = None
    backend: str = "c10d"
    options: dict[str, Any] = field(default_factory=dict)
    poll_seconds: float = 0.1
