"""A real Prometheus watches real jobs by the chart's monitors and rules, at the dashboards' side.

First a healthy run, in which nothing may fire. Then one fault for each alert that can be staged in
seconds; the others are fired by promtool (``unit/test_rules.py``). In the end every query of every
panel and rule has had data.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.indexes import await_pushed, database_of_pods
from tests.support.cluster.installation import NAMESPACE, RELEASE, operator_away
from tests.support.cluster.jobs import Inputs, Jobs, workers
from tests.support.cluster.nightly import REFRESH, WORKERS, Nights, kill_once_a_layer_is_kept
from tests.support.cluster.schedules import show_idle_schedule
from tests.support.go_programs import program
from tests.support.monitoring.prometheus import Prometheus, Series
from tests.support.monitoring.promql import metrics_in
from tests.support.monitoring.rules import alerts, impatient_copies, recorded
from tests.support.monitoring.scraping import scrape_configs
from tests.support.paths import ROOT
from tools.dashboards.panels import FILES, load, panels, queries

pytestmark = [pytest.mark.cluster, pytest.mark.needs("prometheus")]

# How long alerts hold before they fire: no longer than a fault lasts here, but longer than what is
# no fault, such as pods that start.
_WAITS = {
    "EmbertideJobFailed": "1s",
    "EmbertideJobRejected": "1s",
    "EmbertideJobNotStarting": "25s",
    "EmbertideJobStalled": "20s",
    "EmbertideOutputStale": "1s",
    "EmbertideOutputNeverSucceeded": "1s",
    "EmbertideVersionHeld": "1s",
    "EmbertideOperatorAbsent": "1s",
}
_RANGES = {"5m": "10s", "10m": "20s"}
_FAULTS = {
    "EmbertideJobFailed": {"output": "broken"},
    "EmbertideOutputNeverSucceeded": {"output": "broken"},
    "EmbertideOutputStale": {"output": "stale"},
    "EmbertideVersionHeld": {"job_name": "gated"},
    "EmbertideJobRejected": {"job_name": "taken", "reason": "NameConflict"},
    "EmbertideJobNotStarting": {"job_name": "homeless"},
    "EmbertideJobStalled": {"job_name": "hung"},
}
_HELD_SECONDS = 60.0
CONTINUED = "continued"


@dataclass
class Watch:
    """A Prometheus and the jobs that it watches; times in Unix seconds."""

    prometheus: Prometheus
    jobs: Jobs
    begin: float

    def over_time(self, expression: str, end: float | None = None) -> list[Series]:
        """The series of a query since the first job was applied, at every second."""
        # A second more, so that the newest samples lie before the last step.
        return self.prometheus.query_range(expression, self.begin, end or time.time() + 1)

    def assert_data(self, what: str, *expressions: str) -> None:
        """One of these queries has had a value that is a number."""
        assert any(map(self._has_data, expressions)), f"{what}: {', '.join(expressions)}"

    def _has_data(self, expression: str) -> bool:
        series = self.over_time(expression)
        return any(math.isfinite(value) for one in series for _, value in one.points)

    def await_scrapes(self, job: str, workers: int) -> None:
        """Wait until each worker of a job was scraped twice from now on."""
        begin = time.time()

        def scraped() -> bool:
            seconds = max(1, int(time.time() - begin))
            seen = f'count_over_time(embertide_worker_info{{job_name="{job}"}}[{seconds}s]) >= 2'
            return len(self.prometheus.query(seen)) == workers

        self.jobs.cluster.wait_for(scraped, 60, "two scrapes of every worker")


@pytest.fixture(scope="module")
def watch(
    cluster: KubernetesCluster, operator: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watch]:
    """Prometheus with the operator as its target, and an empty namespace."""
    folder = tmp_path_factory.mktemp("prometheus")
    rules = tmp_path_factory.mktemp("rules")
    prometheus = Prometheus(
        program("prometheus"),
        folder,
        scrape_configs(_monitors(cluster), cluster.kubeconfig),
        impatient_copies(rules, _WAITS, _RANGES),
        # On a busy machine an answer may take more than a second.
        interval=2,
    )
    namespace = cluster.namespace("watched")
    prometheus.start()
    try:
        cluster.wait_for(lambda: prometheus.query("embertide_operator_info"), 60, "the operator")
        cluster.wait_for(lambda: not prometheus.firing(), 30, "silence")
        yield Watch(prometheus, Jobs(cluster, namespace), time.time())
    finally:
        prometheus.stop()
        cluster.discard(namespace)


@pytest.fixture(scope="module")
def healthy(watch: Watch, big: Inputs) -> float:
    """When a job of 2 x 2 workers has published beside an earlier version, and has pushed."""
    output = f"{watch.jobs.root}/healthy"
    watch.jobs.apply(big.job("earlier", output))
    watch.jobs.complete("earlier")
    with database_of_pods() as database:
        database.make_secret(watch.jobs)
        job = big.job("healthy", output, workers=workers(2, 2), freshness={"maxAge": "26h"})
        job["spec"]["push"] = database.push_spec(watch.jobs, "healthy")
        watch.jobs.apply(job)
        _follow(watch)
    watch.jobs.cluster.wait_for(
        lambda: watch.prometheus.query('embertide_push_rows{job_name="healthy"}'),
        30,
        "the series of the push, which follows the last run's",
    )
    return time.time()


@pytest.fixture(scope="module")
def continued(watch: Watch, faults: Watch) -> None:
    """A job that took over rows of the version before, and a layer of an attempt that was killed.

    After all faults, since it waits for nothing that is watched.
    """
    jobs, output = watch.jobs, f"{watch.jobs.root}/nights"
    nights = Nights.make(jobs.cluster, f"watched-{secrets.token_hex(4)}")
    jobs.apply(nights.job("night-before", output, refresh=REFRESH, workers=WORKERS))
    jobs.complete("night-before")
    nights.commit(1)
    jobs.apply(nights.job(CONTINUED, output, refresh=REFRESH, workers=WORKERS))
    kill_once_a_layer_is_kept(jobs, nights.inputs.storage, CONTINUED, output)
    jobs.complete(CONTINUED)
    watch.jobs.cluster.wait_for(
        lambda: watch.prometheus.query(
            f'embertide_last_run_resumed_layer{{job_name="{CONTINUED}"}}'
        ),
        30,
        "the series of the run that was resumed",
    )


def _follow(watch: Watch) -> None:
    """Have every worker of the healthy job scraped, until readers of the index have its version."""
    # On a fast machine it would be over between two scrapes, and no counter would have grown.
    with watch.jobs.held("healthy", 1, "features") as held:
        watch.await_scrapes("healthy", 4)
        held.go_on_to("infer")
        watch.await_scrapes("healthy", 4)
    version = watch.jobs.complete("healthy")["output"]["version"]
    await_pushed(watch.jobs, "healthy", version)


@pytest.fixture(scope="module")
def faults(watch: Watch, healthy: float, big: Inputs, tiny: Inputs) -> Watch:
    """Several jobs, each with a fault of its own, until all their alerts fire."""
    jobs, root = watch.jobs, watch.jobs.root
    show_idle_schedule(jobs)
    broken = tiny.job("broken", f"{root}/broken", freshness={"maxAge": "1s"})
    broken["spec"]["input"]["nodes"][0]["features"]["uri"] += "-that-is-not-there"
    stale = tiny.job("stale", f"{root}/stale", freshness={"maxAge": "1s"})
    homeless = tiny.job("homeless", f"{root}/homeless")
    nowhere = {"spec": {"nodeSelector": {"pool": "none"}}}
    homeless["spec"]["workers"]["podTemplate"] = nowhere
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}}
    jobs.apply(service | {"spec": {"ports": [{"port": 80}]}})
    hung = big.job("hung", f"{root}/hung")
    gated = tiny.job("gated", f"{root}/gated")
    gated["spec"]["output"]["gate"] = {"maxInputAge": "1s"}
    # By itself, so that the others have the machine.
    jobs.apply(gated)
    jobs.complete("gated")
    jobs.apply(homeless, hung, broken, stale, tiny.job("taken", f"{root}/taken"))
    with jobs.held("hung", 1, "infer", seconds=_HELD_SECONDS):
        jobs.cluster.wait_for(
            lambda: set(_FAULTS) <= watch.prometheus.firing(), 120, f"alerts {sorted(_FAULTS)}"
        )
    return watch


def test_prometheus_sees_the_operator_and_every_worker(watch: Watch, healthy: float) -> None:
    seen = watch.over_time("embertide_worker_info", healthy)
    places = {(one.labels["graph_rank"], one.labels["feature_rank"]) for one in seen}
    assert places == {("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")}
    assert {one.labels["namespace"] for one in seen} == {watch.jobs.namespace}
    down = watch.over_time(f'up{{namespace="{NAMESPACE}"}} == 0', healthy)
    assert down == []


def test_a_healthy_run_fires_nothing(watch: Watch, healthy: float) -> None:
    fired = watch.over_time('ALERTS{alertstate="firing"}', healthy)
    assert [one.labels for one in fired] == []


@pytest.mark.parametrize("name", _FAULTS)
def test_a_fault_fires_its_alert(name: str, faults: Watch) -> None:
    fired = faults.over_time(f'ALERTS{{alertname="{name}", alertstate="firing"}}')
    wanted = {"job_namespace": faults.jobs.namespace, **_FAULTS[name]}
    if "output" in wanted:
        wanted["output"] = f"{faults.jobs.root}/{wanted['output']}"
    assert any(wanted.items() <= one.labels.items() for one in fired), fired


def test_nothing_else_fires(faults: Watch) -> None:
    assert faults.prometheus.firing() <= set(_FAULTS)


def test_every_rule_is_evaluated_and_has_data(faults: Watch) -> None:
    for rule in faults.prometheus.rules():
        assert rule["health"] == "ok", rule
    for name in recorded():
        faults.assert_data("recording rule", name)
    for name, alert in alerts().items():
        for metric in metrics_in(alert["expr"]):
            faults.assert_data(name, metric)


@pytest.mark.usefixtures("continued")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_query_of_every_panel_has_data(path: Path, faults: Watch) -> None:
    dashboard = load(path)
    values = {
        "namespace": faults.jobs.namespace,
        "attempt": "1",
        "__range": "10m",
        "__interval": "2s",
        "__rate_interval": "15s",
    }
    asked = list(queries(dashboard))
    for query in asked:
        by_job = [query.expression(values | {"job": job}) for job in ("healthy", CONTINUED)]
        faults.assert_data(f"{dashboard['title']}, {query.name}", *by_job)
    assert len(asked) >= len(panels(dashboard))


def test_an_operator_that_is_gone_is_noticed(faults: Watch, operator: str) -> None:
    cluster = faults.jobs.cluster
    with operator_away(cluster, operator):
        cluster.wait_for(
            lambda: "EmbertideOperatorAbsent" in faults.prometheus.firing(), 30, "the alert"
        )
    cluster.wait_for(
        lambda: "EmbertideOperatorAbsent" not in faults.prometheus.firing(), 60, "its end"
    )


def _monitors(cluster: KubernetesCluster) -> list[dict[str, Any]]:
    """The chart's, as they would be installed."""
    chart = str(ROOT / "charts" / "embertide")
    enabled = [f"--set={name}.enabled=true" for name in ("podMonitor", "serviceMonitor")]
    # Without it helm template assumes an old Kubernetes, which the chart refuses.
    shown = ("--kube-version=1.28.0", "--show-only=templates/monitors.yaml")
    text = cluster.helm("template", RELEASE, chart, "--namespace", NAMESPACE, *enabled, *shown)
    return list(yaml.safe_load_all(text))
