"""Several node types and relations in what a worker tells and the operator writes, and releases
of either that know nothing of them."""

from __future__ import annotations

import json
from typing import Any

from embertide.facts.telemetry.report import RelationCount, TypeCount
from embertide.io.versions.catalog import describe
from embertide.pod.summary import published_types, run_status
from embertide.spec.reports import OutputReport, ReportModel, WorkerStatus
from embertide.spec.run_status import RunStatus, TypeOutput
from embertide.spec.status import JobStatus
from embertide_operator.runtime.worker_answers import read_answer
from tests.support.operator_world import UID, World
from tests.support.run_reports import make_report

TYPES = {"user": (61, 6), "item": (40, 6), "tag": (3, 4)}

EARLIER_ANSWER: dict[str, Any] = {
    "jobUid": UID, "attempt": 1, "rank": 0, "state": "succeeded",
    "progress": {
        "stage": "publish", "layer": 0, "layers": 0, "percent": 100, "steps": 7, "etaSeconds": 0,
        "lastUpdateTime": "2026-11-21T12:00:00Z",
    },
    "output": {
        "version": "v", "uri": "s3://shop/embeddings/versions/v", "rows": 104, "dim": 6,
        "manifestDigest": "ab", "current": True, "jobUid": UID, "attempt": 1,
    },
    "report": {
        "attempt": 1, "version": "v", "grid": "2x1", "kernels": "native", "seconds": 1.5,
        "nodes": 104, "edges": 323, "stages": [{"name": "ingest", "seconds": 0.5}], "exchange": [],
        "memory": {"peakBytes": 7, "plannedBytes": 8},
    },
}  # fmt: skip
"""What a worker says whose release has totals alone."""


class EarlierOutput(ReportModel):
    """What an operator of that release reads of a version."""

    version: str
    uri: str
    rows: int
    dim: int
    manifest_digest: str
    current: bool
    job_uid: str
    attempt: int


class EarlierRun(ReportModel):
    """And of a run."""

    attempt: int
    version: str
    grid: str
    nodes: int
    edges: int
    stages: list[dict[str, Any]]
    exchange: list[dict[str, Any]]


class EarlierStatus(ReportModel):
    """And of a worker."""

    job_uid: str
    attempt: int
    rank: int
    state: str
    output: EarlierOutput
    report: EarlierRun


def typed(count: int = 0) -> list[TypeOutput]:
    """The types of the world, or so many made up."""
    if count:
        return [TypeOutput(name=f"type-{k:058}", rows=10**12, dim=4096) for k in range(count)]
    return [TypeOutput(name=name, rows=rows, dim=dim) for name, (rows, dim) in TYPES.items()]


def typed_report(relations: int = 3) -> Any:
    """Of a run that read three types, published two, and read so many relations."""
    return make_report(
        2, 1,
        types=[TypeCount("user", 61, 7, 6), TypeCount("item", 40, 5, 0), TypeCount("tag", 3, 0, 4)],
        relations=[RelationCount(f"user:r{k}:item", k) for k in range(relations)],
    )  # fmt: skip


def finished(**more: Any) -> tuple[World, str]:
    """A job whose worker has told of its version, with ``more`` of the output; and the Event."""
    world = World()
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    done = world.report("succeeded", 100)
    output = done.output.model_copy(update=more)
    report = run_status(typed_report(), 1)
    told = done.model_copy(update={"output": output, "report": report}).to_text()
    decision = world.reconcile(2, report=read_answer(told.encode(), UID, 1))
    (event,) = [event for event in decision.draft.events if event.reason == "Published"]
    return world, event.message


def test_the_status_has_rows_and_width_of_each_type_and_edges_of_each_relation() -> None:
    world, event = finished(rows=104, dim=6, types=typed())
    status = world.status
    assert status["output"]["types"] == [
        {"name": name, "rows": rows, "dim": dim} for name, (rows, dim) in TYPES.items()
    ]
    shown = "item 40 x 6, tag 3 x 4, user 61 x 6"
    assert status["output"]["summary"] == shown
    assert event.endswith(f": 104 rows ({shown}) at {status['output']['uri']}")
    assert status["report"]["nodeTypes"] == [
        {"name": "user", "nodes": 61}, {"name": "item", "nodes": 40}, {"name": "tag", "nodes": 3},
    ]  # fmt: skip
    assert status["report"]["relations"] == [
        {"name": f"user:r{k}:item", "edges": k} for k in range(3)
    ]
    assert JobStatus.model_validate(status).to_object()["output"] == status["output"]


def test_one_type_has_no_lists() -> None:
    world, event = finished()
    assert world.status["output"]["summary"] == "10 x 4"
    assert "types" not in world.status["output"]
    assert f": 10 rows x 4 at {world.status['output']['uri']}" in event
    one = make_report(2, 1, types=[TypeCount("node", 7, 3, 2)], relations=[RelationCount("e", 9)])
    assert not {"nodeTypes", "relations"} & run_status(one, 1).to_object().keys()


def test_many_types_and_relations_are_bounded() -> None:
    world, event = finished(types=typed(64))
    assert len(world.status["output"]["types"]) == 64
    shown = world.status["output"]["summary"].split(", ")
    assert (len(shown), shown[-1]) == (5, "60 more")
    assert len(event) < 1024
    relations = run_status(typed_report(40), 1).relations
    assert relations is not None
    assert [one.name for one in relations[31:]] == ["user:r31:item", "other"]
    assert relations[-1].edges == sum(range(32, 40))


def test_what_is_published_is_told_alike_from_a_run_and_from_its_version() -> None:
    """An attempt that finds a complete version has no report of the run."""
    entries = {name: {"rows": rows, "dim": dim, "parts": []} for name, (rows, dim) in TYPES.items()}
    manifest = {"created": "", "rows": 104, "dim": 6, "types": entries}
    assert published_types(describe("s3://a/b", "v", manifest, "ab", True)) == typed()
    assert [(one.name, one.rows, one.dim) for one in published_types(typed_report())] == [
        ("user", 61, 6), ("tag", 3, 4),
    ]  # fmt: skip


def test_a_termination_message_keeps_its_size() -> None:
    """The URI goes first, since it follows from the job."""
    output = OutputReport(
        version="v", uri="s3://shop/" + "x" * 2000, rows=1, dim=1, manifest_digest="0" * 64
    )
    for count, left in ((0, None), (20, typed(20)), (64, None)):
        types = typed(count) if count else None
        text = output.model_copy(update={"types": types}).to_text()
        assert len(text.encode()) <= 4000
        found = OutputReport.parse(text)
        assert found is not None
        assert (found.types, found.uri == output.uri) == (left, count == 0)


def test_a_worker_that_knows_no_types_is_understood() -> None:
    world = World()
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    answer = read_answer(json.dumps(EARLIER_ANSWER).encode(), UID, 1)
    world.reconcile(2, report=answer)
    assert world.condition("Complete") == ("True", "Published")
    assert world.status["output"]["summary"] == "104 x 6"
    assert world.status["report"] == EARLIER_ANSWER["report"]


def test_an_operator_that_knows_no_types_understands_what_is_told() -> None:
    earlier = WorkerStatus.model_validate(EARLIER_ANSWER)
    assert earlier.output is not None
    output = earlier.output.model_copy(update={"types": typed()})
    report = run_status(typed_report(), 1)
    told = earlier.model_copy(update={"output": output, "report": report}).to_text()
    found = EarlierStatus.parse(told)
    assert found is not None
    assert found.output.rows == 104
    assert found.report.edges == report.edges
    assert EarlierOutput.parse(output.to_text()) == found.output


def test_a_status_of_an_earlier_operator_is_read() -> None:
    output = {**EARLIER_ANSWER["output"], "types": None}
    status = JobStatus.model_validate({"output": output, "report": EARLIER_ANSWER["report"]})
    assert status.output is not None
    assert status.output.types is status.output.summary is None
    assert status.report == RunStatus.model_validate(EARLIER_ANSWER["report"])
