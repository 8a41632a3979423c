"""What launchers and workers are told as they start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from embertide.spec.grid import GridShape

ONCE = "embertide-once"
"""The backend of ``rendezvous.py``."""


@dataclass(frozen=True)
class WorkerSettings:
    """How the workers of one run are set up.

    Attributes:
        interface: the network interface that workers talk over.
        rank: ours, where each worker has a launcher of its own, as in a pod; else the launcher
            numbers its workers.
        metrics_seconds: how often to write down how we are doing; 0: never.
        timeout_seconds: how long to wait for another worker that does not answer.
    """

    run_dir: str
    grid: GridShape
    threads: int
    device: str
    interface: str
    rank: int | None = None
    metrics_seconds: float = 0.0
    timeout_seconds: float = 1800.0


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
