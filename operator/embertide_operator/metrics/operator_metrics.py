"""The operator's metrics: its own work, and the series of jobs, last runs and outputs.

Counters count what this process did; the series are made again at each scrape from the jobs as they
were last read and from the records of the outputs. kopf's own watch of jobs is not counted.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily

from embertide.spec import metric_names as names
from embertide.spec.metric_names import Metric
from embertide_operator.api.routes import Object
from embertide_operator.api.store import Name
from embertide_operator.job.status import Draft
from embertide_operator.metrics.job_series import (
    cause_of,
    essentials,
    job_series,
    output_series,
    schedule_series,
    seconds,
)
from embertide_operator.metrics.outputs import OutputRecord

_RECONCILE_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_API_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
_JOB_BOUNDS = (30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 57600, 86400)
_RESULTS = {"Succeeded": "succeeded", "Failed": "failed"}


class Metrics:
    """Metrics that the controller updates, in their own registry."""

    def __init__(self) -> None:
        # When a counter began is the process's start time.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._reconciles = self._counter(names.RECONCILES)
        self._reconcile_seconds = self._histogram(names.RECONCILE_SECONDS, _RECONCILE_BOUNDS)
        self._requests = self._counter(names.API_REQUESTS)
        self._request_seconds = self._histogram(names.API_SECONDS, _API_BOUNDS)
        self._api_wait = self._counter(names.API_WAIT_SECONDS)
        self._asked = self._counter(names.WORKER_ASKS)
        self._watch_failures = self._counter(names.WATCH_FAILURES)
        self._waiting = self._gauge(names.JOBS_WAITING)
        self._attempts = self._counter(names.ATTEMPTS)
        self._failures = self._counter(names.ATTEMPT_FAILURES)
        self._job_seconds = self._histogram(names.JOB_SECONDS, _JOB_BOUNDS)
        self._queue_depth = self._gauge(names.QUEUE_DEPTH)
        self._lateness = self._gauge(names.QUEUE_LATENESS_SECONDS)
        self._resync = self._gauge(names.LAST_RESYNC)
        self._leads = self._gauge(names.LEADER)
        self._overlaps = self._gauge(names.OVERLAPS)
        versions = importlib.metadata.version("embertide"), platform.python_version()
        self._gauge(names.OPERATOR_INFO).labels(*versions).set(1)
        self._jobs: dict[tuple[str, str], Object] = {}
        self._gone: set[str] = set()  # UIDs since the last resync
        self._outputs: Callable[[], Iterable[OutputRecord]] = tuple
        self._schedules: Callable[[], Iterable[tuple[Name, Object]]] = tuple
        self.registry.register(self)

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, metric: Metric, bounds: Iterable[float]) -> Histogram:
        return Histogram(
            metric.name, metric.help, metric.labels, buckets=tuple(bounds), registry=self.registry
        )

    def watch(
        self,
        queue_depth: Callable[[], float],
        lateness_seconds: Callable[[], float],
        outputs: Callable[[], Iterable[OutputRecord]],
    ) -> None:
        """Ask these at each scrape, from the scrape's thread."""
        self._queue_depth.set_function(queue_depth)
        self._lateness.set_function(lateness_seconds)
        self._outputs = outputs

    def watch_schedules(self, schedules: Callable[[], Iterable[tuple[Name, Object]]]) -> None:
        """Ask this at each scrape, from the scrape's thread: names and statuses."""
        self._schedules = schedules

    def watch_leadership(self, leads: Callable[[], bool]) -> None:
        """Ask this at each scrape, from the scrape's thread."""
        self._leads.set_function(leads)

    def overlapped(self, namespaces: dict[str, int]) -> None:
        """In so many namespaces each of these operators would take the same jobs."""
        self._overlaps.clear()
        for operator, count in namespaces.items():
            self._overlaps.labels(operator).set(count)

    def reconciled(self, outcome: str, seconds: float) -> None:
        """Count one reconciliation and its duration."""
        self._reconciles.labels(outcome).inc()
        self._reconcile_seconds.observe(seconds)

    def waited(self, seconds: float) -> None:
        """A request waited so long for its turn; see :class:`RateLimit`."""
        self._api_wait.inc(seconds)

    def asked(self, outcome: str) -> None:
        """Count one question to a worker: ``answered``, ``refused`` or ``unreachable``."""
        self._asked.labels(outcome).inc()

    def watch_failed(self, kind: str) -> None:
        """Count a watch of a kind that broke off, or a list that failed."""
        self._watch_failures.labels(kind).inc()

    def watch_admission(self, waiting: Callable[[], float]) -> None:
        """Ask this at each scrape, from the scrape's thread."""
        self._waiting.set_function(waiting)

    def requested(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Count one request to the Kubernetes API; see :class:`KubernetesApi`."""
        self._requests.labels(verb, resource, code).inc()
        self._request_seconds.labels(verb).observe(seconds)

    def resynced(self, jobs: list[Object], now: float) -> None:
        """These are all jobs, as they were at this time (seconds since the epoch)."""
        self._resync.set(now)
        gone, self._gone = self._gone, set()
        left = [job for job in jobs if job["metadata"]["uid"] not in gone]
        self._jobs = {_key(job): essentials(job) for job in left}

    def job_written(self, old: Object, job: Object, draft: Draft) -> None:
        """A job's status was written: count what has happened since ``old``, its status before."""
        self._jobs[_key(job)] = essentials(job)
        namespace, new = job["metadata"]["namespace"], draft.fields
        self._attempts.labels(namespace).inc(max(0, new["attempt"] - old.get("attempt", 0)))
        if any(event.reason in ("AttemptFailed", "Failed") for event in draft.events):
            self._failures.labels(namespace, cause_of(draft.fields)).inc()
        result = _RESULTS.get(new["phase"])
        began, ended = seconds(new.get("startTime")), seconds(new.get("completionTime"))
        if result and old.get("phase") != new["phase"] and began and ended:
            self._job_seconds.labels(namespace, result).observe(ended - began)

    def job_gone(self, namespace: str, name: str) -> None:
        """The job was deleted."""
        job = self._jobs.pop((namespace, name), None)
        if job is not None:
            self._gone.add(job["metadata"]["uid"])

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The series of jobs, their last runs, all outputs and schedules, at scrape time."""
        yield from job_series(list(self._jobs.values())).families()
        yield from output_series(self._outputs()).families()
        yield from schedule_series(self._schedules()).families()


def _key(job: Object) -> tuple[str, str]:
    return job["metadata"]["namespace"], job["metadata"]["name"]
