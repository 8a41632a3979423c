"""The operator's metrics: reconciliations, jobs by phase, and the age of outputs."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily

from embertide.spec.metric_names import JOBS, OUTPUT_AGE_SECONDS, RECONCILE_SECONDS, RECONCILES
from embertide_operator.kubernetes_api import Object
from embertide_operator.observe import is_true, output_of
from embertide_operator.status import parse_time


class Metrics:
    """Metrics that the controller updates, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        registry = self.registry
        self._reconciles = Counter(
            RECONCILES.name, RECONCILES.help, RECONCILES.labels, registry=registry
        )
        self._seconds = Histogram(RECONCILE_SECONDS.name, RECONCILE_SECONDS.help, registry=registry)
        self._phases = Gauge(JOBS.name, JOBS.help, JOBS.labels, registry=registry)
        self._published: dict[tuple[str, str], float] = {}
        self.registry.register(self)

    def reconciled(self, outcome: str, seconds: float) -> None:
        """Count one reconciliation and its duration."""
        self._reconciles.labels(outcome).inc()
        self._seconds.observe(seconds)

    def jobs(self, jobs: list[Object]) -> None:
        """Update phases and publication times from the jobs of a resync."""
        phases = Tally((job.get("status") or {}).get("phase", "Pending") for job in jobs)
        self._phases.clear()
        for phase, count in phases.items():
            self._phases.labels(phase).set(count)
        for job in jobs:
            done = (job.get("status") or {}).get("completionTime")
            if done and is_true(job, "Published"):
                at = (job["metadata"]["namespace"], output_of(job))
                moment = parse_time(done).timestamp()
                self._published[at] = max(moment, self._published.get(at, 0.0))

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The age of the newest published version of every output, at scrape time."""
        metric = OUTPUT_AGE_SECONDS
        age = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, moment in self._published.items():
            age.add_metric(labels, time.time() - moment)
        yield age
