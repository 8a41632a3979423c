"""A run's tree of spans, and what keeps it from being sent."""

from __future__ import annotations

import importlib.util
import json

import pytest

from embertide.facts.report.otlp.send import asked, send
from embertide.facts.report.otlp.tree import (
    MOST_CHARACTERS,
    Failure,
    Node,
    TracedRun,
    of_earlier,
    of_failure,
    of_report,
)
from embertide.facts.telemetry.report import RankMemory, Span
from embertide.facts.telemetry.snapshot import Snapshot
from embertide.spec.grid import GridShape
from tests.support.run_reports import VERSION, make_report

RUN = TracedRun(
    job="products",
    version=VERSION,
    output="https://me:secret@store/embeddings?signature=secret",
    began=990.0,
    key="k",
    grid=GridShape.of(2, 2),
)
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def names(node: Node) -> list[str]:
    return [child.name for child in node.children]


def snapshot(rank: int, spans: list[Span], under_way: dict[str, float]) -> Snapshot:
    memory = RankMemory(rank, 100, 160, 50)
    taken = Snapshot(
        rank, "infer", {}, memory, 1, 0, 0, began=1000.0, spans=spans, under_way=under_way
    )
    return Snapshot.from_json(json.loads(json.dumps(taken.to_json())))


def failure(message: str = "killed", rank: int | None = 1) -> Failure:
    return Failure(outcome="failed", reason="WorkerFailed", message=message, at=1009.0, rank=rank)


def test_layers_lie_within_their_stage_and_workers_within_the_run() -> None:
    report = make_report(2, 2, began=1000.0)
    root = of_report(RUN, report, 1010.0)
    assert (root.start, root.end, root.error) == (990.0, 1010.0, "")
    assert names(root) == ["start", "worker 0", "worker 1", "worker 2", "worker 3"]
    for worker, reported in zip(root.children[1:], report.workers, strict=True):
        stages = [span for span in reported.spans if span.layer < 0]
        assert names(worker) == [span.stage for span in stages]
        (infer,) = (child for child in worker.children if child.name == "infer")
        layers = [span for span in reported.spans if span.layer >= 0]
        assert names(infer) == [f"layer {span.layer}" for span in layers]
        first = infer.children[0]
        assert first.attributes["embertide.convolution"] == "sage"
        assert (first.start, first.end) == (1000.0 + layers[0].start, 1000.0 + layers[0].end)


def test_a_killed_worker_ends_with_the_run_in_its_stage() -> None:
    spans = [Span("csr", -1, 0.0, 2.0, 0.5, 0.0), Span("infer", 0, 2.5, 4.0, 1.0, 0.5)]
    root = of_failure(RUN, [snapshot(0, spans, {"infer": 2.2}), snapshot(1, spans, {"infer": 2.1})],
                      failure())  # fmt: skip
    healthy, killed = root.children[1:]
    assert (root.error, healthy.error, killed.error) == ("killed", "", "killed")
    assert root.attributes["embertide.failed_rank"] == 1
    for worker in (healthy, killed):
        assert names(worker) == ["csr", "infer"]
        assert names(worker.children[1]) == ["layer 0"]
        assert worker.children[1].end == worker.end == 1009.0
        assert worker.children[1].attributes["embertide.unfinished"] is True
    assert killed.children[1].error == "killed"
    assert not killed.children[0].error
    assert not healthy.children[1].error


def test_a_run_that_failed_before_its_workers_is_a_root_alone() -> None:
    root = of_failure(RUN, [], failure(rank=None))
    assert (names(root), root.error, root.end) == ([], "killed", 1009.0)
    assert "embertide.failed_rank" not in root.attributes


def test_an_earlier_version_that_was_made_current_says_so() -> None:
    root = of_earlier(RUN, "earlier", 1000.0)
    assert root.attributes["embertide.version"] == "earlier"
    assert root.attributes["embertide.outcome"] == "adopted"


def test_no_secret_of_a_uri_leaves() -> None:
    message = "https://me:secret@store/x?key=secret cannot be read; is it there?"
    root = of_failure(RUN, [], failure(message))
    assert root.error == "https://***@store/x?*** cannot be read; is it there?"
    assert root.attributes["embertide.output"] == "https://***@store/embeddings?***"


def test_long_messages_are_cut() -> None:
    assert len(of_failure(RUN, [], failure("x" * 10_000)).error) == MOST_CHARACTERS


def test_it_is_off_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    assert not asked()
    send(lambda: pytest.fail("the tree is made"), "k")
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    assert asked()


@pytest.mark.parametrize(
    ("missing", "says"),
    [(True, "pip install 'embertide[otel]'"), (False, "KeyError: 'rank'")],
    ids=["not installed", "an error of ours"],
)
def test_whatever_fails_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: bool, says: str
) -> None:
    def make() -> Node:
        raise KeyError("rank")

    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    if missing:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    send(make, "k")
    (record,) = caplog.records
    assert says in record.message


@pytest.mark.tier(2)
def test_what_is_no_trace_context_is_a_warning_beside_the_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setenv("TRACEPARENT", "00-abc")
    send(lambda: Node("run", 0.0, 1.0), "k")
    assert "TRACEPARENT is no W3C trace context" in caplog.records[0].message
