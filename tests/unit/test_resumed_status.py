"""What the report, the page and the status say of layers and rows that a run took over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from embertide.facts.report import draw_page
from embertide.facts.telemetry.kept import KeptFacts
from embertide.facts.telemetry.refresh import RefreshFacts
from embertide.facts.telemetry.report import RunReport
from embertide.pod.summary import run_status
from embertide_operator.runtime.worker_answers import read_answer
from tests.support.operator_world import UID, World
from tests.support.run_reports import make_report
from tests.unit.test_typed_status import EARLIER_ANSWER

KEPT = KeptFacts(resumed=2, layers=3, kept=[1], kept_bytes=4096)


def test_the_report_and_its_page_say_after_which_layer() -> None:
    report = make_report(2, 1, kept=KEPT)
    assert RunReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    sentences = ["resumed after layer 2 of 3", "kept layer 1 for a next attempt or run: 4.0 KiB"]
    assert KEPT.sentences == sentences
    assert "; ".join(sentences) in str(draw_page(report, {}))
    assert "resumed after" not in str(draw_page(make_report(2, 1), {}))


def test_a_report_of_an_earlier_release_says_nothing_of_layers() -> None:
    earlier = make_report(2, 1).to_json()
    del earlier["kept"]
    assert RunReport.from_json(earlier).kept == KeptFacts()


def test_the_status_says_after_which_layer() -> None:
    status = run_status(make_report(2, 1, kept=KEPT), 2).to_object()
    assert (status["resumedLayer"], status["keptLayers"]) == (2, [1])
    whole = run_status(make_report(2, 1), 2).to_object()
    assert not {"resumedLayer", "keptLayers"} & whole.keys()


REFRESHED = RefreshFacts(mode="incremental", base="v0", rows=4215, all_rows=1 << 20)


def test_the_status_has_the_rows_that_were_computed_or_why_all_were() -> None:
    status = run_status(make_report(1, 1, refresh=REFRESHED), 1).to_object()
    assert (status["refreshedRows"], status.get("fullRun")) == (4215, None)
    why = "spec.refresh.mode is full, or --force was given"
    status = run_status(make_report(1, 1, refresh=RefreshFacts(why=why)), 1).to_object()
    assert (status.get("refreshedRows"), status["fullRun"]) == (None, why)
    long = run_status(make_report(1, 1, refresh=RefreshFacts(why="x" * 9999)), 1).to_object()
    assert long["fullRun"] == "x" * 512
    whole = run_status(make_report(1, 1), 1).to_object()
    assert not {"refreshedRows", "fullRun"} & whole.keys()


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"resumedLayer": 2}, "; resumed after layer 2, which an earlier attempt had kept"),
        ({"refreshedRows": 4215}, "; computed 4,215 rows, and took over the others, unchanged"),
        ({"fullRun": "the model differs"}, "; computed all rows: the model differs"),
        (
            {"refreshedRows": 104, "resumedLayer": 1},
            "; resumed after layer 1, which an earlier attempt had kept",
        ),
        ({}, "versions/v"),
    ],
)
def test_the_message_and_the_event_say_it(fields: dict[str, Any], end: str) -> None:
    world = World()
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    report = {**EARLIER_ANSWER["report"], **fields}
    answer = json.dumps({**EARLIER_ANSWER, "report": report}).encode()
    world.reconcile(2, report=read_answer(answer, UID, 1))
    (message,) = [c["message"] for c in world.status["conditions"] if c["type"] == "Published"]
    assert message.endswith(end)
    assert fields.items() <= world.status["report"].items()
