"""What a worker counts besides its transfers to other workers: requests to stores, rows, edges."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from embertide.plain import Plain


@dataclass
class OperationStats:
    """One operation of a store, such as ``GetObject``; fields as in :class:`TransferStats`."""

    requests: int = 0
    retries: int = 0
    errors: int = 0


@dataclass
class TransferStats(Plain):
    """Traffic with object stores, by operation; none with local files.

    ``requests`` counts all attempts, ``retries`` those after the first; ``errors`` are calls that
    failed after all attempts, other than by a missing or changed object.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    operations: dict[str, OperationStats] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """The requests of all operations."""
        return sum(counted.requests for counted in list(self.operations.values()))

    @property
    def retries(self) -> int:
        """The retries of all operations."""
        return sum(counted.retries for counted in list(self.operations.values()))

    @property
    def errors(self) -> int:
        """The errors of all operations."""
        return sum(counted.errors for counted in list(self.operations.values()))

    def of(self, operation: str) -> OperationStats:
        """What is counted for an operation."""
        return self.operations.setdefault(operation, OperationStats())

    def add(self, other: TransferStats) -> None:
        """Add another worker's traffic."""
        self.bytes_read += other.bytes_read
        self.bytes_written += other.bytes_written
        for name, counted in other.operations.items():
            mine = self.of(name)
            mine.requests += counted.requests
            mine.retries += counted.retries
            mine.errors += counted.errors

    def copy(self) -> TransferStats:
        """The counts of this moment; any thread may call."""
        operations = dict(self.operations)
        return TransferStats(
            self.bytes_read,
            self.bytes_written,
            {name: OperationStats(**vars(counted)) for name, counted in operations.items()},
        )


class Work:
    """Rows and edges that a worker has processed, by stage; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows: dict[str, int] = {}
        self.edges: dict[str, int] = {}

    def add(self, stage: str, *, rows: int = 0, edges: int = 0) -> None:
        """Count rows and edges that a stage is done with."""
        with self._lock:
            for counted, number in ((self.rows, rows), (self.edges, edges)):
                if number:
                    counted[stage] = counted.get(stage, 0) + number

    @property
    def total(self) -> int:
        """Rows and edges of all stages together."""
        return sum(list(self.rows.values())) + sum(list(self.edges.values()))
