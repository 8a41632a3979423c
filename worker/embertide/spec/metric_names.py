"""Every Prometheus metric by name; code, dashboards and alerts use these definitions.

Labels that every series of a kind carries:

- a worker's: job, attempt and rank, and the rank's coordinates on the grid. The communication group
  of an axis is a label's value: ``graph_rank="p"`` is the group (p, .) along the feature axis,
  ``feature_rank="m"`` the group (., m) along the graph axis.
- a job's and an output's: ``job_namespace`` beside the name, since Prometheus overwrites
  ``namespace`` and ``job`` with those of the scraped pod.

``layer`` counts from 1 and is "" outside the layers. ``relation`` is "" where a transfer is for no
relation, and in a graph that has one; at most 32 have their names, source:name:destination, all
others are "other", and rows that travel once for several relations are "several". A worker's
counters start at 0 in every attempt. Times are seconds since the epoch where the name ends in
``timestamp_seconds``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["", "bytes", "seconds", "ratio"]


@dataclass(frozen=True)
class Metric:
    """A metric's name, kind, unit ("" for counts and states), help text and labels."""

    name: str
    kind: Kind
    unit: Unit
    help: str
    labels: tuple[str, ...] = ()


JOB_LABELS = ("job_namespace", "job_name")
_PLACE = ("rank", "graph_rank", "feature_rank")
WORKER_LABELS = (*JOB_LABELS, "attempt", *_PLACE)
RUN_LABELS = (*JOB_LABELS, "attempt")
OUTPUT_LABELS = ("job_namespace", "output")
SCHEDULE_LABELS = ("job_namespace", "schedule")
_EXCHANGE = ("axis", "primitive", "layer", "relation")

WORKER_METRICS: list[Metric] = []
"""Served by every worker."""
OPERATOR_METRICS: list[Metric] = []
"""Served by the operator: its own, those of jobs, last runs and outputs."""


def _worker(name: str, kind: Kind, unit: Unit, text: str, *labels: str) -> Metric:
    metric = Metric(f"embertide_{name}", kind, unit, text, (*WORKER_LABELS, *labels))
    WORKER_METRICS.append(metric)
    return metric


def _operator(name: str, kind: Kind, unit: Unit, text: str, *labels: str) -> Metric:
    metric = Metric(f"embertide_{name}", kind, unit, text, labels)
    OPERATOR_METRICS.append(metric)
    return metric


def _job(name: str, unit: Unit, text: str, *labels: str) -> Metric:
    return _operator(f"job_{name}", "gauge", unit, text, *JOB_LABELS, *labels)


def _run(name: str, unit: Unit, text: str, *labels: str) -> Metric:
    return _operator(f"last_run_{name}", "gauge", unit, text, *RUN_LABELS, *labels)


def _push(name: str, unit: Unit, text: str) -> Metric:
    return _operator(f"push_{name}", "gauge", unit, text, *JOB_LABELS)


def _schedule(name: str, unit: Unit, text: str, *labels: str) -> Metric:
    return _operator(f"schedule_{name}", "gauge", unit, text, *SCHEDULE_LABELS, *labels)


def _output(name: str, unit: Unit, text: str, *labels: str) -> Metric:
    return _operator(f"output_{name}", "gauge", unit, text, *OUTPUT_LABELS, *labels)


# fmt: off
# -- a worker: who it is and how far ---------------------------------------------------------

WORKER_INFO = _worker("worker_info", "gauge", "",
    "Always 1; the labels identify the worker's run: uid of the job, version to be published, "
    "grid, device, and versions of Embertide and Python.",
    "job_uid", "output_version", "grid", "device", "version", "python")
WORKER_STATE = _worker("worker_state", "gauge", "",
    "1 for the worker's current state: starting, running, succeeded, failed or stopped; else 0.",
    "state")
GRID_SIZE = _worker("grid_size", "gauge", "",
    "Number of partitions along an axis of the grid: graph or feature.", "axis")
PROGRESS_RATIO = _worker("progress_ratio", "gauge", "ratio",
    "Progress of this worker through the whole run, from 0 to 1.")
STAGE_CURRENT = _worker("stage_current", "gauge", "", "1 for the worker's current stage.", "stage")
STAGE_SECONDS = _worker("stage_seconds_total", "counter", "seconds",
    "Time that this worker has spent in a stage, in seconds; grows while the stage runs.",
    "stage")
GRAPH_NODES = _worker("graph_nodes", "gauge", "",
    "Number of nodes of the whole graph; absent until known.")
GRAPH_EDGES = _worker("graph_edges", "gauge", "",
    "Number of edges of the whole graph; absent until known.")
ROWS = _worker("processed_rows_total", "counter", "",
    "Rows that this worker has processed: features loaded (features), rows of a layer computed "
    "(infer), embeddings written (publish).", "stage")
EDGES = _worker("processed_edges_total", "counter", "",
    "Edges that this worker has processed: read (ingest), or aggregated once for each layer "
    "(infer).", "stage")
RESUMED_LAYER = _worker("resumed_layer", "gauge", "",
    "Layer, from 1, that an earlier attempt had kept and after which this one went on; absent "
    "where it computes all.")

# -- a worker: communication, by axis (graph, feature, world), primitive, layer, relation---------

SENT_BYTES = _worker("exchange_sent_bytes_total", "counter", "bytes",
    "Bytes sent to other workers.", *_EXCHANGE)
RECEIVED_BYTES = _worker("exchange_received_bytes_total", "counter", "bytes",
    "Bytes received from other workers.", *_EXCHANGE)
READ_IN_PLACE_BYTES = _worker("exchange_read_in_place_bytes_total", "counter", "bytes",
    "Bytes read in the memory of other workers of the same host, where nothing is sent "
    "(docs/traffic.md).", *_EXCHANGE)
MESSAGES = _worker("exchange_sent_messages_total", "counter", "",
    "Messages sent to other workers.", *_EXCHANGE)
PLANNED_BYTES = _worker("exchange_planned_sent_bytes", "gauge", "bytes",
    "Bytes that the plan expects a worker to send in the whole run; absent for what is not "
    "planned.", *_EXCHANGE)
PLANNED_MESSAGES = _worker("exchange_planned_sent_messages", "gauge", "",
    "Messages that the plan expects a worker to send in the whole run; absent for what is not "
    "planned.", *_EXCHANGE)
WAIT_SECONDS = _worker("exchange_wait_seconds", "histogram", "seconds",
    "Time the worker was blocked waiting for data of other workers, in seconds for each wait.",
    *_EXCHANGE)
OVERLAPPED_SECONDS = _worker("exchange_overlapped_compute_seconds_total", "counter", "seconds",
    "Computation overlapped with communication of the same primitive, in seconds.", *_EXCHANGE)
GROUPS = _worker("exchange_groups_total", "counter", "",
    "Groups received: receive buffers that other workers filled.", *_EXCHANGE)
GROUP_BYTES = _worker("exchange_group_largest_bytes", "gauge", "bytes",
    "Size of the largest group received, in bytes.", *_EXCHANGE)
DEPTH = _worker("exchange_depth", "gauge", "",
    "Largest number of groups that were in flight at the same time.", *_EXCHANGE)
GROUP_LIMIT_BYTES = _worker("exchange_group_limit_bytes", "gauge", "bytes",
    "Configured size of a group (spec.inference.groupBytes), in bytes.")
DEPTH_LIMIT = _worker("exchange_depth_limit", "gauge", "",
    "Configured pipeline depth (spec.inference.depth): groups in flight at the same time.")

# -- a worker: memory and the object store ---------------------------------------------------

RESIDENT_BYTES = _worker("memory_resident_bytes", "gauge", "bytes",
    "Resident set size of the worker process, in bytes.")
MEMORY_BASELINE_BYTES = _worker("memory_baseline_bytes", "gauge", "bytes",
    "Memory of the worker process after its imports, in bytes.")
MEMORY_PEAK_BYTES = _worker("memory_peak_bytes", "gauge", "bytes",
    "Measured peak memory of the run above the baseline, in bytes.")
MEMORY_PLANNED_BYTES = _worker("memory_planned_bytes", "gauge", "bytes",
    "Estimated peak memory of the run above the baseline, in bytes.")
CONTAINER_BYTES = _worker("memory_container_bytes", "gauge", "bytes",
    "Memory of the worker's container as its limit counts it: all processes and files in memory, "
    "without file pages that the kernel can drop, in bytes; absent where it is not counted.")
CONTAINER_PEAK_BYTES = _worker("memory_container_peak_bytes", "gauge", "bytes",
    "Measured peak memory of the worker's container, in bytes; absent where it is not counted.")
MEMORY_LIMIT_BYTES = _worker("memory_limit_bytes", "gauge", "bytes",
    "Memory limit of the worker's container, in bytes; absent without one.")
STAGE_MEMORY_BYTES = _worker("stage_memory_peak_bytes", "gauge", "bytes",
    "Measured peak memory of a stage above the baseline, in bytes.", "stage")
STORAGE_READ_BYTES = _worker("storage_read_bytes_total", "counter", "bytes",
    "Bytes of objects read from the object store.")
STORAGE_WRITTEN_BYTES = _worker("storage_written_bytes_total", "counter", "bytes",
    "Bytes of objects sent to the object store.")
STORAGE_REQUESTS = _worker("storage_requests_total", "counter", "",
    "Requests sent to the object store, retries included, by operation such as GetObject.",
    "operation")
STORAGE_RETRIES = _worker("storage_retries_total", "counter", "",
    "Requests that were sent to the object store again after a failure.", "operation")
STORAGE_ERRORS = _worker("storage_errors_total", "counter", "",
    "Calls of the object store that failed after all retries; that an object is missing or has "
    "changed does not count.", "operation")

# -- the operator itself ---------------------------------------------------------------------

OPERATOR_INFO = _operator("operator_info", "gauge", "",
    "Always 1; the labels give the versions of the operator and of Python.", "version", "python")
LEADER = _operator("operator_leader", "gauge", "",
    "1 for the replica that reconciles jobs, 0 for one that waits to take its place.")
OVERLAPS = _operator("operator_overlaps", "gauge", "",
    "Namespaces in which another operator would take the same jobs; each job stays with the "
    "operator that took it first.", "operator")
RECONCILES = _operator("operator_reconciles_total", "counter", "",
    "Reconciliations of a job by outcome: ok, conflict, refused (by the API server) or error.",
    "outcome")
RECONCILE_SECONDS = _operator("operator_reconcile_duration_seconds", "histogram", "seconds",
    "Duration of one reconciliation of a job, in seconds.")
QUEUE_DEPTH = _operator("operator_queue_depth", "gauge", "",
    "Jobs that are due for reconciliation and not yet taken up.")
QUEUE_LATENESS_SECONDS = _operator("operator_queue_lateness_seconds", "gauge", "seconds",
    "Time since the most overdue job became due, in seconds; 0 when none is.")
LAST_RESYNC = _operator("operator_last_resync_timestamp_seconds", "gauge", "seconds",
    "To when all jobs are known: when the watch that has been silent for longest last heard of the "
    "API server.")
API_REQUESTS = _operator("operator_api_requests_total", "counter", "",
    "Requests to the Kubernetes API by verb, resource and HTTP status; code is unanswered where "
    "none came. Of watches, those that are opened.", "verb", "resource", "code")
API_WAIT_SECONDS = _operator("operator_api_wait_seconds_total", "counter", "seconds",
    "Time that requests waited for their turn under apiQps and apiBurst, in seconds.")
WATCH_FAILURES = _operator("operator_watch_failures_total", "counter", "",
    "Watches that broke off and lists that failed, by kind; each is repeated.", "kind")
WORKER_ASKS = _operator("operator_worker_asks_total", "counter", "",
    "Questions to rank 0 of running jobs, by outcome: answered, refused (what came is no status of "
    "its attempt) or unreachable.", "outcome")
JOBS_WAITING = _operator("operator_waiting_jobs", "gauge", "",
    "Jobs that could start if there were room for them; see maxRunningJobs.")
API_SECONDS = _operator("operator_api_request_duration_seconds", "histogram", "seconds",
    "Duration of a request to the Kubernetes API, in seconds.", "verb")
ATTEMPTS = _operator("operator_attempts_total", "counter", "", "Attempts started.", "job_namespace")
ATTEMPT_FAILURES = _operator("operator_attempt_failures_total", "counter", "",
    "Attempts that failed, by reason as in status.lastFailure.", "job_namespace", "reason")
JOB_SECONDS = _operator("operator_job_duration_seconds", "histogram", "seconds",
    "Time from start to completion of jobs that finished, by result: succeeded or failed; in "
    "seconds.", "job_namespace", "result")
JOBS = _operator("jobs", "gauge", "", "Number of EmbeddingJobs in each phase.", "phase")

# -- a job, as long as it exists --------------------------------------------------------------

JOB_INFO = _job("info", "",
    "Always 1; the labels describe the job: uid, output, grid (auto until planned), device.",
    "job_uid", "output", "grid", "device")
JOB_PHASE = _job("phase", "", "1 for the job's current phase.", "phase")
JOB_STAGE = _job("stage", "", "1 for the current stage of a running job.", "stage")
JOB_CONDITION = _job("condition", "",
    "A condition of the job: 1 for True, 0 for False.", "condition", "reason")
JOB_CREATED = _job("created_timestamp_seconds", "seconds", "When the job was created.")
JOB_STARTED = _job("start_timestamp_seconds", "seconds",
    "When the job was started or last resumed; absent before.")
JOB_COMPLETED = _job("completion_timestamp_seconds", "seconds",
    "When the job succeeded or failed; absent before.")
JOB_ATTEMPT = _job("attempt", "",
    "Number of the current or last attempt, from 1; 0 before the first.")
JOB_FAILURES = _job("failures", "", "Failed attempts that count against spec.backoffLimit.")
JOB_BACKOFF_LIMIT = _job("backoff_limit", "", "Number of retries that spec.backoffLimit allows.")
JOB_LAST_FAILURE = _job("last_failure_info", "",
    "1 where an attempt failed; the label gives the reason of the newest failure.", "reason")
JOB_FAILED = _job("failure_timestamp_seconds", "seconds",
    "When the job failed without further retries; the labels give its output and the cause: that "
    "of the last attempt where too many failed.", "output", "reason")
JOB_WORKERS = _job("workers", "",
    "Workers of the current attempt by state: desired, ready or failed.", "state")
JOB_CONFIRMED = _job("confirmed", "",
    "1 for a job that computed nothing, since inputs, model and job had not changed; 0 for one "
    "that published a version; absent before either.")
JOB_PROGRESS_RATIO = _job("progress_ratio", "ratio",
    "Progress of the current attempt, from 0 to 1; absent before it starts.")

# -- the last run of a job: kept after its workers are gone, as long as the job exists ----------

RUN_INFO = _run("info", "",
    "Always 1; the labels describe the last run that published: version, grid and kernels.",
    "output_version", "grid", "kernels")
RUN_SECONDS = _run("duration_seconds", "seconds", "Duration of the last run, in seconds.")
RUN_NODES = _run("nodes", "", "Nodes of the last run's graph.")
RUN_EDGES = _run("edges", "", "Edges of the last run's graph.")
RUN_REFRESHED_ROWS = _run("refreshed_rows", "",
    "Rows of the results that the last run computed, where it took over all others from the "
    "version before (refresh.keep); absent where it computed all.")
RUN_RESUMED_LAYER = _run("resumed_layer", "",
    "Layer, from 1, that an earlier attempt had kept and after which the last run went on; absent "
    "where it computed all.")
RUN_KEPT_LAYERS = _run("kept_layers", "",
    "Number of layers that the last run kept for a next attempt or the next run; absent where "
    "there were none.")
RUN_DROPPED_EDGES = _run("dropped_edges", "",
    "Edges (rows of the input) that the last run left out, since an end is not among the nodes; "
    "absent where none were.", "relation")
RUN_EMPTY_RELATIONS = _run("empty_relations", "",
    "Relations whose input had no objects in the last run, as their edge types allow; absent where "
    "there were none.")
RUN_MISSING_DAYS = _run("missing_days", "",
    "Days of windows without objects in the last run, as the windows allow; absent where there "
    "were none.")
RUN_FILLED_NODES = _run("filled_nodes", "",
    "New nodes of the last run, which the model's table has no rows of and which got zeros or the "
    "mean; absent where there were none.", "node_type")
RUN_COMPARED_ROWS = _run("compared_rows", "",
    "Rows of the last run's version beside the version before, by node type (empty where there is "
    "one; user/logits or logits where the model has several results) and kind: new, removed, "
    "changed, zero (vectors) or duplicate (vectors); absent where there was nothing to compare "
    "with.", "node_type", "kind")
RUN_COSINE = _run("cosine", "",
    "Cosine between a row and the same row of the version before that 5% of the rows do not "
    "exceed; absent where the vectors are not comparable.", "node_type")
RUN_OVERLAP = _run("neighbours_kept_ratio", "ratio",
    "Share of its 10 nearest neighbours that a row has kept since the version before, on average, "
    "within a sample.", "node_type")
RUN_RESIDUAL = _run("unexplained_variance_ratio", "ratio",
    "Share of the sample's variance that no rotation and scaling of the vectors explains.",
    "node_type")
RUN_COMPARISON_SECONDS = _run("comparison_seconds", "seconds",
    "Duration of the comparison with the version before, in seconds.")
RUN_CHECKED_ROWS = _run("checked_rows", "",
    "Rows of a layer that were computed a second time, in float64, and compared.", "layer")
RUN_CHECKED_ERROR = _run("checked_error_ratio", "ratio",
    "Largest error of a layer's rows that were computed a second time, as a share of the largest "
    "magnitude of the rows.", "layer")
RUN_CHECKED_SECONDS = _run("self_check_seconds", "seconds",
    "Duration of computing rows of all layers a second time, on the slowest worker, in seconds.")
RUN_STAGE_SECONDS = _run("stage_seconds", "seconds",
    "Duration of a stage of the last run on the slowest worker, in seconds.", "stage")
RUN_SENT_BYTES = _run("exchange_sent_bytes", "bytes",
    "Bytes that all workers sent in the last run.", "axis", "primitive")
RUN_PLANNED_BYTES = _run("exchange_planned_sent_bytes", "bytes",
    "Bytes that the plan expected all workers to send; absent for what is not planned.",
    "axis", "primitive")
RUN_MESSAGES = _run("exchange_sent_messages", "",
    "Messages that all workers sent in the last run.", "axis", "primitive")
RUN_PLANNED_MESSAGES = _run("exchange_planned_sent_messages", "",
    "Messages that the plan expected all workers to send; absent for what is not planned.",
    "axis", "primitive")
RUN_WAIT_SECONDS = _run("exchange_wait_seconds", "seconds",
    "Time that all workers together were blocked waiting for data in the last run, in seconds.",
    "axis", "primitive")
RUN_WAIT_LONGEST_SECONDS = _run("exchange_longest_wait_seconds", "seconds",
    "Time that each layer's longest waiting worker was blocked in the last run, in seconds.",
    "axis", "primitive")
RUN_OVERLAPPED_SECONDS = _run("exchange_overlapped_compute_seconds", "seconds",
    "Computation that all workers together overlapped with communication in the last run, in "
    "seconds.", "axis", "primitive")
RUN_IMBALANCE_RATIO = _run("exchange_imbalance_ratio", "ratio",
    "Bytes that each layer's busiest worker sent over the mean of all workers in the last run; "
    "1 is balanced.", "axis", "primitive")
RUN_GROUPS = _run("exchange_groups", "",
    "Groups that all workers received in the last run.", "axis", "primitive")
RUN_GROUP_BYTES = _run("exchange_group_largest_bytes", "bytes",
    "Size of the largest group in the last run, in bytes.", "axis", "primitive")
RUN_DEPTH = _run("exchange_depth", "",
    "Largest number of groups in flight at the same time in the last run.", "axis", "primitive")
RUN_MEMORY_PEAK_BYTES = _run("memory_peak_bytes", "bytes",
    "Measured peak memory above the baseline of the last run's fullest worker, in bytes.")
RUN_MEMORY_PLANNED_BYTES = _run("memory_planned_bytes", "bytes",
    "Estimated peak memory above the baseline of the last run's fullest worker, in bytes.")
RUN_CONTAINER_PEAK_BYTES = _run("memory_container_peak_bytes", "bytes",
    "Measured peak memory of the last run's fullest container, with imports and all its processes, "
    "in bytes.")
RUN_WORKER_SENT_BYTES = _run("worker_sent_bytes", "bytes",
    "Bytes that a worker sent along an axis of the grid in the last run; of at most 64 workers.",
    *_PLACE, "axis")
RUN_WORKER_WAIT_SECONDS = _run("worker_wait_seconds", "seconds",
    "Time that a worker was blocked waiting in the last run, in seconds.", *_PLACE)
RUN_WORKER_PEAK_BYTES = _run("worker_memory_peak_bytes", "bytes",
    "Measured peak memory of a worker above its baseline in the last run, in bytes.", *_PLACE)
RUN_WORKER_PLANNED_BYTES = _run("worker_memory_planned_bytes", "bytes",
    "Estimated peak memory of a worker above its baseline in the last run, in bytes.", *_PLACE)
RUN_STORAGE_READ_BYTES = _run("storage_read_bytes", "bytes",
    "Bytes of objects that all workers read from the object store in the last run.")
RUN_STORAGE_WRITTEN_BYTES = _run("storage_written_bytes", "bytes",
    "Bytes of objects that all workers sent to the object store in the last run.")
RUN_STORAGE_REQUESTS = _run("storage_requests", "",
    "Requests that all workers sent to the object store in the last run, retries included.")
RUN_STORAGE_RETRIES = _run("storage_retries", "",
    "Requests that all workers sent to the object store again after a failure in the last run.")
RUN_STORAGE_ERRORS = _run("storage_errors", "",
    "Calls of the object store that failed after all retries in the last run.")

# -- the push of a job's version into the index of spec.push, as long as the job exists ----------

PUSH_REQUESTED = _push("requested_timestamp_seconds", "seconds",
    "When the newest push was asked for: by the job's completion, another spec.push or the "
    "annotation embertide.dev/push-requested.")
PUSH_FAILURES = _push("failures", "",
    "Attempts of the newest push that failed, those that a disruption ended apart.")
PUSH_LAST_SUCCESS = _push("last_success_timestamp_seconds", "seconds",
    "When this job last switched readers of the index; absent before the first time.")
PUSH_VERSION_TIME = _push("version_timestamp_seconds", "seconds",
    "When the run began that computed the version that readers were switched to, from which its "
    "age counts; absent before the first.")
PUSH_ROWS = _push("rows", "", "Rows of that version in the index.")
PUSH_SECONDS = _push("duration_seconds", "seconds",
    "Duration of the attempt that switched readers to it, in seconds.")

# -- an output: kept after its jobs are deleted and after a restart of the operator -------------

OUTPUT_INFO = _output("info", "",
    "Always 1; the labels name the job and the version that the output was last published by; "
    "absent before.", "job_name", "output_version")
OUTPUT_LAST_SUCCESS = _output("last_success_timestamp_seconds", "seconds",
    "When a job last published this output; absent before the first.")
OUTPUT_LAST_FAILURE = _output("last_failure_timestamp_seconds", "seconds",
    "When a job for this output last failed without further retries; absent before the first.")
OUTPUT_FIRST_JOB = _output("first_job_timestamp_seconds", "seconds",
    "When the first known job for this output was created.")
OUTPUT_LAST_JOB = _output("last_job_timestamp_seconds", "seconds",
    "When the newest job for this output was created.")
OUTPUT_OBJECTIVE_SECONDS = _output("freshness_objective_seconds", "seconds",
    "Largest age that this output shall have (spec.freshness.maxAge of its newest job), in "
    "seconds; absent without an objective.")

# -- a schedule: known from its CronJob on, before it has a job -----------------------------------

SCHEDULE_INFO = _schedule("info", "",
    "Always 1; the label output is that of the schedule's jobs, with placeholders.", "output")
SCHEDULE_SUSPENDED = _schedule("suspended", "",
    "1 while the schedule's CronJob is suspended, else 0.")
SCHEDULE_LAST_FIRING = _schedule("last_firing_timestamp_seconds", "seconds",
    "When the schedule last fired; absent before the first time.")
SCHEDULE_NEXT_FIRING = _schedule("next_firing_timestamp_seconds", "seconds",
    "When the schedule fires next; absent while it is suspended.")
SCHEDULE_LAST_SUCCESS = _schedule("last_success_timestamp_seconds", "seconds",
    "When a job of the schedule last published; absent before the first time.")
SCHEDULE_MISSED = _schedule("missed_firings", "",
    "Number of firings in a row, up to now, that did not take place.")
SCHEDULE_FAILED = _schedule("failed_firings", "",
    "Number of firings in a row, up to now, that made no job.")
SCHEDULE_CONDITION = _schedule("condition", "",
    "1 if the condition of the schedule is true, 0 if it is false: Submitted, Fresh, Ready.",
    "condition", "reason")
SCHEDULE_OBJECTIVE_SECONDS = _schedule("freshness_objective_seconds", "seconds",
    "Largest age that the schedule's output shall have (spec.freshness.maxAge of its template), in "
    "seconds; absent without an objective.")
# fmt: on
