"""What the report, the page and the status say of a run that went on after a kept layer."""

from __future__ import annotations

import json

from embertide.pod.summary import run_status
from embertide.report import draw_page
from embertide.telemetry.kept import KeptFacts
from embertide.telemetry.report import RunReport
from embertide_operator.runtime.worker_answers import read_answer
from tests.support.operator_world import UID, World
from tests.support.run_reports import make_report
from tests.unit.test_typed_status import EARLIER_ANSWER

KEPT = KeptFacts(resumed=2, layers=3, kept=[1], kept_bytes=4096)


def test_the_report_and_its_page_say_after_which_layer() -> None:
    report = make_report(2, 1, kept=KEPT)
    assert RunReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    sentences = ["resumed after layer 2 of 3", "kept layer 1 for a next attempt: 4.0 KiB"]
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


def test_the_message_and_the_event_say_it() -> None:
    world = World()
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    report = {**EARLIER_ANSWER["report"], "resumedLayer": 2}
    answer = json.dumps({**EARLIER_ANSWER, "report": report}).encode()
    world.reconcile(2, report=read_answer(answer, UID, 1))
    (message,) = [c["message"] for c in world.status["conditions"] if c["type"] == "Published"]
    assert message.endswith("; resumed after layer 2, which an earlier attempt had kept")
    assert world.status["report"]["resumedLayer"] == 2
