"""A worker's metrics as Prometheus text: its status, and its process's newest snapshot."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from embertide._version import __version__
from embertide.facts.telemetry.container import working_set_bytes
from embertide.facts.telemetry.report import WAIT_BUCKETS, PlannedTraffic, Traffic
from embertide.facts.telemetry.snapshot import Snapshot
from embertide.facts.telemetry.transfers import OperationStats, TransferStats
from embertide.launch.run_folder import RunFolder
from embertide.pod.board import Board
from embertide.pod.settings import WorkSettings
from embertide.spec import metric_names as names
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.metric_names import Metric
from embertide.spec.schemes import is_local

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_STATES = ("starting", "running", "succeeded", "failed", "stopped")
_BOUNDS = [*map(str, WAIT_BUCKETS), "+Inf"]
# Counters begin at 0 before there is anything to count: a series whose first sample is its whole
# growth has no rate, and a short stage would never be seen.
_ROW_STAGES = ("features", "infer", "publish")
_EDGE_STAGES = ("ingest", "infer")
_OPERATIONS = ("GetObject", "PutObject")  # of every job whose output is in an object store

Values = Mapping[tuple[str, ...], float]
"""A metric's own labels -> value."""


class WorkerCollector(Collector):
    """Reads everything again at each scrape.

    Attributes:
        job: None until the manifest is read; there are no series before, since all carry its name.

    Args:
        folder: of the run.
    """

    def __init__(self, settings: WorkSettings, board: Board, folder: RunFolder) -> None:
        self.job: EmbeddingJob | None = None
        self._settings, self._board, self._folder = settings, board, folder

    def collect(self) -> Iterator[Family]:
        """Every metric family with its current values."""
        if self.job is None:
            return
        families = _Families(self.job, self._settings)
        yield from families.of_worker(self.job, self._board)
        snapshot = self._folder.read_snapshot(self._settings.rank)
        if snapshot is not None:
            yield from families.of_snapshot(snapshot)


def render(collector: WorkerCollector) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return bytes(generate_latest(registry))


class _Families:
    """Makes metric families, all of whose series carry the labels of this worker."""

    def __init__(self, job: EmbeddingJob, settings: WorkSettings) -> None:
        graph_rank, feature_rank = settings.grid.coordinates(settings.rank)
        self._settings = settings
        self._operations = () if is_local(job.spec.published_uri) else _OPERATIONS
        self._who = (
            job.metadata.namespace or "",
            job.metadata.name,
            *map(str, (settings.attempt, settings.rank, graph_rank, feature_rank)),
        )

    def of_worker(self, job: EmbeddingJob, board: Board) -> Iterator[Family]:
        """What is known without the worker process."""
        settings, status, inference = self._settings, board.status, job.spec.inference
        versions = __version__, platform.python_version()
        place = settings.version, str(settings.grid), job.spec.workers.device
        yield self._of(names.WORKER_INFO, {(settings.job_uid, *place, *versions): 1})
        yield self._of(names.WORKER_STATE, {(s,): float(s == status.state) for s in _STATES})
        grid = settings.grid
        yield self._of(names.GRID_SIZE, {("graph",): grid.graph, ("feature",): grid.feature})
        yield self._of(names.GROUP_LIMIT_BYTES, {(): inference.group_bytes})
        yield self._of(names.DEPTH_LIMIT, {(): inference.depth})
        container = working_set_bytes()
        if container:
            yield self._of(names.CONTAINER_BYTES, {(): container})
        if settings.memory_limit:
            yield self._of(names.MEMORY_LIMIT_BYTES, {(): settings.memory_limit})
        if status.progress is not None:
            yield self._of(names.PROGRESS_RATIO, {(): status.progress.percent / 100})

    def of_snapshot(self, snapshot: Snapshot) -> Iterator[Family]:
        """What the worker process wrote down last."""
        memory = snapshot.memory
        yield self._of(names.STAGE_CURRENT, {(snapshot.stage,): 1.0} if snapshot.stage else {})
        for metric, by_stage in (
            (names.STAGE_SECONDS, snapshot.stages),
            (names.STAGE_MEMORY_BYTES, memory.stage_bytes),
            (names.ROWS, dict.fromkeys(_ROW_STAGES, 0) | snapshot.rows_done),
            (names.EDGES, dict.fromkeys(_EDGE_STAGES, 0) | snapshot.edges_done),
        ):
            yield self._of(metric, {(stage,): value for stage, value in by_stage.items()})
        for metric, value in (
            (names.GRAPH_NODES, snapshot.nodes),
            (names.GRAPH_EDGES, snapshot.edges),
            (names.RESUMED_LAYER, snapshot.resumed_layer),
            (names.RESIDENT_BYTES, snapshot.resident_bytes),
            (names.MEMORY_BASELINE_BYTES, memory.baseline_bytes),
            (names.MEMORY_PEAK_BYTES, memory.used_bytes),
            (names.MEMORY_PLANNED_BYTES, memory.planned_bytes),
            (names.CONTAINER_PEAK_BYTES, memory.container_peak_bytes),
        ):
            if value:
                yield self._of(metric, {(): value})
        yield from self._of_traffic(_begun(snapshot))
        yield from self._of_plan(snapshot.planned_traffic)
        yield from self._of_storage(snapshot.storage)

    def _of_traffic(self, traffic: list[Traffic]) -> Iterator[Family]:
        """By axis, primitive, layer and relation."""
        for metric, field in (
            (names.SENT_BYTES, "bytes_sent"),
            (names.RECEIVED_BYTES, "bytes_received"),
            (names.READ_IN_PLACE_BYTES, "bytes_read_in_place"),
            (names.MESSAGES, "messages"),
            (names.OVERLAPPED_SECONDS, "compute_seconds"),
            (names.GROUPS, "groups"),
            (names.GROUP_BYTES, "largest_group_bytes"),
            (names.DEPTH, "depth"),
        ):
            yield self._of(metric, {_transfer(item): getattr(item, field) for item in traffic})
        waits = names.WAIT_SECONDS
        family = HistogramMetricFamily(waits.name, waits.help, labels=waits.labels)
        for item in traffic:
            buckets = list(zip(_BOUNDS, accumulate(item.waits), strict=True))
            family.add_metric((*self._who, *_transfer(item)), buckets, item.wait_seconds)
        yield family

    def _of_plan(self, planned: list[PlannedTraffic]) -> Iterator[Family]:
        """By axis, primitive, layer and relation."""
        for metric, field in (
            (names.PLANNED_BYTES, "bytes_per_worker"),
            (names.PLANNED_MESSAGES, "messages"),
        ):
            yield self._of(metric, {_transfer(item): getattr(item, field) for item in planned})

    def _of_storage(self, stored: TransferStats) -> Iterator[Family]:
        """By operation; none of a run that uses local files only."""
        found = {name: OperationStats() for name in self._operations} | stored.operations
        if not found:
            return
        yield self._of(names.STORAGE_READ_BYTES, {(): stored.bytes_read})
        yield self._of(names.STORAGE_WRITTEN_BYTES, {(): stored.bytes_written})
        for metric, field in (
            (names.STORAGE_REQUESTS, "requests"),
            (names.STORAGE_RETRIES, "retries"),
            (names.STORAGE_ERRORS, "errors"),
        ):
            counts: Values = {(name,): getattr(item, field) for name, item in found.items()}
            yield self._of(metric, counts)

    def _of(self, metric: Metric, values: Values) -> Family:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=metric.labels)
        for labels, value in values.items():
            family.add_metric((*self._who, *labels), value)
        return family


def _begun(snapshot: Snapshot) -> list[Traffic]:
    """What has moved, and at 0 what the plan expects and has not moved yet."""
    moved = {_transfer(item) for item in snapshot.traffic}
    return snapshot.traffic + [
        Traffic(
            axis=item.axis,
            primitive=item.primitive,
            layer=item.layer,
            bytes_sent=0,
            bytes_received=0,
            messages=0,
            groups=0,
            largest_group_bytes=0,
            wait_seconds=0.0,
            compute_seconds=0.0,
            waits=[0] * len(_BOUNDS),
            relation=item.relation,
        )
        for item in snapshot.planned_traffic
        if _transfer(item) not in moved
    ]


def _transfer(item: Traffic | PlannedTraffic) -> tuple[str, str, str, str]:
    """The labels axis, primitive, layer and relation."""
    layer = str(item.layer + 1) if item.layer >= 0 else ""
    return item.axis, item.primitive, layer, item.relation
