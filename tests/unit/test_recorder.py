"""What a recorder keeps does not grow with the number of groups."""

from __future__ import annotations

import json
import sys
import threading

import pytest

from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.graph_facts import GraphFacts
from embertide.facts.telemetry.memory import MemoryWatch
from embertide.facts.telemetry.recorder import (
    MOST_RELATIONS,
    OTHER,
    SEVERAL,
    CountingRecorder,
    Label,
    RelationLabels,
    sum_traffic,
)
from embertide.facts.telemetry.report import WAIT_BUCKETS, Traffic
from embertide.facts.telemetry.transfers import TransferStats, Work


def test_groups_are_counted_as_they_come() -> None:
    recorder = CountingRecorder()
    for group in range(1, 1001):
        label = Label("graph", "spmm", 2, group)
        recorder.received(label, group)
        recorder.sent(label, 8)
        recorder.waited(label, 0.05)
        recorder.computed(label, 0.5)
    (found,) = recorder.traffic()
    waits = [0] * (len(WAIT_BUCKETS) + 1)
    waits[WAIT_BUCKETS.index(0.1)] = 1000
    assert (found.bytes_received, found.largest_group_bytes) == (500500, 1000)
    assert (found.bytes_sent, found.messages, found.groups) == (8000, 1000, 1000)
    assert (round(found.wait_seconds), round(found.compute_seconds)) == (50, 500)
    assert found.waits == waits


def test_workers_are_added_up() -> None:
    ranks = [CountingRecorder(), CountingRecorder()]
    label = Label("graph", "spmm", 0, 1)
    for size, recorder in enumerate(ranks, 1):
        recorder.received(label, size)
        recorder.sent(label, 10 * size)
        recorder.waited(label, 100.0 * size)
        recorder.read_in_place(label, 5 * size)
        assert recorder.moved().bytes_read_in_place == 5 * size
    waits = [0] * len(WAIT_BUCKETS) + [2]
    summed = Traffic("graph", "spmm", 0, 30, 3, 2, 2, 2, 300.0, 0.0, waits, 1, 20, 200.0, "", 15)
    assert sum_traffic([recorder.totals for recorder in ranks]) == [summed]


def test_depth_is_the_most_groups_in_flight() -> None:
    recorder = CountingRecorder()
    labels = [Label("graph", "spmm", 2, group) for group in range(5)]
    for label in labels[:3]:
        recorder.received(label, 1)
    recorder.arrived(labels[0])
    recorder.received(labels[3], 1)
    recorder.arrived(labels[1])
    assert [found.depth for found in recorder.traffic()] == [3]


@pytest.mark.tier(2)
def test_totals_are_read_while_others_are_added() -> None:
    """Metrics are read by a thread of their own."""
    before = sys.getswitchinterval()
    recorder, over = CountingRecorder(), threading.Event()

    def count() -> None:
        for layer in range(20_000):
            recorder.sent(Label("graph", "spmm", layer), 8)
        over.set()

    sys.setswitchinterval(1e-6)
    try:
        counting = threading.Thread(target=count)
        counting.start()
        while not over.is_set():
            recorder.traffic()
        counting.join()
    finally:
        sys.setswitchinterval(before)
    assert len(recorder.traffic()) == 20_000


@pytest.mark.parametrize("groups", [1, 43_000])
def test_neither_snapshot_nor_metrics_grow_with_groups(groups: int) -> None:
    recorder = CountingRecorder()
    for group in range(groups):
        label = Label("graph", "spmm", 2, group)
        recorder.received(label, 100)
        recorder.arrived(label)
    clock = Clock(MemoryWatch(), lambda _event: None)
    taken = clock.snapshot(0, 0, GraphFacts(), recorder, [], Work(), TransferStats())
    # The digits of the counts may differ.
    assert len(json.dumps(taken.to_json())) < 800
    assert len(recorder.totals) == 1


def test_relations_have_a_bounded_number_of_labels() -> None:
    labels = RelationLabels()
    names = [f"a:{number}:b" for number in range(MOST_RELATIONS + 5)]
    assert [labels.of(name) for name in names] == [*names[:MOST_RELATIONS], *[OTHER] * 5]
    # One that has a name keeps it; what is for none, and what is for several, need no place.
    assert labels.of(names[3]) == labels.of(names[3], names[3]) == names[3]
    assert (labels.of(""), labels.of(*names[:2])) == ("", SEVERAL)
