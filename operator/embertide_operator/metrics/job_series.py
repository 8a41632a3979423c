"""Metrics about jobs, their last runs and their outputs: pure functions of API objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from prometheus_client.core import GaugeMetricFamily

from embertide.spec import metric_names as names
from embertide.spec.grid import GridShape
from embertide.spec.metric_names import Metric
from embertide.spec.status import Phase
from embertide.spec.version_names import begun
from embertide_operator.api.routes import Object
from embertide_operator.api.store import Name
from embertide_operator.job.observe import condition, output_of
from embertide_operator.job.status import parse_time
from embertide_operator.metrics.outputs import OutputRecord

Labels = tuple[str, ...]


class Series:
    """Metric families that are filled sample by sample."""

    def __init__(self) -> None:
        self._families: dict[str, GaugeMetricFamily] = {}

    def add(self, metric: Metric, labels: Labels, value: float | None) -> None:
        """Add a sample; None is left out."""
        if metric.name not in self._families:
            family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            self._families[metric.name] = family
        if value is not None:
            self._families[metric.name].add_metric(labels, value)

    def families(self) -> Iterator[GaugeMetricFamily]:
        """All of them."""
        yield from self._families.values()


def essentials(job: Object) -> Object:
    """What the series need of a job: a fraction of it, since thousands may be kept."""
    meta, spec = job["metadata"], job["spec"]
    kept = ("namespace", "name", "uid", "creationTimestamp")
    workers = spec.get("workers") or {}
    some = (spec.get("inference") or {}).get("targets") is not None
    return {
        "metadata": {key: meta[key] for key in kept},
        "spec": {
            "output": {"uri": spec["output"]["uri"]},
            "inference": {"targets": {} if some else None},
            "workers": {"device": workers.get("device", "cpu")},
            "backoffLimit": spec.get("backoffLimit", 0),
        },
        "status": {key: v for key, v in (job.get("status") or {}).items() if key != "failureLog"},
    }


def job_series(jobs: Iterable[Object]) -> Series:
    """The series of every job that exists, and of its last run."""
    series = Series()
    phases = dict.fromkeys(get_args(Phase), 0)
    for job in jobs:
        status = job.get("status") or {}
        phase = status.get("phase", "Pending")
        phases[phase] = phases.get(phase, 0) + 1
        _add_job(series, job, status, phase)
        _add_conditions(series, job, status)
        _add_push(series, _who(job), status.get("push") or {})
        _add_run(series, job, status.get("report") or {})
    for phase, count in phases.items():
        series.add(names.JOBS, (phase,), count)
    return series


def _who(job: Object) -> Labels:
    return job["metadata"]["namespace"], job["metadata"]["name"]


def _add_job(series: Series, job: Object, status: Object, phase: str) -> None:
    who, meta, spec = _who(job), job["metadata"], job["spec"]
    grid = (status.get("plan") or {}).get("grid", "auto")
    device = spec["workers"]["device"]
    series.add(names.JOB_INFO, (*who, meta["uid"], output_of(job), grid, device), 1)
    series.add(names.JOB_PHASE, (*who, phase), 1)
    series.add(names.JOB_CREATED, who, seconds(meta["creationTimestamp"]))
    series.add(names.JOB_STARTED, who, seconds(status.get("startTime")))
    series.add(names.JOB_COMPLETED, who, seconds(status.get("completionTime")))
    series.add(names.JOB_ATTEMPT, who, status.get("attempt", 0))
    series.add(names.JOB_FAILURES, who, status.get("failures", 0))
    series.add(names.JOB_BACKOFF_LIMIT, who, spec["backoffLimit"])
    reason = (status.get("lastFailure") or {}).get("reason")
    series.add(names.JOB_LAST_FAILURE, (*who, reason or ""), 1 if reason else None)
    if phase == "Failed":
        at = seconds(status.get("completionTime"))
        series.add(names.JOB_FAILED, (*who, output_of(job), cause_of(status)), at)
    for state in ("desired", "ready", "failed"):
        series.add(names.JOB_WORKERS, (*who, state), (status.get("workers") or {}).get(state, 0))
    output = status.get("output")
    confirmed = None if output is None else float(bool(output.get("confirmed")))
    series.add(names.JOB_CONFIRMED, who, confirmed)
    progress = status.get("progress") or {}
    percent = progress.get("percent")
    series.add(names.JOB_PROGRESS_RATIO, who, None if percent is None else percent / 100)
    running = 1 if phase == "Running" and progress else None
    series.add(names.JOB_STAGE, (*who, progress.get("stage", "")), running)


def cause_of(status: Object) -> str:
    """Why a job has failed: the reason of its last attempt's failure where too many failed."""
    reason = condition({"status": status}, "Failed").get("reason")
    if reason in (None, "BackoffLimitExceeded"):
        reason = (status.get("lastFailure") or {}).get("reason")
    return str(reason or "")


def _add_conditions(series: Series, job: Object, status: Object) -> None:
    for item in status.get("conditions") or []:
        labels = (*_who(job), item["type"], item["reason"])
        series.add(names.JOB_CONDITION, labels, float(item["status"] == "True"))


def _add_push(series: Series, who: Labels, push: Object) -> None:
    """What the index has; nothing of a job that pushes nothing."""
    if not push:
        return
    version = push.get("version")
    for metric, value in (
        (names.PUSH_REQUESTED, seconds(push.get("requestTime"))),
        (names.PUSH_FAILURES, push.get("attempts", 0)),
        (names.PUSH_LAST_SUCCESS, seconds(push.get("pushedTime"))),
        (names.PUSH_VERSION_TIME, begun(version).timestamp() if version else None),
        (names.PUSH_ROWS, push.get("rows")),
        (names.PUSH_SECONDS, push.get("seconds")),
    ):
        series.add(metric, who, value)


def _add_run(series: Series, job: Object, report: Object) -> None:
    """The summary in ``status.report``; nothing before the job has published."""
    if not report:
        return
    run = (*_who(job), str(report.get("attempt", "")))
    place = tuple(str(report.get(key, "")) for key in ("version", "grid", "kernels"))
    series.add(names.RUN_INFO, (*run, *place), 1)
    memory, stored = report.get("memory") or {}, report.get("storage") or {}
    for metric, value in (
        (names.RUN_SECONDS, report.get("seconds")),
        (names.RUN_NODES, report.get("nodes")),
        (names.RUN_EDGES, report.get("edges")),
        (names.RUN_REFRESHED_ROWS, report.get("refreshedRows")),
        (names.RUN_RESUMED_LAYER, report.get("resumedLayer")),
        (names.RUN_KEPT_LAYERS, len(report.get("keptLayers") or []) or None),
        (names.RUN_MEMORY_PEAK_BYTES, memory.get("peakBytes")),
        (names.RUN_MEMORY_PLANNED_BYTES, memory.get("plannedBytes")),
        (names.RUN_CONTAINER_PEAK_BYTES, memory.get("containerPeakBytes")),
        (names.RUN_STORAGE_READ_BYTES, stored.get("readBytes")),
        (names.RUN_STORAGE_WRITTEN_BYTES, stored.get("writtenBytes")),
        (names.RUN_STORAGE_REQUESTS, stored.get("requests")),
        (names.RUN_STORAGE_RETRIES, stored.get("retries")),
        (names.RUN_STORAGE_ERRORS, stored.get("errors")),
    ):
        series.add(metric, run, value)
    _add_omissions(series, run, report)
    _add_comparison(series, run, report.get("comparison") or {})
    _add_self_check(series, run, report.get("selfCheck") or {})
    for stage in report.get("stages") or []:
        series.add(names.RUN_STAGE_SECONDS, (*run, stage["name"]), stage["seconds"])
    for item in report.get("exchange") or []:
        _add_exchange(series, run, item, str(report.get("grid", "1x1")))
    for item in report.get("workers") or []:
        _add_worker(series, run, item, str(report.get("grid", "1x1")))


def _add_omissions(series: Series, run: Labels, report: Object) -> None:
    """What the run did without, because its job allows it."""
    for dropped in report.get("droppedEdges") or []:
        series.add(names.RUN_DROPPED_EDGES, (*run, dropped["name"]), dropped["edges"])
    for filled in report.get("filledNodes") or []:
        series.add(names.RUN_FILLED_NODES, (*run, filled["name"]), filled["nodes"])
    empty = len(report.get("emptyRelations") or [])
    series.add(names.RUN_EMPTY_RELATIONS, run, empty or None)
    series.add(names.RUN_MISSING_DAYS, run, report.get("missingDays"))


_COMPARED_ROWS = ("new", "removed", "changed", "zero", "duplicate")


def _add_comparison(series: Series, run: Labels, comparison: Object) -> None:
    """How the version differs from the one before it."""
    series.add(names.RUN_COMPARISON_SECONDS, run, comparison.get("seconds"))
    for item in comparison.get("types") or []:
        labels = (*run, item.get("name", ""))
        for kind in _COMPARED_ROWS:
            series.add(names.RUN_COMPARED_ROWS, (*labels, kind), item[f"{kind}Rows"])
        series.add(names.RUN_COSINE, labels, item.get("cosine"))
        series.add(names.RUN_OVERLAP, labels, item.get("overlap"))
        series.add(names.RUN_RESIDUAL, labels, item.get("residual"))


def _add_self_check(series: Series, run: Labels, check: Object) -> None:
    """How far rows are from those computed a second time."""
    series.add(names.RUN_CHECKED_SECONDS, run, check.get("seconds"))
    for item in check.get("layers") or []:
        labels = (*run, str(item["layer"]))
        series.add(names.RUN_CHECKED_ROWS, labels, item["rows"])
        series.add(names.RUN_CHECKED_ERROR, labels, item["largestError"])


_EXCHANGE = (
    (names.RUN_SENT_BYTES, "bytes"),
    (names.RUN_PLANNED_BYTES, "plannedBytes"),
    (names.RUN_MESSAGES, "messages"),
    (names.RUN_PLANNED_MESSAGES, "plannedMessages"),
    (names.RUN_WAIT_SECONDS, "waitSeconds"),
    (names.RUN_WAIT_LONGEST_SECONDS, "longestWaitSeconds"),
    (names.RUN_OVERLAPPED_SECONDS, "overlappedSeconds"),
    (names.RUN_GROUPS, "groups"),
    (names.RUN_GROUP_BYTES, "largestGroupBytes"),
    (names.RUN_DEPTH, "depth"),
)


def _add_exchange(series: Series, run: Labels, item: Mapping[str, Any], grid: str) -> None:
    labels = (*run, item["axis"], item["primitive"])
    for metric, field in _EXCHANGE:
        series.add(metric, labels, item.get(field))
    graph, _, feature = grid.partition("x")
    mean = item["bytes"] / (int(graph) * int(feature))
    series.add(names.RUN_IMBALANCE_RATIO, labels, item["mostBytes"] / mean if mean else None)


def _add_worker(series: Series, run: Labels, item: Mapping[str, Any], grid: str) -> None:
    place = GridShape.parse(grid).coordinates(item["rank"])
    labels = (*run, str(item["rank"]), *map(str, place))
    for axis in ("graph", "feature"):
        series.add(names.RUN_WORKER_SENT_BYTES, (*labels, axis), item[f"{axis}Bytes"])
    series.add(names.RUN_WORKER_WAIT_SECONDS, labels, item["waitSeconds"])
    series.add(names.RUN_WORKER_PEAK_BYTES, labels, item["peakBytes"])
    series.add(names.RUN_WORKER_PLANNED_BYTES, labels, item["plannedBytes"])


def output_series(records: Iterable[OutputRecord]) -> Series:
    """The series of every known output."""
    series = Series()
    for record in records:
        at = record.key
        series.add(names.OUTPUT_FIRST_JOB, at, seconds(record.first_job))
        series.add(names.OUTPUT_LAST_JOB, at, seconds(record.last_job))
        series.add(names.OUTPUT_LAST_SUCCESS, at, seconds(record.last_success))
        series.add(names.OUTPUT_LAST_FAILURE, at, seconds(record.last_failure))
        series.add(names.OUTPUT_OBJECTIVE_SECONDS, at, record.max_age)
        published = (*at, record.job, record.version)
        series.add(names.OUTPUT_INFO, published, 1 if record.last_success else None)
    return series


def schedule_series(schedules: Iterable[tuple[Name, Object]]) -> Series:
    """The series of every known schedule, also before it has a job."""
    series = Series()
    for at, status in schedules:
        series.add(names.SCHEDULE_INFO, (*at, str(status.get("output") or "")), 1)
        series.add(names.SCHEDULE_SUSPENDED, at, float(bool(status.get("suspended"))))
        for metric, name in (
            (names.SCHEDULE_LAST_FIRING, "lastFiringTime"),
            (names.SCHEDULE_NEXT_FIRING, "nextFiringTime"),
            (names.SCHEDULE_LAST_SUCCESS, "lastSuccessTime"),
        ):
            series.add(metric, at, seconds(status.get(name)))
        series.add(names.SCHEDULE_MISSED, at, status.get("missed", 0))
        series.add(names.SCHEDULE_FAILED, at, status.get("failedFirings", 0))
        series.add(names.SCHEDULE_OBJECTIVE_SECONDS, at, status.get("maxAgeSeconds"))
        for item in status.get("conditions") or []:
            known = None if item["status"] == "Unknown" else float(item["status"] == "True")
            series.add(names.SCHEDULE_CONDITION, (*at, item["type"], item["reason"]), known)
    return series


def seconds(time: str | None) -> float | None:
    """Seconds since the epoch of a time of the API; None where it is not set."""
    return parse_time(time).timestamp() if time else None
