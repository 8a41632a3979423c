"""Metrics of real jobs: what is there while they run, and what stays when they are gone."""

from __future__ import annotations

import json

import pytest

from embertide.spec import metric_names as names
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Inputs, Jobs, Manifest, find_condition, workers
from tests.support.cluster.scraping import Scrape, scrape_operator

pytestmark = pytest.mark.cluster


def reason_of(status: Manifest, kind: str) -> tuple[str, str]:
    """(status, reason) of a condition, which is of the current generation."""
    found = find_condition(status, kind)
    if not found:
        return "", ""
    assert found["observedGeneration"] == status["observedGeneration"]
    return found["status"], found["reason"]


def test_a_run_outlives_its_workers(big: Inputs, jobs: Jobs) -> None:
    output, who = f"{jobs.root}/out", {"job_namespace": jobs.namespace, "job_name": "watched"}
    jobs.apply(big.job("watched", output, workers=workers(2, 2), freshness={"maxAge": "26h"}))
    with jobs.held("watched", 1, "infer"):
        check_workers([Scrape.of(jobs.ask(f"watched-{rank}", "/metrics")) for rank in range(4)])
        status = jobs.await_("watched", lambda s: s.get("phase") == "Running")
        assert reason_of(status, "Ready") == ("False", "Running")
        assert reason_of(status, "Fresh") == ("False", "NeverPublished")
        assert not find_condition(status, "Stalled")
        seen = scrape_operator(jobs.cluster)
        assert seen.one(names.JOB_PHASE, **who, phase="Running") == 1
        assert seen.one(names.JOB_WORKERS, **who, state="ready") == 4
        assert not seen.all(names.RUN_SECONDS, **who)
    jobs.kubectl("wait", "--for=condition=Ready", "ej/watched", "--timeout=240s")
    status = jobs.complete("watched")
    jobs.await_no_pods()
    assert jobs.ask("watched-0", "/metrics") == ""
    check_last_run(jobs, status["report"])
    assert reason_of(status, "Ready") == ("True", "Complete")
    assert reason_of(status, "Fresh") == ("True", "WithinMaxAge")
    seen = scrape_operator(jobs.cluster)
    place = {"job_namespace": jobs.namespace, "output": output}
    assert seen.one(names.OUTPUT_OBJECTIVE_SECONDS, **place) == 26 * 3600
    assert seen.one(names.OUTPUT_LAST_SUCCESS, **place) == seen.one(names.JOB_COMPLETED, **who)
    assert seen.one(names.JOBS, phase="Succeeded") >= 1
    assert seen.all(names.API_REQUESTS, verb="apply", resource="statefulsets", code="201")
    # GitOps tools look at the generation first.
    jobs.patch("watched", {"ttlSecondsAfterFinished": 9999})
    status = jobs.await_("watched", lambda s: s["observedGeneration"] == 2)
    assert reason_of(status, "Ready") == ("True", "Complete")


def check_workers(scrapes: list[Scrape]) -> None:
    """Every rank has its coordinates, a group of an axis is one label's value."""
    shuffle = {"axis": "world", "primitive": "shuffle", "layer": ""}
    for rank, seen in enumerate(scrapes):
        at = {"rank": str(rank), "graph_rank": str(rank // 2), "feature_rank": str(rank % 2)}
        assert seen.one(names.WORKER_INFO, **at) == 1
        assert all(at.items() <= labels.items() for _, labels, _ in seen.samples)
        assert seen.one(names.PLANNED_BYTES, **at, **shuffle) > 0
    # It reads the model for all; of the inputs, which are small, one of them may read everything.
    assert scrapes[0].one(names.STORAGE_REQUESTS, operation="GetObject") > 0
    assert scrapes[0].one(names.STORAGE_READ_BYTES) > 0
    # The others may stand just before they write down what they did in the stage before.
    assert scrapes[0].one(names.SENT_BYTES, **shuffle) > 0
    read = [value for seen in scrapes for _, value in seen.all(names.EDGES, stage="ingest")]
    assert sum(read) == scrapes[0].one(names.GRAPH_EDGES), "one of them may have read them all"


def check_last_run(jobs: Jobs, report: Manifest) -> None:
    """The operator's gauges are what the status says, which is small."""
    assert len(json.dumps(report)) < 16 << 10
    seen = scrape_operator(jobs.cluster)
    run = {"job_namespace": jobs.namespace, "job_name": "watched", "attempt": "1"}
    assert {stage["name"] for stage in report["stages"]} >= {"features", "ingest", "csr", "infer"}
    for stage in report["stages"]:
        found = seen.one(names.RUN_STAGE_SECONDS, **run, stage=stage["name"])
        assert found == stage["seconds"]
    found = {(item["axis"], item["primitive"]): item for item in report["exchange"]}
    assert {("graph", "spmm"), ("feature", "gemm"), ("world", "shuffle")} <= found.keys()
    for (axis, primitive), item in found.items():
        of = run | {"axis": axis, "primitive": primitive}
        assert seen.one(names.RUN_SENT_BYTES, **of) == item["bytes"]
        assert item["bytes"] / 4 <= item["mostBytes"] <= item["bytes"]
    assert seen.one(names.RUN_STORAGE_READ_BYTES, **run) == report["storage"]["readBytes"] > 0
    memory = report["memory"]
    assert memory["plannedBytes"] > 0
    # Imports and the processes beside the worker, which are in the container as well.
    assert memory["containerPeakBytes"] > memory["peakBytes"] + (100 << 20)
    assert seen.one(names.RUN_CONTAINER_PEAK_BYTES, **run) == memory["containerPeakBytes"]
    sent = {item["rank"]: item["graphBytes"] + item["featureBytes"] for item in report["workers"]}
    assert sent.keys() == {0, 1, 2, 3}
    assert all(sent.values())


def test_freshness_outlives_the_job_and_the_operator(
    tiny: Inputs, jobs: Jobs, operator: str
) -> None:
    output = f"{jobs.root}/out"
    place = {"job_namespace": jobs.namespace, "output": output}
    job = tiny.job("brief", output, ttlSecondsAfterFinished=1, freshness={"maxAge": "1h"})
    jobs.apply(job)
    jobs.cluster.wait_for(lambda: not jobs.statuses(), 240, "the job is gone")
    assert len(tiny.versions(output)) == 1, "what it published stays"
    seen = scrape_operator(jobs.cluster)
    published = seen.one(names.OUTPUT_LAST_SUCCESS, **place)
    assert not seen.all(names.JOB_INFO, job_namespace=jobs.namespace)
    restarted = ("-n", "embertide", "rollout", "restart", f"deployment/{operator}")
    jobs.cluster.kubectl(*restarted)
    jobs.cluster.kubectl(*restarted[:3], "status", restarted[-1], "--timeout=180s")
    again = jobs.cluster.wait_for(lambda: outputs_of(jobs.cluster, place), 60, "it is known again")
    assert again.one(names.OUTPUT_LAST_SUCCESS, **place) == published
    assert again.one(names.OUTPUT_OBJECTIVE_SECONDS, **place) == 3600
    assert again.all(names.OUTPUT_INFO, **place, job_name="brief")


def outputs_of(cluster: KubernetesCluster, place: dict[str, str]) -> Scrape | None:
    """A scrape that knows the output; None while there is none."""
    seen = scrape_operator(cluster)
    return seen if seen.all(names.OUTPUT_LAST_SUCCESS, **place) else None


def test_a_complete_job_turns_stale_and_fresh_again(tiny: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(tiny.job("first", output, freshness={"maxAge": "12s"}))
    jobs.complete("first")
    jobs.await_("first", lambda s: reason_of(s, "Fresh") == ("True", "WithinMaxAge"), 15)
    jobs.await_("first", lambda s: reason_of(s, "Fresh") == ("False", "TooOld"), 40)
    assert "Stale" in jobs.reasons("first")
    jobs.apply(tiny.job("second", output, freshness={"maxAge": "1h"}))
    jobs.complete("second")
    jobs.await_("first", lambda s: reason_of(s, "Fresh") == ("True", "WithinMaxAge"), 30)


def test_a_failed_job_is_stalled_and_counted(tiny: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    before = failures(jobs)
    job = tiny.job("broken", output, freshness={"maxAge": "1h"})
    job["spec"]["model"] = {"uri": f"{jobs.root}/no-model"}
    jobs.apply(job)
    status = jobs.fail("broken")
    reason = status["lastFailure"]["reason"]
    assert reason_of(status, "Ready") == ("False", reason)
    assert reason_of(status, "Stalled") == ("True", reason)
    seen = scrape_operator(jobs.cluster)
    who = {"job_namespace": jobs.namespace, "job_name": "broken"}
    assert seen.one(names.JOB_LAST_FAILURE, **who, reason=reason) == 1
    assert failures(jobs) == before | {reason: 1.0}
    place = {"job_namespace": jobs.namespace, "output": output}
    assert seen.one(names.OUTPUT_LAST_FAILURE, **place) == seen.one(names.JOB_COMPLETED, **who)
    at = seen.one(names.JOB_COMPLETED, **who)
    assert seen.one(names.JOB_FAILED, **who, output=output, reason=reason) == at
    assert not seen.all(names.OUTPUT_LAST_SUCCESS, **place)


def failures(jobs: Jobs) -> dict[str, float]:
    """Failed attempts of the namespace, by reason."""
    found = scrape_operator(jobs.cluster).all(names.ATTEMPT_FAILURES, job_namespace=jobs.namespace)
    return {labels["reason"]: value for labels, value in found}
