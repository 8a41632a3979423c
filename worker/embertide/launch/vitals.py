"""A running worker's numbers, written to a file every few seconds for whoever serves metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from embertide.errors import OutputError
from embertide.launch.run_folder import repeating, write_text
from embertide.pipeline import Clock
from embertide.telemetry.recorder import CountingRecorder
from embertide.telemetry.report import RankMemory, Traffic, Vitals


def look(rank: int, planned_bytes: int, clock: Clock, recorder: CountingRecorder) -> Vitals:
    """What a worker's clock and recorder say right now; any thread may call."""
    watch, now = clock.memory, time.perf_counter()
    under_way, seconds = dict(clock.under_way), dict(clock.seconds)
    for name, began in under_way.items():
        seconds[name] = seconds.get(name, 0.0) + now - began
    return Vitals(
        rank=rank,
        stage=list(under_way)[-1] if under_way else "",
        stages=seconds,
        memory=RankMemory(rank, watch.baseline, watch.peak, planned_bytes, dict(watch.peaks)),
        resident_bytes=int(psutil.Process().memory_info().rss),
        nodes=clock.nodes,
        edges=clock.edges,
        traffic=[Traffic(**row) for row in recorder.rows()],  # type: ignore[arg-type]
    )


@contextmanager
def telling(path: Path, vitals: Callable[[], Vitals], period_seconds: float) -> Iterator[None]:
    """Write vitals to a file at once, then every so often from a thread, and at the end."""

    def tell() -> None:
        # A run is worth more than its metrics.
        with suppress(OutputError):
            write_text(path, json.dumps(vitals().to_json()))

    tell()
    with repeating(tell, period_seconds):
        yield
