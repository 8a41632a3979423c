"""What a recorder keeps does not grow with the number of groups."""

from __future__ import annotations

from embertide.telemetry.recorder import CountingRecorder, Label
from embertide.telemetry.report import WAIT_BUCKETS, Traffic


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
    for size, recorder in enumerate(ranks, 1):
        recorder.received(Label("graph", "spmm", 0, 1), size)
        recorder.waited(Label("graph", "spmm", 0, 1), 100.0)
    key = ("graph", "spmm", 0)
    ranks[0].at(key).add(ranks[1].at(key))
    waits = [0] * len(WAIT_BUCKETS) + [2]
    assert ranks[0].traffic() == [Traffic(*key, 0, 3, 0, 2, 2, 200.0, 0.0, waits)]
