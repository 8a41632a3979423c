"""Counting what moves: a recorder passed in from outside, doing nothing by default.

Bytes, messages and seconds are kept per axis, primitive and layer. Groups, of which a large graph
has thousands, are counted as they come: how many, the largest, and how long each was waited for.
Labels name a transfer's group too, so that a recorder of a test can hold each to its formula.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from embertide.facts.telemetry.report import WAIT_BUCKETS, Traffic

MOST_RELATIONS = 32
"""Relations that have labels of their own."""
OTHER, SEVERAL = "other", "several"
"""The label of all other relations, and of rows that travel once for several."""

Key = tuple[str, str, int, str]
"""Axis, primitive, layer and relation."""


@dataclass(frozen=True)
class Label:
    """What a transfer is for. ``layer`` is -1 before the first layer; ``group`` counts from 0.

    ``relation`` is "" for what belongs to none, or in a graph that has one; see
    :class:`RelationLabels`.
    """

    axis: str
    primitive: str
    layer: int = -1
    group: int = 0
    relation: str = ""

    @property
    def key(self) -> Key:
        """Under which totals are kept."""
        return self.axis, self.primitive, self.layer, self.relation


class RelationLabels:
    """What relations are called in labels: a bounded number of names, however many there are.

    The first ``MOST_RELATIONS`` that are asked for have their own; the rest are ``OTHER``.
    """

    def __init__(self) -> None:
        self._named: set[str] = set()

    def of(self, *relations: str) -> str:
        """The label of what travels for a relation, or for several of them at once."""
        found = set(relations)
        if len(found) > 1:
            return SEVERAL
        (name,) = found
        if name and name not in self._named:
            if len(self._named) == MOST_RELATIONS:
                return OTHER
            self._named.add(name)
        return name


class Recorder(Protocol):
    """Receives every transfer and wait of one worker."""

    def sent(self, label: Label, size: int) -> None:
        """One message of ``size`` bytes left."""

    def received(self, label: Label, size: int) -> None:
        """A group's ``size`` bytes will arrive, from all peers together."""

    def arrived(self, label: Label) -> None:
        """A group has been received."""

    def read_in_place(self, label: Label, size: int) -> None:
        """``size`` bytes of other workers' memory were read where they stand; nothing moved."""

    def waited(self, label: Label, seconds: float) -> None:
        """Time that this worker waited for data."""

    def computed(self, label: Label, seconds: float) -> None:
        """The worker computed while data of the same primitive travelled."""

    def met(self, seconds: float) -> None:
        """The worker exchanged a small object with all others, or waited until they came to it."""

    def reduced(self, edges: int) -> None:
        """The worker went over a group's edges."""


class NullRecorder:
    """Discards every transfer, for tests and tools that need no counts."""

    def sent(self, *_transfer: Any, **_named: Any) -> None:
        """Discard it."""

    received = arrived = read_in_place = waited = computed = met = reduced = sent


@dataclass
class Totals:
    """Totals of one :data:`Key` on one worker; fields as in :class:`Traffic`."""

    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_read_in_place: int = 0
    messages: int = 0
    groups: int = 0
    largest_group_bytes: int = 0
    wait_seconds: float = 0.0
    compute_seconds: float = 0.0
    waits: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BUCKETS) + 1))
    depth: int = 0

    def add(self, other: Totals) -> None:
        """Add another worker's totals."""
        self.bytes_sent += other.bytes_sent
        self.bytes_received += other.bytes_received
        self.bytes_read_in_place += other.bytes_read_in_place
        self.messages += other.messages
        self.groups += other.groups
        self.largest_group_bytes = max(self.largest_group_bytes, other.largest_group_bytes)
        self.wait_seconds += other.wait_seconds
        self.compute_seconds += other.compute_seconds
        self.waits = [a + b for a, b in zip(self.waits, other.waits, strict=True)]
        self.depth = max(self.depth, other.depth)


class Moved(NamedTuple):
    """What a worker waited, computed beside transfers and moved; fields as in :class:`Span`."""

    wait_seconds: float
    compute_seconds: float
    bytes_sent: int
    bytes_received: int
    bytes_read_in_place: int
    messages: int
    groups: int

    def since(self, before: Moved) -> Moved:
        """What was added to an earlier count."""
        return Moved(
            self.wait_seconds - before.wait_seconds,
            self.compute_seconds - before.compute_seconds,
            self.bytes_sent - before.bytes_sent,
            self.bytes_received - before.bytes_received,
            self.bytes_read_in_place - before.bytes_read_in_place,
            self.messages - before.messages,
            self.groups - before.groups,
        )


class CountingRecorder:
    """Keeps totals in memory. ``messages`` counts messages sent.

    Attributes:
        met_seconds: in which all workers met, and no transfer of any label was in flight.
        steps: groups received, meetings and groups gone over: as long as it grows, work is done.
        edges: gone over by aggregations.
    """

    def __init__(self) -> None:
        self.totals: dict[Key, Totals] = {}
        self.met_seconds = 0.0
        self.steps = self.edges = 0
        self._in_flight: dict[Key, int] = {}

    def at(self, key: Key) -> Totals:
        """The totals of an axis, primitive, layer and relation."""
        return self.totals.setdefault(key, Totals())

    def _at(self, label: Label) -> Totals:
        return self.at(label.key)

    def sent(self, label: Label, size: int) -> None:
        """Count one message out."""
        entry = self._at(label)
        entry.bytes_sent += size
        entry.messages += 1

    def received(self, label: Label, size: int) -> None:
        """Count one group in."""
        entry = self._at(label)
        entry.bytes_received += size
        entry.groups += 1
        entry.largest_group_bytes = max(entry.largest_group_bytes, size)
        key = label.key
        self._in_flight[key] = self._in_flight.get(key, 0) + 1
        entry.depth = max(entry.depth, self._in_flight[key])

    def arrived(self, label: Label) -> None:
        """Count one group as no longer in flight."""
        self._in_flight[label.key] -= 1
        self.steps += 1

    def read_in_place(self, label: Label, size: int) -> None:
        """Add bytes of other workers' memory."""
        self._at(label).bytes_read_in_place += size

    def waited(self, label: Label, seconds: float) -> None:
        """Add seconds spent blocked on peers."""
        entry = self._at(label)
        entry.wait_seconds += seconds
        entry.waits[bisect_left(WAIT_BUCKETS, seconds)] += 1

    def computed(self, label: Label, seconds: float) -> None:
        """Add seconds computed while data travelled."""
        self._at(label).compute_seconds += seconds

    def met(self, seconds: float) -> None:
        """Add seconds in which all workers met."""
        self.met_seconds += seconds
        self.steps += 1

    def reduced(self, edges: int) -> None:
        """Count a group's edges."""
        self.edges += edges
        self.steps += 1

    def moved(self) -> Moved:
        """All totals together so far; the seconds waited include meetings."""
        entries = self.totals.values()
        return Moved(
            self.met_seconds + sum(entry.wait_seconds for entry in entries),
            sum((entry.compute_seconds for entry in entries), 0.0),
            sum(entry.bytes_sent for entry in entries),
            sum(entry.bytes_received for entry in entries),
            sum(entry.bytes_read_in_place for entry in entries),
            sum(entry.messages for entry in entries),
            sum(entry.groups for entry in entries),
        )

    def traffic(self) -> list[Traffic]:
        """All totals, in a stable order; any thread may call."""
        return sum_traffic([dict(self.totals)])


def sum_traffic(ranks: Sequence[Mapping[Key, Totals]]) -> list[Traffic]:
    """The totals of all ranks, in a stable order, and the largest share of one of them."""
    found = []
    for key in sorted({key for totals in ranks for key in totals}):
        parts = [totals[key] for totals in ranks if key in totals]
        summed = Totals()
        for part in parts:
            summed.add(part)
        most = max(part.bytes_sent for part in parts)
        longest = max(part.wait_seconds for part in parts)
        axis, primitive, layer, relation = key
        found.append(
            Traffic(
                axis,
                primitive,
                layer,
                **vars(summed),
                most_bytes_sent=most,
                longest_wait_seconds=longest,
                relation=relation,
            )
        )
    return found


@contextmanager
def computing(recorder: Recorder, label: Label) -> Iterator[None]:
    """Count the body as computing beside the label's transfers."""
    start = time.perf_counter()
    yield
    recorder.computed(label, time.perf_counter() - start)
