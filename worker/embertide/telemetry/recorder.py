"""Counting what moves: a recorder passed in from outside, doing nothing by default.

Communication groups are first-class: bytes, messages and seconds are kept per axis,
primitive, layer and group, so that tests can hold them to closed formulas.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Protocol

from embertide.telemetry.report import Traffic


@dataclass(frozen=True)
class Label:
    """What a transfer is for. ``layer`` is -1 before the first layer; ``group`` counts from 0."""

    axis: str
    primitive: str
    layer: int = -1
    group: int = 0


class Recorder(Protocol):
    """Receives every transfer and wait of one worker."""

    def sent(self, label: Label, size: int) -> None:
        """One message of ``size`` bytes left."""

    def received(self, label: Label, size: int) -> None:
        """One message of ``size`` bytes arrived."""

    def waited(self, label: Label, seconds: float) -> None:
        """The worker stood still for data."""

    def computed(self, label: Label, seconds: float) -> None:
        """The worker computed while data of the same primitive travelled."""


class NullRecorder:
    """Discards every transfer, for tests and tools that need no counts."""

    def sent(self, label: Label, size: int) -> None:
        """Discard it."""

    def received(self, label: Label, size: int) -> None:
        """Discard it."""

    def waited(self, label: Label, seconds: float) -> None:
        """Discard it."""

    def computed(self, label: Label, seconds: float) -> None:
        """Discard it."""


@dataclass
class Totals:
    """Totals of one label on one worker."""

    bytes_sent: int = 0
    bytes_received: int = 0
    messages: int = 0
    wait_seconds: float = 0.0
    compute_seconds: float = 0.0

    def add(self, other: Totals) -> None:
        """Add another worker's totals."""
        self.bytes_sent += other.bytes_sent
        self.bytes_received += other.bytes_received
        self.messages += other.messages
        self.wait_seconds += other.wait_seconds
        self.compute_seconds += other.compute_seconds


class CountingRecorder:
    """Keeps totals per label in memory. ``messages`` counts messages sent."""

    def __init__(self) -> None:
        self.totals: dict[Label, Totals] = {}

    def at(self, label: Label) -> Totals:
        """A label's totals."""
        return self.totals.setdefault(label, Totals())

    def sent(self, label: Label, size: int) -> None:
        """Count one message out."""
        entry = self.at(label)
        entry.bytes_sent += size
        entry.messages += 1

    def received(self, label: Label, size: int) -> None:
        """Count one message in."""
        self.at(label).bytes_received += size

    def waited(self, label: Label, seconds: float) -> None:
        """Add seconds spent blocked on peers."""
        self.at(label).wait_seconds += seconds

    def computed(self, label: Label, seconds: float) -> None:
        """Add seconds computed while data travelled."""
        self.at(label).compute_seconds += seconds

    def traffic(self) -> list[Traffic]:
        """All totals, in a stable order."""
        keys = sorted(self.totals, key=lambda k: (k.axis, k.primitive, k.layer, k.group))
        return [Traffic(**asdict(key), **asdict(self.totals[key])) for key in keys]


@contextmanager
def computing(recorder: Recorder, label: Label) -> Iterator[None]:
    """Count the body as computing beside the label's transfers."""
    start = time.perf_counter()
    yield
    recorder.computed(label, time.perf_counter() - start)
