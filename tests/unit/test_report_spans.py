"""Times of a worker's stages and layers, and how much of them was waiting."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from embertide.facts.telemetry import clock as clock_module
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.memory import MemoryWatch
from embertide.facts.telemetry.recorder import CountingRecorder, Label, Moved

SPMM = Label("graph", "spmm", 0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """One whose time goes on by a second at each look."""
    ticks = itertools.count()
    monkeypatch.setattr(clock_module.time, "perf_counter", lambda: float(next(ticks)))
    return Clock(MemoryWatch(), lambda _event: None, CountingRecorder(), began=-1.0)


def spans(clock: Clock) -> list[tuple[Any, ...]]:
    return [(s.stage, s.layer, s.wait_seconds, s.compute_seconds) for s in clock.spans]


def test_waits_belong_to_the_stage_in_which_they_were(clock: Clock) -> None:
    with clock.stage("ingest"):
        clock.recorder.waited(SPMM, 2.0)
    with clock.stage("csr"):
        clock.recorder.met(0.5)
        clock.recorder.waited(SPMM, 0.25)
        clock.recorder.computed(SPMM, 3.0)
    assert spans(clock) == [("ingest", -1, 2.0, 0.0), ("csr", -1, 0.75, 3.0)]
    first, second = clock.spans
    assert 0 < first.start < first.end < second.start < second.end


def test_parts_of_a_layer_are_one_span(clock: Clock) -> None:
    with clock.stage("infer"):
        for layer in (0, 0, 1):
            with clock.layer(layer):
                clock.recorder.waited(SPMM, 1.0)
    assert spans(clock) == [("infer", 0, 2.0, 0.0), ("infer", 1, 1.0, 0.0), ("infer", -1, 3.0, 0.0)]
    first, second, whole = clock.spans
    assert whole.start < first.start < first.end < second.start < second.end < whole.end
    assert first.seconds > second.seconds


def test_parts_of_a_stage_are_one_span(clock: Clock) -> None:
    for _ in range(3):
        with clock.stage("csr"):
            clock.recorder.waited(SPMM, 1.0)
    assert spans(clock) == [("csr", -1, 3.0, 0.0)]


def test_what_comes_between_parts_of_a_layer_parts_them(clock: Clock) -> None:
    with clock.stage("infer"):
        with clock.layer(0):
            pass
        with clock.layer(0), clock.stage("sample"):
            pass
    names = [(span.stage, span.layer) for span in clock.spans]
    assert names == [("infer", 0), ("sample", -1), ("infer", 0), ("infer", -1)]


def test_meetings_are_waits_of_no_transfer() -> None:
    recorder = CountingRecorder()
    recorder.met(1.5)
    recorder.waited(SPMM, 0.5)
    assert recorder.moved() == Moved(2.0, 0.0, 0, 0, 0, 0, 0)
    assert [item.wait_seconds for item in recorder.traffic()] == [0.5]
