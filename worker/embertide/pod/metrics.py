"""A worker's metrics as Prometheus text: its status, and its process's newest snapshot."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

import embertide
from embertide.launch.run_folder import RunFolder
from embertide.pod.board import Board
from embertide.pod.settings import WorkSettings
from embertide.spec import metric_names as names
from embertide.spec.metric_names import Metric
from embertide.telemetry.report import Snapshot, Traffic

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_STATES = ("starting", "running", "succeeded", "failed", "stopped")


class WorkerCollector(Collector):
    """Reads everything anew at each scrape.

    Args:
        job: its name, "" until the manifest is read.
        folder: of the run.
    """

    def __init__(self, settings: WorkSettings, board: Board, folder: RunFolder) -> None:
        self.job = ""
        self._settings, self._board, self._folder = settings, board, folder

    def collect(self) -> Iterator[Family]:
        """Every metric family with its current values."""
        settings, status = self._settings, self._board.status
        build: tuple[str, ...] = (embertide.__version__, platform.python_version(), "worker")
        who: tuple[str, ...] = (
            self.job,
            settings.job_uid,
            str(settings.attempt),
            str(settings.rank),
        )
        yield _family(names.BUILD_INFO, {build: 1})
        yield _family(names.WORKER_INFO, {who: 1})
        yield _family(names.WORKER_STATE, {(s,): float(s == status.state) for s in _STATES})
        grid = settings.grid
        yield _family(names.GRID_SIZE, {("graph",): grid.graph, ("feature",): grid.feature})
        if settings.memory_limit:
            yield _family(names.MEMORY_LIMIT_BYTES, {(): settings.memory_limit})
        if status.progress is not None:
            yield _family(names.PROGRESS_RATIO, {(): status.progress.percent / 100})
        snapshot = self._folder.read_snapshot(settings.rank)
        if snapshot is not None:
            yield from _of_snapshot(snapshot)


def render(collector: WorkerCollector) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return bytes(generate_latest(registry))


def _of_snapshot(snapshot: Snapshot) -> Iterator[Family]:
    memory = snapshot.memory
    yield _family(names.STAGE_CURRENT, {(snapshot.stage,): 1.0} if snapshot.stage else {})
    yield _family(names.STAGE_SECONDS, {(s,): seconds for s, seconds in snapshot.stages.items()})
    yield _family(names.STAGE_MEMORY_BYTES, {(s,): size for s, size in memory.stage_bytes.items()})
    for metric, value in (
        (names.GRAPH_NODES, snapshot.nodes),
        (names.GRAPH_EDGES, snapshot.edges),
        (names.RESIDENT_BYTES, snapshot.resident_bytes),
        (names.MEMORY_BASELINE_BYTES, memory.baseline_bytes),
        (names.MEMORY_USED_BYTES, memory.used_bytes),
        (names.MEMORY_PLANNED_BYTES, memory.planned_bytes),
    ):
        if value:
            yield _family(metric, {(): value})
    yield from _of_traffic(snapshot.traffic)


def _of_traffic(traffic: list[Traffic]) -> Iterator[Family]:
    """Counters by axis, primitive and layer."""
    for metric, field in (
        (names.SENT_BYTES, "bytes_sent"),
        (names.RECEIVED_BYTES, "bytes_received"),
        (names.MESSAGES, "messages"),
        (names.WAIT_SECONDS, "wait_seconds"),
        (names.OVERLAPPED_SECONDS, "compute_seconds"),
    ):
        values: dict[tuple[str, ...], float] = {
            (e.axis, e.primitive, str(e.layer + 1) if e.layer >= 0 else ""): getattr(e, field)
            for e in traffic
        }
        yield _family(metric, values)


def _family(metric: Metric, values: Mapping[tuple[str, ...], float]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
