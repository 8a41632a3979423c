"""The table of metrics, and the operator's: names, labels, values, and what goes with a job."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from embertide.facts.telemetry.comparison import Comparison, Distribution, TypeComparison
from embertide.facts.telemetry.kept import KeptFacts
from embertide.facts.telemetry.omissions import DroppedEdges, FilledNodes, Omissions
from embertide.facts.telemetry.refresh import RefreshFacts
from embertide.facts.telemetry.report import (
    PlannedTraffic,
    RankMemory,
    RunReport,
    Traffic,
    WorkerReport,
)
from embertide.facts.telemetry.transfers import OperationStats, TransferStats
from embertide.pod.summary import run_status
from embertide.spec import metric_names as names
from embertide.spec.grid import GridShape
from embertide.spec.metric_names import OPERATOR_METRICS, WORKER_METRICS, Metric
from embertide.spec.reports import PushReport
from embertide.spec.status import JobStatus
from embertide_operator.job.status import Draft
from embertide_operator.metrics.operator_metrics import Metrics
from embertide_operator.metrics.outputs import follow
from tests.support.cli import REPORT
from tests.support.operator_world import NOW, World, raw_job
from tests.support.run_reports import SELF_CHECK
from tools.pages.metrics import page

ALL = [*WORKER_METRICS, *OPERATOR_METRICS]


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_names_follow_prometheus_practice(metric: Metric) -> None:
    assert metric.name.startswith("embertide_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.unit in metric.name
    assert metric.help.endswith(".")
    assert not {"job", "instance", "namespace", "pod", "group"} & set(metric.labels)
    assert len(set(metric.labels)) == len(metric.labels)


def test_names_are_told_apart() -> None:
    assert len({metric.name for metric in ALL}) == len(ALL)


def test_the_page_of_metrics_has_every_metric() -> None:
    text = page()
    named = set(re.findall(r"^\| `(\w+)", text, re.MULTILINE))
    assert [metric.name for metric in ALL if metric.name not in named] == []


def test_every_worker_series_has_coordinates() -> None:
    for metric in WORKER_METRICS:
        assert {"attempt", "rank", "graph_rank", "feature_rank"} <= set(metric.labels)


SCHEDULE = {
    "output": "s3://shop/e/{date}",
    "lastFiringTime": "2026-11-21T03:00:00Z",
    "nextFiringTime": "2026-11-22T03:00:00Z",
    "lastSuccessTime": "2026-11-20T03:09:00Z",
    "maxAgeSeconds": 93600,
    "failedFirings": 2,
    "conditions": [
        {"type": "Submitted", "status": "False", "reason": "SubmitFailed"},
        {"type": "Ready", "status": "Unknown", "reason": "NotFiredYet"},
    ],
}


def test_of_a_schedule_what_is_not_known_is_not_said() -> None:
    metrics = exported()
    metrics.watch_schedules(lambda: [(("shop", "nightly"), SCHEDULE)])
    text = generate_latest(metrics.registry).decode()
    who = 'job_namespace="shop",schedule="nightly"'
    said = f'embertide_schedule_condition{{condition="Submitted",{who.partition(",")[0]}'
    assert f'{said},reason="SubmitFailed",{who.partition(",")[2]}}} 0.0' in text
    assert 'condition="Ready",job_namespace="shop",reason="NotFiredYet"' not in text
    assert f"embertide_schedule_failed_firings{{{who}}} 2.0" in text
    assert f"embertide_schedule_suspended{{{who}}} 0.0" in text


def test_all_of_the_table_is_exported() -> None:
    """Names and labels of a scrape are those of the table, and none is missing."""
    metrics, job = exported(), complete_job()
    metrics.watch(lambda: 2, lambda: 0.5, lambda: follow({}, [job, failed_job()]).values())
    metrics.watch_schedules(lambda: [(("shop", "nightly"), SCHEDULE)])
    families = {
        family.name: family
        for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
    }
    # Of the process itself, by prometheus_client.
    ours = {name: family for name, family in families.items() if name.startswith("embertide_")}
    known = {metric.name.removesuffix("_total"): metric for metric in OPERATOR_METRICS}
    assert ours.keys() == known.keys()
    for name, family in ours.items():
        metric = known[name]
        assert (family.type, family.documentation) == (metric.kind, metric.help), name
        assert family.samples, name
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(metric.labels), name
            assert not sample.name.endswith("_created")


def report() -> RunReport:
    """Of a run on two workers, one of which sent twice as much."""
    spmm = Traffic("graph", "spmm", 1, 300, 300, 4, 6, 80, 2.0, 1.0, [0] * 7, 2, 200, 1.5)
    shuffle = Traffic("world", "shuffle", -1, 50, 50, 2, 2, 25, 0.1, 0.0, [0] * 7, 1, 25, 0.1)
    return replace(
        REPORT,
        version="20261121T120000Z-abcdef",
        uri="s3://shop/embeddings/versions/20261121T120000Z-abcdef",
        grid=GridShape.of(2, 1),
        edges=40,
        stages={"ingest": 1.25, "infer": 2.00004},
        total_seconds=4.0,
        ingest_edges_per_second=32.0,
        infer_edges_per_second=40.0,
        traffic=[spmm, shuffle],
        memory=[
            RankMemory(0, 100, 160, 70, container_peak_bytes=400),
            RankMemory(1, 100, 150, 70, container_peak_bytes=410),
        ],
        workers=[
            WorkerReport(0, 32, 20, 225, 100, 0.5, 0.5, 1, sent_by_axis={"graph": 200}),
            WorkerReport(1, 32, 20, 125, 250, 1.6, 0.5, 1, sent_by_axis={"graph": 100}),
        ],
        kernels="native",
        planned_traffic=[
            PlannedTraffic("graph", "spmm", 0, 60, 1),
            PlannedTraffic("graph", "spmm", 1, 80, 1),
            PlannedTraffic("graph", "scalars", 1, 8, 1),
        ],
        storage=TransferStats(1000, 2000, {"GetObject": OperationStats(5, 1, 0)}),
    )


OMISSIONS = Omissions(
    [DroppedEdges("user:buys:item", 3, 1200, ["s3://shop/buys.csv"])],
    {"user:returns:item": "s3://shop/returns/"},
    {"s3://shop/edges/ (7d until 2026-11-21)": ["2026-11-15", "2026-11-16"]},
    [FilledNodes("item", 5, 100, "mean")],
)
COMPARED = TypeComparison(
    name="", rows=100, dim=4, zero_rows=1, not_finite_rows=0, duplicate_rows=2,
    norms=Distribution({}, 0, 20, 0, []), previous_rows=98, previous_dim=4, new_rows=5,
    removed_rows=3, changed_rows=40, unchanged_rows=55,
    moved=Distribution({"95%": 0.02}, 0, 20, 0, []), overlap=0.9, residual=0.01, sample_rows=95,
)  # fmt: skip
COMPARISON = Comparison(
    state="compared", previous="20261120T120000Z-abcdef", seconds=0.25, types=[COMPARED]
)
SHORT_OF_DATA = replace(
    report(),
    omissions=OMISSIONS,
    comparison=COMPARISON,
    self_check=SELF_CHECK,
    kept=KeptFacts(resumed=1, layers=2, kept=[1]),
    refresh=RefreshFacts(mode="incremental", base="v0", rows=4, all_rows=10),
)
"""Of a run that did without some of its data, and took over rows and layers."""


def complete_job() -> dict[str, Any]:
    """A job that has published, with its report."""
    world = World(freshness={"maxAge": "26h"}, push={"uri": "lancedb+s3://shop/lance"})
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    world.reconcile(2, report=world.report())
    done = world.report("succeeded", 100)
    sent = done.model_copy(update={"report": run_status(SHORT_OF_DATA, 1)})
    world.reconcile(30, report=type(done).parse(sent.to_text()))
    (pod,) = [c for c in world.reconcile(1, pods=[], report=None).apply if c["kind"] == "Pod"]
    pushed = PushReport(version=done.output.version, rows=10, names=["products"], seconds=1.5)
    end = {"terminated": {"exitCode": 0, "message": pushed.to_text()}}
    pod["status"] = {"containerStatuses": [{"name": "worker", "state": end}]}
    pod["metadata"]["uid"] = "push"
    world.reconcile(1, pods=[pod])
    world.reconcile(1, pods=[])
    return world.job


def running_job() -> dict[str, Any]:
    world = World()
    world.job["metadata"]["name"] = "running"
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    world.reconcile(1, report=world.report(percent=40))
    return world.job


def failed_job() -> dict[str, Any]:
    job = raw_job()
    job["metadata"] |= {"name": "failed", "uid": "f"}
    draft = Draft(job, NOW)
    draft["phase"], draft["lastFailure"] = "Failed", {"reason": "Input", "message": "row 7"}
    draft["startTime"], draft["completionTime"] = "2026-11-21T11:59:30Z", "2026-11-21T12:00:00Z"
    draft["attempt"] = 1
    draft.set("Failed", True, "Input", "row 7")
    draft.add_event("Failed", "row 7", warning=True)
    return job | {"status": draft.fields}


def exported() -> Metrics:
    """Metrics of an operator that has seen a complete, a running and a failed job."""
    metrics = Metrics()
    jobs = [complete_job(), running_job(), failed_job()]
    metrics.resynced(jobs, 1.0)
    metrics.watch_leadership(lambda: True)
    metrics.overlapped({"tools/op": 2})
    metrics.reconciled("ok", 0.02)
    metrics.requested("get", "pods", "200", 0.01)
    metrics.waited(0.5)
    metrics.asked("answered")
    metrics.watch_failed("Pod")
    draft = Draft(failed_job(), NOW)
    draft.add_event("Failed", "row 7", warning=True)
    metrics.job_written({"phase": "Running"}, failed_job(), draft)
    return metrics


def value(metrics: Metrics, metric: Metric, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(metric.name, labels)


def test_the_series_of_a_deleted_job_go_and_stay_away() -> None:
    """Also where the jobs were listed for a resync before it was deleted, and arrive after."""
    metrics = exported()
    deleted, other = complete_job(), running_job()
    other["metadata"]["uid"] = "another"
    metrics.job_gone("shop", "products")
    metrics.resynced([deleted, other], 2.0)

    def series() -> list[str]:
        text = generate_latest(metrics.registry).decode()
        return [line for line in text.splitlines() if 'job_name="products"' in line]

    assert series() == []
    assert 'job_name="running"' in generate_latest(metrics.registry).decode()
    metrics.resynced([complete_job()], 3.0)
    assert series(), "a job that is made again under the name has its own"


def test_a_run_stays_when_its_workers_are_gone() -> None:
    metrics = exported()
    run = {"job_namespace": "shop", "job_name": "products", "attempt": "1"}
    spmm = run | {"axis": "graph", "primitive": "spmm"}
    assert value(metrics, names.RUN_STAGE_SECONDS, **run, stage="ingest") == 1.25
    assert value(metrics, names.RUN_STAGE_SECONDS, **run, stage="infer") == 2.0
    assert value(metrics, names.RUN_SENT_BYTES, **spmm) == 300
    assert value(metrics, names.RUN_PLANNED_BYTES, **spmm) == 2 * (60 + 80)
    assert value(metrics, names.RUN_PLANNED_MESSAGES, **spmm) == 4
    assert value(metrics, names.RUN_IMBALANCE_RATIO, **spmm) == pytest.approx(200 / 150)
    shuffle = run | {"axis": "world", "primitive": "shuffle"}
    assert value(metrics, names.RUN_SENT_BYTES, **shuffle) == 50
    assert value(metrics, names.RUN_PLANNED_BYTES, **shuffle) is None
    assert value(metrics, names.RUN_MEMORY_PEAK_BYTES, **run) == 60
    assert value(metrics, names.RUN_CONTAINER_PEAK_BYTES, **run) == 410
    second = {**run, "rank": "1", "graph_rank": "1", "feature_rank": "0"}
    assert value(metrics, names.RUN_WORKER_SENT_BYTES, **second, axis="graph") == 100
    assert value(metrics, names.RUN_WORKER_SENT_BYTES, **second, axis="feature") == 0
    assert value(metrics, names.RUN_WORKER_WAIT_SECONDS, **second) == 1.6
    assert value(metrics, names.RUN_WORKER_PEAK_BYTES, **second) == 50
    assert value(metrics, names.RUN_WORKER_PLANNED_BYTES, **second) == 70
    assert value(metrics, names.RUN_STORAGE_REQUESTS, **run) == 5
    assert value(metrics, names.RUN_DROPPED_EDGES, **run, relation="user:buys:item") == 3
    assert value(metrics, names.RUN_EMPTY_RELATIONS, **run) == 1
    assert value(metrics, names.RUN_MISSING_DAYS, **run) == 2
    assert value(metrics, names.RUN_FILLED_NODES, **run, node_type="item") == 5
    compared = {
        kind: value(metrics, names.RUN_COMPARED_ROWS, **run, node_type="", kind=kind)
        for kind in ("new", "removed", "changed", "zero", "duplicate")
    }
    assert compared == {"new": 5, "removed": 3, "changed": 40, "zero": 1, "duplicate": 2}
    assert value(metrics, names.RUN_COSINE, **run, node_type="") == 0.98
    assert value(metrics, names.RUN_OVERLAP, **run, node_type="") == 0.9
    assert value(metrics, names.RUN_RESIDUAL, **run, node_type="") == 0.01
    assert value(metrics, names.RUN_COMPARISON_SECONDS, **run) == 0.25
    assert value(metrics, names.RUN_CHECKED_SECONDS, **run) == 0.125
    assert value(metrics, names.RUN_CHECKED_ROWS, **run, layer="1") == 300
    assert value(metrics, names.RUN_CHECKED_ERROR, **run, layer="1") == 2e-7
    metrics.job_gone("shop", "products")
    assert value(metrics, names.RUN_SENT_BYTES, **spmm) is None


def test_what_a_job_took_over_from_before() -> None:
    who = {"job_namespace": "shop", "job_name": "products"}
    run, job = who | {"attempt": "1"}, complete_job()
    last_run = (names.RUN_REFRESHED_ROWS, names.RUN_RESUMED_LAYER, names.RUN_KEPT_LAYERS)
    metrics = Metrics()
    metrics.resynced([job], 1.0)
    assert value(metrics, names.JOB_CONFIRMED, **who) == 0
    assert [value(metrics, metric, **run) for metric in last_run] == [4, 1, 1]
    job["status"]["report"] |= {"refreshedRows": 0, "resumedLayer": None, "keptLayers": [1, 2, 3]}
    metrics.resynced([job], 2.0)
    assert [value(metrics, metric, **run) for metric in last_run] == [0, None, 3]
    job["status"] |= {"report": None, "output": {**job["status"]["output"], "confirmed": True}}
    metrics.resynced([job], 3.0)
    assert value(metrics, names.JOB_CONFIRMED, **who) == 1
    assert [value(metrics, metric, **run) for metric in last_run] == [None, None, None]
    metrics.resynced([running_job()], 4.0)
    assert value(metrics, names.JOB_CONFIRMED, **(who | {"job_name": "running"})) is None


def test_what_a_run_did_without_is_in_its_condition() -> None:
    conditions = {item["type"]: item for item in complete_job()["status"]["conditions"]}
    assert conditions["Published"]["message"].endswith(
        "; edges to unknown nodes dropped: 3; relations without objects: 1; days without objects:"
        " 2; new nodes without a row of the model's table: 5; resumed after layer 1, which an"
        " earlier attempt had kept"
    )


def test_the_status_that_is_written_is_one_that_the_api_takes() -> None:
    status = complete_job()["status"]
    assert JobStatus.model_validate(status).report == run_status(SHORT_OF_DATA, 1)


def test_the_summary_does_not_grow_with_layers_or_groups() -> None:
    small = report()
    (spmm, shuffle) = small.traffic
    traffic = [Traffic(**(vars(spmm) | {"layer": layer})) for layer in range(64)]
    deep = replace(small, traffic=[*traffic, shuffle])
    assert len(run_status(deep, 1).exchange) == len(run_status(small, 1).exchange) == 2


def test_workers_are_summed_up_all_or_none() -> None:
    """A part of them would be compared as if it were the whole."""
    first = report().workers[0]
    memory = [RankMemory(rank, 100, 160, 70) for rank in range(65)]
    workers = [replace(first, rank=rank) for rank in range(65)]
    large = replace(report(), grid=GridShape.of(65, 1), workers=workers, memory=memory)
    assert run_status(large, 1).workers is None
    fits = replace(large, grid=GridShape.of(64, 1), workers=workers[:64], memory=memory[:64])
    totals = run_status(fits, 1).workers
    assert totals is not None
    assert [item.rank for item in totals] == list(range(64))
    assert run_status(fits, 1).memory.container_peak_bytes is None, "not counted"


def test_jobs_are_counted_by_phase_and_described() -> None:
    metrics = exported()
    counts = {phase: value(metrics, names.JOBS, phase=phase) for phase in ("Running", "Failed")}
    assert counts == {"Running": 1, "Failed": 1}
    assert value(metrics, names.JOBS, phase="Pending") == 0
    who = {"job_namespace": "shop", "job_name": "running"}
    assert value(metrics, names.JOB_PROGRESS_RATIO, **who) == 0.4
    assert value(metrics, names.JOB_STAGE, **who, stage="infer") == 1
    assert value(metrics, names.JOB_PHASE, **who, phase="Running") == 1
    assert value(metrics, names.JOB_CONDITION, **who, condition="Ready", reason="Running") == 0
    failed = {"job_namespace": "shop", "job_name": "failed"}
    assert value(metrics, names.JOB_LAST_FAILURE, **failed, reason="Input") == 1


@pytest.mark.parametrize(
    ("failed", "last", "cause"),
    [
        ("BackoffLimitExceeded", "OutOfMemory", "OutOfMemory"),
        ("TooManyDisruptions", "WorkerDisrupted", "TooManyDisruptions"),
        ("DeadlineExceeded", "OutOfMemory", "DeadlineExceeded"),
        ("Input", "Input", "Input"),
    ],
)
def test_a_failed_job_has_its_cause(failed: str, last: str, cause: str) -> None:
    job = failed_job()
    (item,) = [item for item in job["status"]["conditions"] if item["type"] == "Failed"]
    item["reason"], job["status"]["lastFailure"]["reason"] = failed, last
    metrics = Metrics()
    metrics.resynced([job], 1.0)
    who = {"job_namespace": "shop", "job_name": "failed", "output": "s3://shop/embeddings"}
    at = datetime.fromisoformat(job["status"]["completionTime"]).timestamp()
    assert value(metrics, names.JOB_FAILED, **who, reason=cause) == at


def test_failures_and_durations_are_counted_once() -> None:
    metrics = exported()
    where = {"job_namespace": "shop"}
    assert value(metrics, names.ATTEMPT_FAILURES, **where, reason="Input") == 1
    assert value(metrics, names.ATTEMPTS, **where) == 1
    count = names.JOB_SECONDS.name + "_count"
    labels = where | {"result": "failed"}
    assert metrics.registry.get_sample_value(count, labels) == 1
    assert metrics.registry.get_sample_value(names.JOB_SECONDS.name + "_sum", labels) == 30
    again = failed_job()
    metrics.job_written(again["status"], again, Draft(again, NOW))
    assert metrics.registry.get_sample_value(count, labels) == 1
    assert value(metrics, names.ATTEMPT_FAILURES, **where, reason="Input") == 1


def test_freshness_is_a_time_and_an_objective() -> None:
    metrics, job = Metrics(), complete_job()
    records = follow({}, [job])
    metrics.watch(lambda: 0, lambda: 0, records.values)
    at = {"job_namespace": "shop", "output": "s3://shop/embeddings"}
    done = datetime.fromisoformat(job["status"]["completionTime"]).astimezone(UTC)
    assert value(metrics, names.OUTPUT_LAST_SUCCESS, **at) == done.timestamp()
    assert value(metrics, names.OUTPUT_OBJECTIVE_SECONDS, **at) == 26 * 3600
    assert value(metrics, names.OUTPUT_LAST_FAILURE, **at) is None


def test_an_output_that_never_succeeded_has_an_objective_only() -> None:
    metrics, records = Metrics(), follow({}, [raw_job(freshness={"maxAge": "1h"})])
    metrics.watch(lambda: 0, lambda: 0, records.values)
    at = {"job_namespace": "shop", "output": "s3://shop/embeddings"}
    assert value(metrics, names.OUTPUT_OBJECTIVE_SECONDS, **at) == 3600
    assert value(metrics, names.OUTPUT_FIRST_JOB, **at) is not None
    assert value(metrics, names.OUTPUT_LAST_SUCCESS, **at) is None
