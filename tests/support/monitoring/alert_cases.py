"""For every alert a fault that fires it: how series differ from those of a healthy cluster.

Series are in promtool's notation, as in ``healthy``; ``_`` is no sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.monitoring.healthy import (
    ACCEPTED,
    JOB,
    OPERATOR,
    OUTPUT,
    PLACES,
    SHARED,
    Series,
    healthy,
    worker,
)


@dataclass(frozen=True)
class Case:
    """A fault, in words and as series that replace or join the healthy ones; "" removes one.

    Attributes:
        alert: the only one that fires, once, at the minute ``at`` and with ``labels`` among its
            labels; at ``silent_at``, when its ``for`` is not over yet, nothing fires.
        gone: every healthy series whose text contains one of these is removed.
    """

    alert: str
    fault: str
    series: Series
    labels: Mapping[str, str]
    at: int = 40
    silent_at: int = 0
    gone: tuple[str, ...] = field(default=())

    def all_series(self) -> Series:
        """What Prometheus is given."""
        left = {
            text: values
            for text, values in healthy().items()
            if not any(part in text for part in self.gone)
        }
        return {text: values for text, values in {**left, **self.series}.items() if values}


_NAME = {"job_namespace": "shop", "job_name": "products"}
_PLACE = {"job_namespace": "shop", "output": "s3://shop/products"}
_FIRST = {**_NAME, "rank": "0", "graph_rank": "0", "feature_rank": "0"}
_RUNNING = f'embertide_job_phase{{{JOB}, phase="Running"}}'
_SUCCESS = f"embertide_output_last_success_timestamp_seconds{{{OUTPUT}}}"
_FAILURE = f"embertide_output_last_failure_timestamp_seconds{{{OUTPUT}}}"
_OBJECTIVE = f"embertide_output_freshness_objective_seconds{{{OUTPUT}}}"


def _failed(job: str, reason: str) -> str:
    """The series of a job that failed for good."""
    who = f'job_namespace="shop", job_name="{job}", output="s3://shop/products"'
    return f'embertide_job_failure_timestamp_seconds{{{who}, reason="{reason}"}}'


def _failed_firing(job: str, reason: str, at: int) -> dict[str, int]:
    """What there is of a schedule's job that failed for good, with values."""
    who = f'job_namespace="shop", job_name="{job}"'
    condition = 'condition="Failed", reason="BackoffLimitExceeded"'
    return {
        _failed(job, reason): at,
        f"embertide_job_condition{{{who}, {condition}}}": 1,
        f'embertide_job_info{{{who}, output="s3://shop/products"}}': 1,
    }


_HELD: Series = {
    _RUNNING: "",
    f'embertide_job_phase{{{JOB}, phase="Succeeded"}}': "1x120",
    f'embertide_job_condition{{{JOB}, condition="Published", reason="Held"}}': "1x120",
    f"embertide_job_completion_timestamp_seconds{{{JOB}}}": "120x120",
}
"""The job has completed with a version that its gate holds, after two minutes."""
NOT_PUSHED = f'embertide_job_condition{{{JOB}, condition="Pushed", reason="StoreUnavailable"}}'
_WAS_NOT_PUSHED: Series = {
    _RUNNING: "",
    f'embertide_job_phase{{{JOB}, phase="Succeeded"}}': "1x120",
    f"embertide_push_requested_timestamp_seconds{{{JOB}}}": "120x120",
    NOT_PUSHED: "0x120",
}
"""The job has completed after two minutes, and the push into its index fails."""
_FAILED: Series = {
    _RUNNING: "",
    f'embertide_job_phase{{{JOB}, phase="Failed"}}': "1x120",
    f'embertide_job_condition{{{JOB}, condition="Failed", reason="Input"}}': "1x120",
    f'embertide_job_workers{{{JOB}, state="ready"}}': "0x120",
    _FAILURE: "60x120",
    _failed("products", "Input"): "60x120",
}
FIRINGS: Series = {
    series: f"_x{1 + number * 5} {value}x120"
    for number, reason in enumerate(["Input", *["OutOfMemory"] * 5])
    for series, value in _failed_firing(f"nightly-{number}", reason, 60 + number * 300).items()
}
"""Six of one schedule, five minutes apart; they fail for two causes."""
_IDLE: Series = {
    f"{metric}{{{worker(rank)}{more}}}": "5000x120"
    for rank in range(len(PLACES))
    for metric, more in (
        ("embertide_processed_edges_total", ', stage="infer"'),
        ("embertide_processed_rows_total", ', stage="infer"'),
        ("embertide_exchange_sent_bytes_total", f", {SHARED}"),
        ("embertide_storage_read_bytes_total", ""),
        ("embertide_storage_written_bytes_total", ""),
    )
}


def _waits(rank: int, seconds: int) -> Series:
    """A worker that waits so long in every minute."""
    return {f"embertide_exchange_wait_seconds_sum{{{worker(rank)}, {SHARED}}}": f"0+{seconds}x120"}


_SCHEDULE = 'job_namespace="shop", schedule="nightly"'
_SUBMITTED = f'embertide_schedule_condition{{{_SCHEDULE}, condition="Submitted"'
_STALE = f'embertide_schedule_condition{{{_SCHEDULE}, condition="Fresh"'

CASES = (
    Case(
        "EmbertideScheduleNotSubmitted",
        "a placeholder is misspelt: every firing fails before there is a job",
        {f'{_SUBMITTED}, reason="SubmitFailed"}}': "0x120"},
        {"job_namespace": "shop", "schedule": "nightly", "reason": "SubmitFailed"},
        at=2,
    ),
    Case(
        "EmbertideScheduleStale",
        "a schedule is suspended before it had a job",
        {
            f'{_STALE}, reason="NeverPublished"}}': "0x120",
            f'embertide_schedule_info{{{_SCHEDULE}, output="s3://shop/nightly"}}': "1x120",
        },
        {"job_namespace": "shop", "schedule": "nightly", "output": "s3://shop/nightly"},
        at=3,
    ),
    Case(
        "EmbertideJobFailed",
        "a job fails for good on an input error",
        _FAILED,
        {**_PLACE, "reason": "Input"},
        at=3,
    ),
    Case(
        "EmbertideJobFailed",
        "six firings of a schedule run out of memory one after the other",
        FIRINGS,
        {**_PLACE, "reason": "OutOfMemory"},
    ),
    Case(
        "EmbertideJobRejected",
        "a job's spec is not valid",
        {
            _RUNNING: "",
            f'embertide_job_phase{{{JOB}, phase="Pending"}}': "1x120",
            f'embertide_job_condition{{{ACCEPTED}, reason="Valid"}}': "",
            f'embertide_job_condition{{{ACCEPTED}, reason="InvalidSpec"}}': "0x120",
        },
        {**_NAME, "reason": "InvalidSpec"},
        at=7,
        silent_at=3,
    ),
    Case(
        "EmbertideJobNotStarting",
        "no node has room for the pods",
        {_RUNNING: "", f'embertide_job_phase{{{JOB}, phase="Starting"}}': "1x120"},
        {**_NAME, "phase": "Starting"},
        silent_at=13,
    ),
    Case(
        "EmbertideJobStalled",
        "all workers hang: their counters and the progress stand still",
        {**_IDLE, f"embertide_job_progress_ratio{{{JOB}}}": "0.4x120"},
        _NAME,
        silent_at=4,
    ),
    Case(
        "EmbertideJobRestarting",
        "two attempts have failed and a third one runs",
        {f"embertide_job_failures{{{JOB}}}": "2x120"},
        _NAME,
        silent_at=3,
    ),
    Case(
        "EmbertideWorkerStraggler",
        "three workers wait for the fourth nearly all the time",
        {**_waits(0, 1), **_waits(1, 54), **_waits(2, 54), **_waits(3, 54)},
        _FIRST,
        silent_at=8,
    ),
    Case(
        "EmbertideWorkerMemoryNearLimit",
        "one worker's container grows to 95% of its limit, and its process does not",
        {f"embertide_memory_container_bytes{{{worker(0)}}}": "950x120"},
        _FIRST,
        at=3,
    ),
    Case(
        "EmbertideWorkerMemoryNearLimit",
        "one worker's process grows to 95% of the limit of a container that is not counted",
        {f"embertide_memory_resident_bytes{{{worker(0)}}}": "950x120"},
        _FIRST,
        at=3,
        gone=("embertide_memory_container_bytes",),
    ),
    Case(
        "EmbertideWorkersNotScraped",
        "no PodMonitor selects the workers",
        {},
        _NAME,
        silent_at=8,
        gone=('rank="',),
    ),
    Case(
        "EmbertideStorageErrors",
        "reading an object fails after all retries",
        {f'embertide_storage_errors_total{{{worker(0)}, operation="GetObject"}}': "0x30 1x90"},
        {**_NAME, "operation": "GetObject"},
        at=35,
        silent_at=29,
    ),
    Case(
        "EmbertideStorageErrors",
        "writing fails before the worker was scraped for the first time",
        {f'embertide_storage_errors_total{{{worker(0)}, operation="PutObject"}}': "_x30 1x90"},
        {**_NAME, "operation": "PutObject"},
        at=35,
        silent_at=29,
    ),
    Case(
        "EmbertideStorageRetries",
        "the store asks to slow down: one of four requests is sent again",
        {
            f'embertide_storage_retries_total{{{worker(rank)}, operation="GetObject"}}': "0+15x120"
            for rank in range(len(PLACES))
        },
        _NAME,
        silent_at=8,
    ),
    Case(
        "EmbertideOutputStale",
        "the last success is older than the objective of half an hour",
        {_OBJECTIVE: "1800x120"},
        _PLACE,
        silent_at=29,
    ),
    Case(
        "EmbertideVersionHeld",
        "the gate of the newest job holds its version",
        _HELD,
        _NAME | {"output": "s3://shop/products"},
        silent_at=0,
    ),
    Case(
        "EmbertideVersionHeld",
        "the gate holds the first version of an output, within its objective",
        _HELD | {_SUCCESS: "", _OBJECTIVE: "86400x120"},
        _NAME | {"output": "s3://shop/products"},
        silent_at=0,
    ),
    Case(
        "EmbertideNotPushed",
        "the first push of an output fails",
        _WAS_NOT_PUSHED,
        _NAME | {"output": "s3://shop/products", "reason": "StoreUnavailable"},
        silent_at=14,
    ),
    Case(
        "EmbertideNotPushed",
        "a push that was asked for again fails, the night before's succeeded",
        _WAS_NOT_PUSHED | {f"embertide_push_last_success_timestamp_seconds{{{JOB}}}": "60x120"},
        _NAME | {"output": "s3://shop/products", "reason": "StoreUnavailable"},
        silent_at=14,
    ),
    Case(
        "EmbertideOutputNeverSucceeded",
        "jobs with an objective of half an hour never publish",
        {_OBJECTIVE: "1800x120", _SUCCESS: ""},
        _PLACE,
        silent_at=29,
    ),
    Case(
        "EmbertideOperatorAbsent",
        "the operator is scaled to zero",
        {},
        {},
        silent_at=3,
        gone=("embertide_operator", "embertide_job_", "embertide_output_"),
    ),
    Case(
        "EmbertideOperatorStuck",
        "the operator may no longer list jobs",
        {f"embertide_operator_last_resync_timestamp_seconds{{{OPERATOR}}}": "0x120"},
        {"namespace": "embertide"},
        silent_at=5,
    ),
    Case(
        "EmbertideReconcileErrors",
        "the API server refuses the operator's requests for a job",
        {
            f'embertide_operator_reconciles_total{{{OPERATOR}, outcome="refused"}}': "0+30x120",
        },
        {"namespace": "embertide", "outcome": "refused"},
        silent_at=8,
    ),
    Case(
        "EmbertideOperatorQueueLate",
        "the most overdue job has waited for two minutes",
        {f"embertide_operator_queue_lateness_seconds{{{OPERATOR}}}": "120x120"},
        {"namespace": "embertide"},
        silent_at=5,
    ),
    Case(
        "EmbertideOperatorQueueLate",
        "the operator is restarted, again and again, for jobs that are overdue",
        {f"embertide_operator_queue_lateness_seconds{{{OPERATOR}}}": "0 70 0 " * 40},
        {"namespace": "embertide"},
        silent_at=5,
    ),
    Case(
        "EmbertideOperatorApiErrors",
        "one of five requests to the Kubernetes API is answered with 503",
        {
            f'embertide_operator_api_requests_total{{{OPERATOR}, verb="get", code="503"}}': (
                "0+15x120"
            ),
        },
        {"namespace": "embertide"},
        silent_at=8,
    ),
)

SILENT = (
    Case(
        "",
        "a held version whose output was published again later",
        _HELD | {_SUCCESS: "180x120"},
        {},
    ),
    Case(
        "",
        "the operator is late once",
        {f"embertide_operator_queue_lateness_seconds{{{OPERATOR}}}": "0x30 120 0x90"},
        {},
        at=36,
    ),
    Case(
        "",
        "a failed job whose output was published again later",
        _FAILED | {_SUCCESS: "120x120"},
        {},
    ),
    Case(
        "",
        "a long job whose percentage stands still while its workers compute",
        {f"embertide_job_progress_ratio{{{JOB}}}": "0.4x120"},
        {},
    ),
    Case(
        "",
        "a queue holds the pods",
        {
            _RUNNING: "",
            f'embertide_job_phase{{{JOB}, phase="Starting"}}': "1x120",
            f'embertide_job_condition{{{JOB}, condition="WorkersReady",'
            ' reason="SchedulingGated"}': "0x120",
        },
        {},
    ),
    Case(
        "",
        "a process maps memory that is charged to its peers' containers",
        {f"embertide_memory_resident_bytes{{{worker(0)}}}": "950x120"},
        {},
    ),
    Case("", "a first run under way, not older than its objective", {_SUCCESS: ""}, {}),
    Case("", "an output without an objective, however old", {_OBJECTIVE: ""}, {}, at=120),
    Case(
        "",
        "all workers wait for a slow network alike",
        {text: values for rank in range(len(PLACES)) for text, values in _waits(rank, 50).items()},
        {},
    ),
)
"""What must fire no alert."""
