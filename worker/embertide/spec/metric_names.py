"""Every Prometheus metric by name: code, dashboards and alerts take them from here.

``layer`` counts from 1 and is "" outside the layers. A worker's counters start at 0 with each
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
    "embertide_build_info", "gauge", "Always 1; what runs.", ("version", "python", "component")
)

WORKER_INFO = Metric(
    "embertide_worker_info",
    "gauge",
    "Always 1; which job's worker this is.",
    ("job", "job_uid", "attempt", "rank"),
)
WORKER_STATE = Metric(
    "embertide_worker_state",
    "gauge",
    "1 for the state the worker is in: starting, running, succeeded, failed or stopped.",
    ("state",),
)
GRID_SIZE = Metric(
    "embertide_grid_size", "gauge", "Workers along an axis: graph or feature.", ("axis",)
)
PROGRESS_RATIO = Metric(
    "embertide_progress_ratio", "gauge", "Part of the whole run that this worker has done, 0 to 1."
)
STAGE_CURRENT = Metric(
    "embertide_stage_current", "gauge", "1 for the stage under way on this worker.", ("stage",)
)
STAGE_SECONDS = Metric(
    "embertide_stage_seconds", "gauge", "Seconds in a stage so far on this worker.", ("stage",)
)
GRAPH_NODES = Metric("embertide_graph_nodes", "gauge", "Nodes of the whole graph, once known.")
GRAPH_EDGES = Metric("embertide_graph_edges", "gauge", "Edges of the whole graph, once known.")

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
    "Seconds that the worker stood still for data.",
    _TRANSFER,
)
OVERLAPPED_SECONDS = Metric(
    "embertide_exchange_overlapped_compute_seconds_total",
    "counter",
    "Seconds computed while data of the same primitive travelled.",
    _TRANSFER,
)

RESIDENT_BYTES = Metric(
    "embertide_memory_resident_bytes", "gauge", "Resident memory of the worker process."
)
MEMORY_BASELINE_BYTES = Metric(
    "embertide_memory_baseline_bytes", "gauge", "Memory of the worker process after its imports."
)
MEMORY_USED_BYTES = Metric(
    "embertide_memory_peak_bytes", "gauge", "Peak memory of the work, beyond the baseline."
)
MEMORY_PLANNED_BYTES = Metric(
    "embertide_memory_planned_bytes", "gauge", "Planned peak of the work, beyond the baseline."
)
MEMORY_LIMIT_BYTES = Metric(
    "embertide_memory_limit_bytes", "gauge", "Memory limit of the worker's container."
)
STAGE_MEMORY_BYTES = Metric(
    "embertide_stage_memory_peak_bytes",
    "gauge",
    "Peak memory of a stage, beyond the baseline.",
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
    "embertide_operator_reconciles_total", "counter", "Passes over a job.", ("outcome",)
)
RECONCILE_SECONDS = Metric(
    "embertide_operator_reconcile_seconds", "histogram", "Seconds of one pass over a job."
)
JOBS = Metric("embertide_operator_jobs", "gauge", "EmbeddingJobs in each phase.", ("phase",))
OUTPUT_AGE_SECONDS = Metric(
    "embertide_operator_output_age_seconds",
    "gauge",
    "Seconds since a job last published to this output.",
    ("namespace", "output"),
)

OPERATOR_METRICS: tuple[Metric, ...] = (RECONCILES, RECONCILE_SECONDS, JOBS, OUTPUT_AGE_SECONDS)
