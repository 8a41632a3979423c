"""Progress and reports: the forecast, the three views, the final tables."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from embertide.cli.progress_view import (
    JsonProgress,
    LiveProgress,
    PlainProgress,
    describe,
    ignore,
    progress_view,
)
from embertide.cli.tables import print_estimate, print_report
from embertide.facts.telemetry.estimate import Estimate, InputSize
from embertide.facts.telemetry.format import human_bytes, human_count, human_seconds
from embertide.facts.telemetry.progress import STAGE_WEIGHTS, Progress, ProgressClock
from embertide.facts.telemetry.report import PlannedTraffic, RankMemory, RunReport, Traffic
from embertide.spec.grid import GridShape
from tests.support.expected import Expected


class Clock:
    """Time that moves when the test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


HALVES = {"read": 1.0, "compute": 3.0}
REPORT = RunReport(
    version="20261121T041922Z-3fa9c1",
    uri="s3://shop/a-rather-long-prefix-for-embeddings/of/products/versions/20261121T041922Z-3fa9c1",
    rows=1000,
    dim=64,
    manifest_digest="sha256:00",
    grid=GridShape.of(2, 2),
    nodes=1000,
    edges=21_300_000,
    stages={"ingest": 3.0, "infer": 9.0},
    total_seconds=12.0,
    ingest_edges_per_second=7_100_000.0,
    infer_edges_per_second=2_366_666.0,
    traffic=[
        Traffic("graph", "spmm", 0, 1024, 512, 2, 2, 256, 0.5, 1.5),
        Traffic("graph", "spmm", 1, 1024, 512, 2, 2, 256, 0.25, 1.0),
        Traffic("feature", "gemm", 0, 2048, 2048, 6, 6, 512, 0.0, 0.0),
    ],
    memory=[RankMemory(0, 660 << 20, 960 << 20, 400 << 20)],
    warnings=["node [a] has no edges"],
)
ESTIMATE = Estimate(
    inputs=[InputSize(f"s3://b/e/{i}.parquet", 1 << 20, "edges") for i in range(9)]
    + [InputSize("s3://b/x.npy", 2 << 20, "features")],
    total_bytes=11 << 20,
    nodes=1000,
    nodes_exact=True,
    edges=50_000,
    edges_exact=False,
    width=128,
    grid=GridShape.of(2, 1),
    memory_per_worker_bytes={"ingest": 5 << 20, "infer": 7 << 20},
    peak_memory_per_worker_bytes=7 << 20,
    traffic=[PlannedTraffic("graph", "spmm", 0, 4096, 12)],
    traffic_total_bytes=8192,
    notes=["the grid fits [the] memory"],
)


# The clock


def test_overall_joins_the_stages_by_weight() -> None:
    clock = ProgressClock(HALVES)
    assert clock.overall(Progress("read", fraction=0.5)) == pytest.approx(0.125)
    assert clock.overall(Progress("compute", fraction=0.0)) == pytest.approx(0.25)
    assert clock.overall(Progress("compute", fraction=1.0)) == pytest.approx(1.0)


@given(st.lists(st.tuples(st.sampled_from([*STAGE_WEIGHTS, "else"]), st.floats(-1, 2))))
def test_overall_never_goes_back_or_out(events: list[tuple[str, float]]) -> None:
    clock = ProgressClock()
    seen = [clock.overall(Progress(stage, fraction=fraction)) for stage, fraction in events]
    assert seen == sorted(seen)
    assert all(0.0 <= value <= 1.0 for value in seen)


def test_forecast_follows_the_pace() -> None:
    time = Clock()
    clock = ProgressClock(HALVES, time)
    assert clock.forecast(Progress("read")).eta_seconds is None
    time.seconds += 10
    assert clock.forecast(Progress("compute")).eta_seconds == pytest.approx(30.0)
    time.seconds += 50
    late = clock.forecast(Progress("compute", fraction=0.5))
    assert late.eta_seconds == pytest.approx(60 * 0.375 / 0.625)


def test_no_forecast_from_imports_or_waiting() -> None:
    time = Clock()
    clock = ProgressClock(now=time)
    for stage in ("start", "plan", "features"):
        assert (
            clock.forecast(Progress(stage, fraction=0.5 * (stage == "start"))).eta_seconds is None
        )
        time.seconds += 30
    early = clock.forecast(Progress("features", fraction=0.4))
    assert early.eta_seconds is None, "less than a twentieth of the work is done"
    work = sum(STAGE_WEIGHTS.values()) - STAGE_WEIGHTS["start"] - STAGE_WEIGHTS["plan"]
    late = clock.forecast(Progress("ingest"))
    assert late.eta_seconds == pytest.approx(30 * (work - 10) / 10), "only work counts as pace"


def test_no_forecast_for_what_ends_at_once() -> None:
    time = Clock()
    clock = ProgressClock(now=time)
    for stage in STAGE_WEIGHTS:
        for fraction in (0.0, 0.5, 1.0):
            assert clock.forecast(Progress(stage, fraction=fraction)).eta_seconds is None
        time.seconds += 1.3 / len(STAGE_WEIGHTS)


@given(st.floats(0, 100), st.floats(0, 1), st.floats(0.01, 1))
def test_a_forecast_has_a_basis(seconds: float, before: float, fraction: float) -> None:
    time = Clock()
    clock = ProgressClock({"start": 1.0, "read": 9.0}, time)
    clock.forecast(Progress("read", fraction=before))
    time.seconds += seconds
    left = clock.forecast(Progress("read", fraction=fraction)).eta_seconds
    assert (left is not None) <= (seconds >= 2 and fraction > before)


def test_a_forecast_of_the_engine_is_kept() -> None:
    clock = ProgressClock(HALVES, Clock())
    assert clock.forecast(Progress("compute", eta_seconds=7.0)).eta_seconds == 7.0


# The views


def test_plain_lines_at_stage_changes_and_every_few_seconds() -> None:
    time, out = Clock(), io.StringIO()
    view = PlainProgress(out, ProgressClock(HALVES, time), interval=5.0, now=time)
    for _ in range(20):
        view(Progress("read", fraction=0.1))
        time.seconds += 1
    view(Progress("compute", 1, 2))
    view(Progress("compute", 2, 2, fraction=0.5, edges_per_second=5.2e6))
    lines = out.getvalue().splitlines()
    assert len(lines) == 4 + 2
    assert lines[0].startswith("embertide: read 10% | overall 2%")
    assert lines[-2].startswith("embertide: compute layer 1/2 0% | overall 25%")
    assert lines[-1] == (
        "embertide: compute layer 2/2 50% | overall 62% | 5.2 M edges/s | about 12s left"
    )


def test_json_lines() -> None:
    out = io.StringIO()
    view = JsonProgress(out, ProgressClock(HALVES, Clock()))
    view(Progress("read", fraction=0.5))
    view(Progress("compute", 1, 2, message="x"))
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["event"], first["stage"], first["overall"]) == ("progress", "read", 0.125)
    assert (second["layer"], second["layers"], second["message"]) == (1, 2, "x")


def test_live_bar_leaves_a_line_for_each_stage() -> None:
    time, out = Clock(), io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with LiveProgress(console, ProgressClock(HALVES, time), now=time) as live:
        live(Progress("read", fraction=0.5))
        time.seconds += 12
        live(Progress("compute", 1, 2, message="[odd] text"))
        time.seconds += 3
        live.finish_stage()
    text = out.getvalue()
    assert "read           12s\n" in text
    assert "compute       3.0s\n" in text
    assert "compute layer 1/2" in text
    assert "25%" in text
    assert "[odd] text" in text


def test_sampling_inside_the_layers_does_not_end_them() -> None:
    time, out = Clock(), io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with LiveProgress(console, ProgressClock(now=time), now=time) as live:
        for layer in (1, 2):
            live(Progress("infer", layer, 2))
            time.seconds += 1
            live(Progress("sample", layer, 2))
            time.seconds += 1
        live(Progress("publish"))
    assert out.getvalue().count("  infer         4.0s\n") == 1
    assert "  sample  " not in out.getvalue()


def test_the_view_fits_the_stream() -> None:
    def view(stderr: io.StringIO, *, json_output: bool = False, quiet: bool = False) -> object:
        streams = {"stdout": io.StringIO(), "stderr": stderr}
        with progress_view(json_output=json_output, quiet=quiet, **streams) as on_progress:
            on_progress(Progress("ingest"))
            return on_progress

    assert isinstance(view(io.StringIO()), PlainProgress)
    assert isinstance(view(Terminal()), LiveProgress)
    assert isinstance(view(Terminal(), json_output=True), JsonProgress)
    quiet = io.StringIO()
    assert view(quiet, quiet=True) is ignore
    assert quiet.getvalue() == ""


def test_describe_says_the_message() -> None:
    event = Progress("publish", fraction=0.25, message="verifying")
    assert describe(event, 0.9) == "publish 25% | overall 90% | verifying"


# Numbers


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (5 << 40, "5.0 TiB"),
        (1 << 60, "1024.0 PiB"),
    ],
)
def test_human_bytes(size: int, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(7, "7"), (0.5, "0.5"), (21_300_000, "21.3 M"), (999_990, "1.0 M"), (1000, "1.0 k")],
)
def test_human_count(count: float, text: str) -> None:
    assert human_count(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0s"),
        (9.9, "9.9s"),
        (9.97, "10s"),
        (59.7, "1m00s"),
        (80, "1m20s"),
        (3599.9, "1h00m"),
        (7384, "2h03m"),
    ],
)
def test_human_seconds(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text


# Reports


def test_reports_survive_json() -> None:
    assert RunReport.from_json(json.loads(json.dumps(REPORT.to_json()))) == REPORT
    assert json.loads(json.dumps(ESTIMATE.to_json()))["edges_exact"] is False


def test_memory_beyond_the_imports() -> None:
    assert RankMemory(0, 600, 900, 0).used_bytes == 300
    assert RankMemory(0, 600, 500, 0).used_bytes == 0


_SPMM, *_OTHERS = REPORT.traffic
TABLES: dict[str, Callable[[Console], None]] = {
    "a run": lambda console: print_report(console, REPORT),
    "a run whose workers read in place": lambda console: print_report(
        console,
        replace(REPORT, traffic=[replace(_SPMM, bytes_read_in_place=3 << 20), *_OTHERS]),
    ),
    "a run of a single worker": lambda console: print_report(console, replace(REPORT, traffic=[])),
    "a plan": lambda console: print_estimate(console, ESTIMATE, False),
    "a plan with all files": lambda console: print_estimate(console, ESTIMATE, True),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_at_the_end(name: str, expected: Expected) -> None:
    console = Console(file=io.StringIO(), width=110)
    TABLES[name](console)
    expected.check("tables.txt", name, console.file.getvalue(), TABLES)  # type: ignore[attr-defined]
