"""Every Prometheus metric by name; code, dashboards and alerts use these definitions.

``layer`` counts from 1 and is "" outside the layers. A worker's counters start at 0 in every
attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A metric's name, kind, help text and labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


_TRANSFER = ("axis", "primitive", "layer")

BUILD_INFO = Metric(
    "embertide_build_info",
    "gauge",
    "Always 1; the labels give the version of the running component.",
    ("version", "python", "component"),
)

WORKER_INFO = Metric(
    "embertide_worker_info",
    "gauge",
    "Always 1; the labels identify the worker: its job, attempt and rank.",
    ("job", "job_uid", "attempt", "rank"),
)
WORKER_STATE = Metric(
    "embertide_worker_state",
    "gauge",
    "1 for the worker's current state: starting, running, succeeded, failed or stopped; else 0.",
    ("state",),
)
GRID_SIZE = Metric(
    "embertide_grid_size",
    "gauge",
    "Number of partitions along an axis of the grid: graph or feature.",
    ("axis",),
)
PROGRESS_RATIO = Metric(
    "embertide_progress_ratio",
    "gauge",
    "Progress of this worker through the whole run, from 0 to 1.",
)
STAGE_CURRENT = Metric(
    "embertide_stage_current", "gauge", "1 for the worker's current stage.", ("stage",)
)
STAGE_SECONDS = Metric(
    "embertide_stage_seconds",
    "gauge",
    "Time that this worker has spent in a stage so far, in seconds.",
    ("stage",),
)
GRAPH_NODES = Metric(
    "embertide_graph_nodes", "gauge", "Number of nodes of the whole graph; absent until known."
)
GRAPH_EDGES = Metric(
    "embertide_graph_edges", "gauge", "Number of edges of the whole graph; absent until known."
)

SENT_BYTES = Metric(
    "embertide_exchange_sent_bytes_total", "counter", "Bytes sent to other workers.", _TRANSFER
)
RECEIVED_BYTES = Metric(
    "embertide_exchange_received_bytes_total",
    "counter",
    "Bytes received from other workers.",
    _TRANSFER,
)
MESSAGES = Metric(
    "embertide_exchange_messages_total", "counter", "Messages sent to other workers.", _TRANSFER
)
WAIT_SECONDS = Metric(
    "embertide_exchange_wait_seconds_total",
    "counter",
    "Time the worker was blocked waiting for data, in seconds.",
    _TRANSFER,
)
OVERLAPPED_SECONDS = Metric(
    "embertide_exchange_overlapped_compute_seconds_total",
    "counter",
    "Computation overlapped with communication of the same primitive, in seconds.",
    _TRANSFER,
)

RESIDENT_BYTES = Metric(
    "embertide_memory_resident_bytes", "gauge", "Resident set size of the worker process, in bytes."
)
MEMORY_BASELINE_BYTES = Metric(
    "embertide_memory_baseline_bytes",
    "gauge",
    "Resident set size of the worker process after its imports, in bytes.",
)
MEMORY_USED_BYTES = Metric(
    "embertide_memory_peak_bytes",
    "gauge",
    "Measured peak memory of the run above the baseline, in bytes.",
)
MEMORY_PLANNED_BYTES = Metric(
    "embertide_memory_planned_bytes",
    "gauge",
    "Estimated peak memory of the run above the baseline, in bytes.",
)
MEMORY_LIMIT_BYTES = Metric(
    "embertide_memory_limit_bytes", "gauge", "Memory limit of the worker's container, in bytes."
)
STAGE_MEMORY_BYTES = Metric(
    "embertide_stage_memory_peak_bytes",
    "gauge",
    "Measured peak memory of a stage above the baseline, in bytes.",
    ("stage",),
)

WORKER_METRICS: tuple[Metric, ...] = (
    BUILD_INFO,
    WORKER_INFO,
    WORKER_STATE,
    GRID_SIZE,
    PROGRESS_RATIO,
    STAGE_CURRENT,
    STAGE_SECONDS,
    GRAPH_NODES,
    GRAPH_EDGES,
    SENT_BYTES,
    RECEIVED_BYTES,
    MESSAGES,
    WAIT_SECONDS,
    OVERLAPPED_SECONDS,
    RESIDENT_BYTES,
    MEMORY_BASELINE_BYTES,
    MEMORY_USED_BYTES,
    MEMORY_PLANNED_BYTES,
    MEMORY_LIMIT_BYTES,
    STAGE_MEMORY_BYTES,
)

RECONCILES = Metric(
    "embertide_operator_reconciles_total",
    "counter",
    "Reconciliations of a job by outcome: ok, conflict, refused (by the API server) or error.",
    ("outcome",),
)
RECONCILE_SECONDS = Metric(
    "embertide_operator_reconcile_seconds",
    "histogram",
    "Duration of one reconciliation of a job, in seconds.",
)
JOBS = Metric(
    "embertide_operator_jobs", "gauge", "Number of EmbeddingJobs in each phase.", ("phase",)
)
OUTPUT_AGE_SECONDS = Metric(
    "embertide_operator_output_age_seconds",
    "gauge",
    "Age of the newest published version of an output, in seconds.",
    ("namespace", "output"),
)

OPERATOR_METRICS: tuple[Metric, ...] = (RECONCILES, RECONCILE_SECONDS, JOBS, OUTPUT_AGE_SECONDS)
