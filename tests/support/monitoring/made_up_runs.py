"""Series of one whole run as Prometheus scrapes them every 15 s, in promtool's notation.

Every metric of the tables is there with its labels. Workers are scraped at different moments, and
their series end with the run; the operator's go on.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import product

from embertide.spec.metric_names import OPERATOR_METRICS, WORKER_METRICS, Metric
from tests.support.monitoring.healthy import PLACES, Series
from tests.support.monitoring.promql import exposed

SCRAPE_SECONDS = 15
STEP_SECONDS = 5
"""Of the clock on which samples lie: workers are scraped in turn."""
BEFORE_SECONDS = 610
"""So that 25 s lie between two whole minutes, at which graphs have their points."""
AFTER_SECONDS = 600

_NAMES = {"job_namespace": "shop", "job_name": "products", "namespace": "tools", "pod": "operator"}
_VALUES = {
    **{name: (value,) for name, value in _NAMES.items()},
    "attempt": ("1",),
    "axis": ("graph", "feature"),
    "condition": ("Pushed",),
    "layer": ("1",),
    "output": ("s3://shop/products",),
    "primitive": ("spmm",),
    "stage": ("ingest", "infer", "publish"),
    "state": ("desired", "ready", "failed"),
}
_BOUNDS = ("0.001", "1", "+Inf")
COUNTED = 1000
"""What every counter of a worker has reached at the end."""
LAST_RUN = 7000
"""What every total in the job's status says."""
WORKERS = len(PLACES)
_OBJECTIVE_SECONDS = 86400


@dataclass(frozen=True)
class MadeUpRun:
    """A run of so many seconds by a grid of 2 x 2 workers, and its operator."""

    seconds: int

    @property
    def end(self) -> int:
        """When it is over, in seconds on promtool's clock."""
        return BEFORE_SECONDS + self.seconds

    @property
    def moment(self) -> int:
        """When somebody looks: some minutes after its end."""
        return self.end + AFTER_SECONDS

    def series(self, asked: Container[str] | None = None) -> Series:
        """All of them, or those of some metrics by the names of their series."""
        found: Series = {}
        for metric in WORKER_METRICS:
            if asked is None or any(name in asked for name in exposed(metric)):
                for rank in range(len(PLACES)):
                    found |= self._of_worker(metric, rank)
        for metric in OPERATOR_METRICS:
            if asked is None or any(name in asked for name in exposed(metric)):
                found |= self._of_operator(metric)
        found['ALERTS{alertname="EmbertideJobFailed", alertstate="firing"}'] = "0x10"
        return found

    def _of_worker(self, metric: Metric, rank: int) -> Series:
        graph, feature = PLACES[rank]
        who = {"rank": str(rank), "graph_rank": str(graph), "feature_rank": str(feature)}
        first = BEFORE_SECONDS + STEP_SECONDS * (2 + rank % 3)
        samples = self._samples(metric, first, self.end)
        return dict.fromkeys(_names(metric, {"pod": f"worker-{rank}", **who}), samples)

    def _of_operator(self, metric: Metric) -> Series:
        first = self.end if metric.name.startswith("embertide_last_run_") else 0
        places = list(enumerate(PLACES)) if "rank" in metric.labels else [(0, (0, 0))]
        found: Series = {}
        for rank, (graph, feature) in places:
            who = {"rank": str(rank), "graph_rank": str(graph), "feature_rank": str(feature)}
            who = {name: value for name, value in who.items() if name in metric.labels}
            samples = self._samples(metric, first, self.moment)
            found |= dict.fromkeys(_names(metric, who), samples)
        return found

    def _samples(self, metric: Metric, first: int, end: int) -> str:
        """One value for each step of the clock; ``stale`` is how Prometheus ends a series."""
        values: list[str] = ["_"] * (first // STEP_SECONDS)
        for moment in range(first, end, STEP_SECONDS):
            scraped = (moment - first) % SCRAPE_SECONDS == 0
            values.append(self._value(metric, moment) if scraped else "_")
        ending = ["stale"] if end < self.moment else []
        return " ".join([*values, *ending])

    def _value(self, metric: Metric, moment: int) -> str:
        if metric.name.endswith("_timestamp_seconds"):
            return str(moment if "resync" in metric.name else BEFORE_SECONDS)
        if metric.name == "embertide_output_freshness_objective_seconds":
            return str(_OBJECTIVE_SECONDS)
        if metric.name.startswith("embertide_last_run_"):
            return "1" if metric.unit == "ratio" else str(LAST_RUN)
        if metric.kind == "gauge":
            return "1"
        if metric.name == "embertide_stage_seconds_total":
            return f"{(moment - BEFORE_SECONDS) / len(_VALUES['stage']):.3f}"
        return f"{COUNTED * max(0, moment - BEFORE_SECONDS) / self.seconds:.3f}"


RUNS = {"25 s": MadeUpRun(25), "2 h": MadeUpRun(7200)}


def _names(metric: Metric, who: dict[str, str]) -> Iterator[str]:
    """Every series of a metric; ``who`` gives some of its labels and those of the target."""
    target = {"namespace": "tools", "pod": "operator"} | who
    own = [name for name in metric.labels if name not in who]
    for values in product(*(_values(metric, name) for name in own)):
        labels = {**target, **dict(zip(own, values, strict=True))}
        for suffix, more in _parts(metric):
            text = ", ".join(f'{k}="{v}"' for k, v in (labels | more).items() if v)
            yield f"{metric.name}{suffix}{{{text}}}"


def _parts(metric: Metric) -> list[tuple[str, dict[str, str]]]:
    if metric.kind != "histogram":
        return [("", {})]
    buckets: list[tuple[str, dict[str, str]]] = [("_bucket", {"le": bound}) for bound in _BOUNDS]
    return [*buckets, ("_sum", {}), ("_count", {})]


def _values(metric: Metric, label: str) -> tuple[str, ...]:
    if label == "phase":
        return ("Running", "Succeeded")
    return _VALUES.get(label, ("",) if label == "relation" else ("some",))
