"""Traces of real runs, as a real OpenTelemetry Collector wrote them down."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embertide.facts.report.otlp.send import MOST_SECONDS, send
from embertide.facts.report.otlp.tree import Node
from embertide.spec.manifest import load_manifest
from tests.support.commands import Commands, Done
from tests.support.monitoring.collector import Collector, Received, collector
from tests.support.patience import BUSY, SOON_SECONDS
from tests.support.pods import LocalPods, local_pods
from tests.support.ports import free_port
from tests.support.small_job import NODES, SmallJob

pytestmark = [pytest.mark.distributed, pytest.mark.needs("otelcol")]

STAGES = ["features", "ingest", "csr", "infer", "publish"]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
NOT_SENT = "the trace of this run was not sent: "


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    return SmallJob.make(tmp_path / "job")


@pytest.fixture
def collecting(tmp_path: Path) -> Iterator[Collector]:
    folder = tmp_path / "collector"
    folder.mkdir()
    with collector(folder) as running:
        yield running


def run(commands: Commands, job: SmallJob, grid: str, **env: str) -> Done:
    return commands.run("run", job.manifest, "--grid", grid, "--json", env=env)


def report_of(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    report: dict[str, Any] = done.events[-1]
    assert report["event"] == "report"
    return report


def told(span: Received, *names: str) -> list[Any]:
    return [span.attributes[f"embertide.{name}"] for name in names]


def test_a_run_is_one_trace_that_agrees_with_its_report(
    commands: Commands, job: SmallJob, collecting: Collector
) -> None:
    report = report_of(run(commands, job, "2x2", **{ENDPOINT: collecting.endpoint}))
    (root,) = collecting.until(1)
    assert root.parent == ""
    assert {span.trace for span in collecting.spans()} == {root.trace}
    assert told(root, "version", "grid", "attempt") == [report["version"], "2x2", 1]
    assert told(root, "outcome", "rows", "current") == ["published", NODES, True]
    assert root.resource["service.name"] == "embertide"
    names = ["start", *(f"worker {rank}" for rank in range(4))]
    assert sorted(span.name for span in root.children) == names
    for rank, worker in enumerate(report["workers"]):
        span = root.named(f"worker {rank}")
        assert told(span, "rank", "graph_rank", "feature_rank") == [rank, *divmod(rank, 2)]
        assert told(span, "nodes", "bytes_sent") == [worker["nodes"], worker["bytes_sent"]]
        assert [stage.name for stage in span.children] == STAGES
        check_worker(span, worker, report["began"])
    assert not any(span.failed for span in collecting.spans())


def check_worker(span: Received, worker: dict[str, Any], began: float) -> None:
    """Every span of the report is there, in its place, with its times and counts."""
    spans = [inner for stage in span.children for inner in (stage, *stage.children)]
    assert len(spans) == len(worker["spans"])
    for inner, kept in zip(spans, sorted(worker["spans"], key=lambda s: s["start"]), strict=True):
        layer = kept["layer"]
        assert inner.name == (kept["stage"] if layer < 0 else f"layer {layer}")
        assert inner.start / 1e9 == pytest.approx(began + kept["start"], abs=1e-3)
        assert inner.end / 1e9 == pytest.approx(began + kept["end"], abs=1e-3)
        for name in (
            "wait_seconds",
            "bytes_sent",
            "bytes_received",
            "bytes_read_in_place",
            "messages",
            "groups",
        ):
            assert told(inner, name) == [kept[name]]
    sent = sum(stage.attributes["embertide.bytes_sent"] for stage in span.children)
    assert 0 < sent <= worker["bytes_sent"]


def test_an_outer_trace_goes_on_and_the_standard_variables_count(
    commands: Commands, job: SmallJob, collecting: Collector
) -> None:
    env = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collecting.endpoint}/v1/traces",
        "OTEL_SERVICE_NAME": "embeddings",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test,team=shop",
        "TRACEPARENT": f"00-{TRACE}-{PARENT}-01",
    }
    report_of(run(commands, job, "1x1", **env))
    (root,) = collecting.until(1)
    assert (root.trace, root.parent) == (TRACE, PARENT)
    assert {span.trace for span in collecting.spans()} == {TRACE}
    assert root.resource["service.name"] == "embeddings"
    assert root.resource["team"] == "shop"


@pytest.mark.parametrize(
    "off",
    [
        {},
        {ENDPOINT: "collector", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: "collector", "OTEL_TRACES_EXPORTER": "none"},
        {ENDPOINT: "collector", "TRACEPARENT": f"00-{TRACE}-{PARENT}-00"},
    ],
    ids=["no endpoint", "disabled", "no exporter", "not sampled"],
)
def test_nothing_is_sent_where_it_is_not_asked_for(
    commands: Commands, job: SmallJob, collecting: Collector, off: dict[str, str]
) -> None:
    env = {name: collecting.endpoint if name == ENDPOINT else v for name, v in off.items()}
    done = run(commands, job, "1x1", **env)
    report_of(done)
    assert done.err == ""
    report_of(run(commands, job, "1x1", **{ENDPOINT: collecting.endpoint}))
    (root,) = collecting.until(1)
    assert {span.trace for span in collecting.spans()} == {root.trace}


def test_a_failed_run_has_its_reason_where_it_failed(
    commands: Commands, job: SmallJob, collecting: Collector
) -> None:
    job.write_features(list(range(NODES)), [[float("nan")] * 4] * NODES)
    env = {ENDPOINT: collecting.endpoint, "OTEL_EXPORTER_OTLP_HEADERS": "authorization=s3cret"}
    done = run(commands, job, "2x1", **env)
    assert done.code != 0
    (root,) = collecting.until(1)
    error = done.events[-1]
    assert root.failed
    assert root.attributes["embertide.outcome"] == "failed"
    assert root.attributes["error.type"] == "Input"
    assert root.status["message"].splitlines()[0] in error["message"]
    rank = root.attributes["embertide.failed_rank"]
    failing = root.named(f"worker {rank}")
    other = root.named(f"worker {1 - rank}")
    assert failing.failed
    assert failing.named("features").failed
    assert failing.named("features").attributes["embertide.unfinished"] is True
    assert not other.failed
    assert "s3cret" not in collecting.text


def test_a_collector_that_is_absent_is_one_warning(commands: Commands, job: SmallJob) -> None:
    absent = f"http://user:pass@127.0.0.1:{free_port()}"
    done = run(commands, job, "1x1", **{ENDPOINT: absent})
    report_of(done)
    assert done.err.count(NOT_SENT) == 1
    assert len(done.err.splitlines()) == 1
    assert "pass" not in done.err
    assert "127.0.0.1" in done.err


def test_a_collector_that_does_not_answer_is_one_warning(commands: Commands, job: SmallJob) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = run(
            commands, job, "1x1", **{ENDPOINT: f"http://127.0.0.1:{silent.getsockname()[1]}"}
        )
    report_of(done)
    assert done.err.count(NOT_SENT) == 1


def test_a_collector_that_does_not_answer_is_waited_for_for_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{silent.getsockname()[1]}")
        send(lambda: Node("warm", 0.0, 1.0), "a")  # imports
        began = time.monotonic()
        send(lambda: Node("run", 0.0, 1.0), "b")
        assert time.monotonic() - began < BUSY * MOST_SECONDS
    assert [record.message.startswith(NOT_SENT) for record in caplog.records] == [True, True]


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf is the only protocol"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "collector:4318"),
    ],
)
def test_settings_that_cannot_work_are_one_warning(
    commands: Commands, job: SmallJob, env: dict[str, str], says: str
) -> None:
    done = run(commands, job, "1x1", **({ENDPOINT: "http://127.0.0.1:1"} | env))
    report_of(done)
    assert len(done.err.splitlines()) == 1
    assert NOT_SENT in done.err
    assert says in done.err


@pytest.fixture
def pods(job: SmallJob, tmp_path: Path) -> Iterator[LocalPods]:
    with local_pods(tmp_path / "pods", load_manifest(Path(job.manifest))) as running:
        yield running


def test_an_attempt_of_pods_is_one_trace_though_they_are_stopped_at_once(
    pods: LocalPods, collecting: Collector
) -> None:
    running = pods.attempt("2x1", **{ENDPOINT: collecting.endpoint})
    running[0].until_state("succeeded")
    for pod in running:
        pod.terminate()
    for pod in running:
        assert pod.ended(SOON_SECONDS) == 0
    (root,) = collecting.until(1)
    assert told(root, "version", "attempt", "outcome") == [pods.versions[-1], 1, "published"]
    assert {span.name for span in root.children} == {"start", "worker 0", "worker 1"}
    assert NOT_SENT not in running[0].log.read_text()


def test_pods_of_an_attempt_that_fails_share_its_trace(
    job: SmallJob, pods: LocalPods, collecting: Collector
) -> None:
    job.write_features(list(range(NODES)), [[float("nan")] * 4] * NODES)
    env = {ENDPOINT: collecting.endpoint, "TRACEPARENT": f"00-{TRACE}-{PARENT}-01"}
    env["AWS_SECRET_ACCESS_KEY"] = "feature rows"  # a part of the message
    running = pods.attempt("2x1", **env)
    codes = [pod.ended(60) for pod in running]
    assert 0 not in codes
    (root,) = collecting.until(1)
    endings = [pod.ending() for pod in running]
    assert (root.trace, root.parent) == (TRACE, PARENT)
    assert {span.name for span in root.children} >= {"worker 0", "worker 1"}
    for rank, ending in enumerate(endings):
        assert root.named(f"worker {rank}").failed == (not ending.peer)
    assert "[redacted]" in collecting.text
    assert "feature rows" not in collecting.text
    assert root.failed


def test_a_pod_that_is_asked_to_stop_says_so(pods: LocalPods, collecting: Collector) -> None:
    (pod,) = pods.attempt("2x1", [0], **{ENDPOINT: collecting.endpoint})
    pod.until_logged("waiting for 2 workers")
    pod.terminate()
    assert pod.ended(SOON_SECONDS) == 0
    (root,) = collecting.until(1)
    assert root.attributes["embertide.outcome"] == "stopped"
    assert root.failed
