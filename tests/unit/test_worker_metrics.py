"""A worker's metrics before there is anything to count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from embertide.facts.telemetry.container import working_set_bytes
from embertide.facts.telemetry.report import PlannedTraffic, RankMemory, Traffic
from embertide.facts.telemetry.snapshot import Snapshot
from embertide.launch.run_folder import RunFolder
from embertide.pod.board import Board
from embertide.pod.metrics import WorkerCollector, render
from embertide.pod.settings import WorkSettings
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from tests.support.operator_world import raw_job

MOVED = Traffic("graph", "spmm", 0, 300, 200, 4, 6, 80, 2.0, 1.0, [0, 0, 3, 0, 0, 0, 0])
PLANNED = [PlannedTraffic("graph", "spmm", layer, 400, 4, "cites") for layer in (0, 1)]


def test_counters_begin_at_0(tmp_path: Path) -> None:
    """So that a stage that lasts less than the time between two scrapes has a rate."""
    found = Scrape(tmp_path, snapshot([], PLANNED))
    assert found("processed_edges_total", "stage") == {"ingest": 0, "infer": 0}
    assert found("processed_rows_total", "stage") == {"features": 0, "infer": 0, "publish": 0}
    for name in ("sent_bytes_total", "sent_messages_total", "groups_total", "wait_seconds_sum"):
        assert found(f"exchange_{name}", "layer") == {"1": 0, "2": 0}, name


def test_what_has_moved_counts_beside_what_has_not(tmp_path: Path) -> None:
    moved = [replace(MOVED, relation="cites")]
    found = Scrape(tmp_path, snapshot(moved, PLANNED))
    assert found("exchange_sent_bytes_total", "layer") == {"1": 300, "2": 0}
    assert found("exchange_wait_seconds_count", "layer") == {"1": 3, "2": 0}


def test_requests_count_from_zero_where_the_output_is_in_a_store(tmp_path: Path) -> None:
    found = Scrape(tmp_path, snapshot([], []))
    for name in ("requests", "retries", "errors"):
        assert found(f"storage_{name}_total", "operation") == {"GetObject": 0, "PutObject": 0}, name
    now = snapshot([], [])
    now.storage.of("GetObject").requests = 3
    found = Scrape(tmp_path, now)
    assert found("storage_requests_total", "operation") == {"GetObject": 3, "PutObject": 0}
    elsewhere = Scrape(tmp_path, now, output={"uri": "file:///shop/embeddings"})
    assert elsewhere("storage_requests_total", "operation") == {"GetObject": 3}


def snapshot(traffic: list[Traffic], planned: list[PlannedTraffic]) -> Snapshot:
    memory = RankMemory(0, 100, 160, 70)
    return Snapshot(0, "plan", {}, memory, 160, 64, 512, traffic, planned)


def test_memory_of_the_container_is_beside_that_of_the_process(tmp_path: Path) -> None:
    now = snapshot([], [])
    peak = replace(now, memory=replace(now.memory, container_peak_bytes=500))
    found = Scrape(tmp_path, peak)
    assert found("memory_container_peak_bytes", "rank") == {"0": 500}
    assert bool(found("memory_container_bytes", "rank")) == (working_set_bytes() > 0)
    assert Scrape(tmp_path, now)("memory_container_peak_bytes", "rank") == {}, "not counted"


class Scrape:
    """Samples of rank 0's metrics by the value of one label."""

    def __init__(self, folder: Path, now: Snapshot, **spec: Any) -> None:
        settings = WorkSettings(
            job_uid="9c2f",
            attempt=1,
            grid=GridShape.of(2, 1),
            rank=0,
            version="20261121T120000Z-abcdef",
            earlier=(),
            rendezvous=("localhost", 1),
            memory_limit=None,
            threads=None,
            http_port=0,
            join_seconds=1,
            peer_timeout_seconds=1,
            heartbeat_seconds=1,
            stay_seconds=1,
        )
        run = RunFolder(folder)
        with run.writing_snapshots(0, lambda: now, 60.0):
            collector = WorkerCollector(settings, Board(settings), run)
            collector.job = EmbeddingJob.model_validate(raw_job(**spec))
            text = render(collector).decode()
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def __call__(self, name: str, label: str) -> dict[str, float]:
        """By the label's value; KeyError where a series has no such label."""
        full = f"embertide_{name}"
        return {s.labels[label]: s.value for s in self._samples if s.name == full}
