"""The page of a run's report: whole, escaped, self-contained, and right about its numbers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.facts.report import draw_page
from embertide.facts.report.charts import Scale
from embertide.facts.report.markup import Html, join, tag
from embertide.facts.report.numbers import (
    against_mean,
    duration,
    round_duration,
    round_size,
    share,
    short_count,
    small,
    without_secrets,
)
from embertide.facts.report.run import Run
from embertide.facts.telemetry.comparison import Comparison
from embertide.facts.telemetry.report import RelationCount, RowError, RunReport, TypeCount
from embertide.facts.telemetry.transfers import OperationStats, TransferStats
from embertide.io.compare.diff import compare_versions
from embertide.io.storage.opening import open_storage
from tests.support.cli import LARGE_REPORT
from tests.support.compared import publish_rows, random_rows
from tests.support.run_reports import make_manifest, make_report
from tests.support.versions import CURRENT, OLD

_VOID = {"meta", "link", "br", "hr"}
GRIDS = [(1, 1), (2, 2), (4, 2), (64, 8)]


class Page(HTMLParser):
    """Every element with its attributes, the text, and whether each end has its begin."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += data.replace("\N{NO-BREAK SPACE}", " ")

    def attributes(self, name: str) -> list[str]:
        """Values of an attribute, wherever it is."""
        return [
            value or "" for _, given in self.elements for key, value in given.items() if key == name
        ]


def draw(graph: int = 2, feature: int = 2, **manifest: Any) -> str:
    return draw_page(make_report(graph, feature), make_manifest(**manifest))


@pytest.mark.parametrize(("graph", "feature"), GRIDS)
def test_a_page_is_whole_and_refers_to_nothing_else(graph: int, feature: int) -> None:
    html = draw(graph, feature)
    page = Page(html)
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    # The grid's size decides how many marks there are; a page stays one that can be sent.
    assert len(html) < 1_500_000
    for reference in [*page.attributes("href"), *page.attributes("src")]:
        assert reference == "data:," or reference[1:] in ids
    assert set(re.findall(r"url\(([^)]*)\)", html)) == {"#hatch"}
    assert "@import" not in html
    names = {name for name, _ in page.elements}
    assert names.isdisjoint({"script", "iframe", "object", "img", "form"})
    assert not [key for _, given in page.elements for key in given if key.startswith("on")]
    assert any("default-src 'none'" in content for content in page.attributes("content"))


def test_every_chart_says_what_it_shows() -> None:
    page = Page(draw())
    charts = [
        given for name, given in page.elements if name == "svg" and given.get("role") == "img"
    ]
    assert len(charts) > 30
    assert all(chart["aria-label"] for chart in charts)
    hidden = [given for name, given in page.elements if name == "svg" and given not in charts]
    assert all(given["aria-hidden"] == "true" for given in hidden)
    headings = [int(name[1]) for name, _ in page.elements if re.fullmatch(r"h\d", name)]
    assert headings[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(headings))


def test_the_first_lines_say_what_was_done() -> None:
    text = Page(draw()).text
    assert (
        "1,048,576 nodes × 128 in 7.75 s over 20,971,520 edges, on a 2 × 2 grid of 4 workers."
        in text
    )
    assert (
        "all agree1,000 rows; largest error 3.1 × 10⁻⁷ of the largest value; 0.001 is allowed"
        in text
    )
    assert "of the fullest worker, beyond its imports: 76 % of the plan" in text
    # 5 transfers of 64 MiB; of 4 workers each planned 40 MiB.
    assert "320.0 MiB moved, 200 % of the planned 160.0 MiB" in text


def test_what_changed_is_drawn_with_its_numbers(tmp_path: Path) -> None:
    storage, uri = open_storage(), f"file://{tmp_path}/out"
    old = random_rows(200, 6, 1)
    new = {name: row + np.float32(name % 2) / 50 for name, row in list(old.items())[20:]}
    publish_rows(storage, uri, OLD, old)
    publish_rows(storage, uri, CURRENT, new)
    found = compare_versions(storage, uri, OLD, CURRENT)
    report = make_report(2, 2, comparison=found, held=["rows removed: 10.0%"], current=False)
    page = Page(draw_page(report, make_manifest()))
    assert "changes" in page.attributes("id")
    text = " ".join(page.text.split())
    assert f"Compared with {OLD}, row by row" in text
    for words in (
        "How far rows moved",
        "Lengths of the rows",
        "Nearest neighbours kept",
        "removed",
    ):
        assert words in text
    assert "no: the gate holds it" in text
    assert "node:edge:node" in text
    first = make_report(1, 1, comparison=Comparison(state="first"))
    assert "there was none to compare it with" in Page(draw_page(first, make_manifest())).text


def test_one_worker_has_nothing_to_share_or_to_move() -> None:
    page = Page(draw(1, 1))
    assert "communication" not in page.attributes("id")
    assert "balance" not in page.attributes("id")
    assert "waiting" not in page.text.replace("Computing and waiting", "")
    assert "communication" in Page(draw(2, 1)).attributes("id")


HOSTILE = "</style><script>alert('x')</script><img src=https://evil.example/x onerror=\"y\">&lt;"


def test_text_of_users_stays_text() -> None:
    report = make_report(2, 2, warnings=[HOSTILE], uri=f"s3://shop/{HOSTILE}", kernels=HOSTILE)
    inputs = [{"kind": HOSTILE, "uri": f"s3://shop/{HOSTILE}", "size": 1, "etag": HOSTILE}]
    reference = {**make_manifest()["reference"], "uri": HOSTILE, "worst": [[HOSTILE, 0.5]]}
    html = draw_page(
        report,
        make_manifest(
            job=HOSTILE,
            inputs=inputs,
            reference=reference,
            model={"uri": HOSTILE, "digest": HOSTILE},
            libraries={HOSTILE: HOSTILE},
            format=HOSTILE,
            ids=HOSTILE,
        ),
    )
    page = Page(html)
    names = {name for name, _ in page.elements}
    assert names.isdisjoint({"script", "img"})
    assert page.text.count("</style><script>alert('x')</script>") > 10


def test_rows_in_bfloat16_have_their_error_stated() -> None:
    facts = make_report(2, 2).facts
    assert facts is not None
    assert "Error with" not in draw()
    unknown = make_report(2, 2, facts=replace(facts, row_type="bfloat16"))
    page = Page(draw_page(unknown, make_manifest())).text
    assert "not measured, since there was no reference" in page
    error = RowError(40, 0.0123, 0.00456)
    known = make_report(2, 2, facts=replace(facts, row_type="bfloat16", row_error=error))
    page = Page(draw_page(known, make_manifest())).text
    assert "at most 0.012, which is 0.0046 of the largest value, in 40 rows" in page
    assert RunReport.from_json(json.loads(json.dumps(known.to_json()))) == known


def test_secrets_in_uris_are_not_shown() -> None:
    uri = "https://user:hunter2@store.example/x?X-Amz-Signature=cafe"
    inputs = [{"kind": "edges", "uri": uri, "size": 1, "etag": "e"}]
    html = draw(inputs=inputs, model={"uri": uri, "digest": "d"})
    assert "hunter2" not in html
    assert "cafe" not in html
    assert "https://***@store.example/x?***" in html


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://bucket/a?b/c@d", "s3://bucket/a?b/c@d"),
        ("file:///data/me@home/x", "file:///data/me@home/x"),
        ("s3://key:secret@bucket/x", "s3://***@bucket/x"),
        ("https://h/x?token=1", "https://h/x?***"),
    ],
)
def test_uris(uri: str, shown: str) -> None:
    assert without_secrets(uri) == shown


def test_what_is_not_known_is_left_out() -> None:
    page = Page(draw_page(LARGE_REPORT, {}))
    assert {"memory", "model"} < set(page.attributes("id"))
    assert {"timeline", "layers", "balance", "inputs"}.isdisjoint(page.attributes("id"))


def test_a_limit_of_memory_is_shown_with_what_went_to_disk() -> None:
    assert "Budget" not in draw()
    fits = make_report(1, 1, budget="fits: 861 MiB of 1.0 GiB a worker")
    text = Page(draw_page(fits, make_manifest())).text
    assert "Budget: fits: 861 MiB of 1.0 GiB a worker." in text
    assert "scratch files" not in text
    moved = {"scratch_bytes_written": 4 << 30, "scratch_bytes_read": 5 << 30}
    workers = [
        replace(worker, **moved, scratch_peak_bytes=(1 + worker.rank) << 30)
        for worker in make_report(2, 1).workers
    ]
    spilled = make_report(2, 1, budget="spills much: 861 MiB of 1.0 GiB a worker", workers=workers)
    assert (
        "Budget: spills much: 861 MiB of 1.0 GiB a worker. Really 4.0 GiB were written and 5.0 GiB"
        " read by the worker with the most; scratch files had 2.0 GiB at most."
    ) in Page(draw_page(spilled, make_manifest())).text


def test_requests_to_the_store_are_listed() -> None:
    assert "Requests to the object store" not in draw()
    stored = TransferStats(5 << 20, 3 << 20, {"GetObject": OperationStats(12, 2, 1)})
    text = Page(draw_page(make_report(1, 1, storage=stored), make_manifest())).text
    assert "Requests to the object store by all workers: 5.0 MiB read, 3.0 MiB written" in text
    assert "GetObject1221" in text


def test_reports_keep_everything_as_json() -> None:
    report = make_report(2, 2)
    assert RunReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_phases_add_up_to_what_workers_did() -> None:
    run = Run(make_report(2, 2), make_manifest())
    names = [phase.name for phase in run.phases]
    assert names == [
        "features", "ingest", "csr", "layer graphs", "layer 1", "layer 2", "output rows", "publish",
    ]  # fmt: skip
    assert sum(phase.mean(lambda span: span.seconds) for phase in run.phases) == pytest.approx(7.75)
    waited = sum(phase.mean(lambda span: span.wait_seconds) for phase in run.phases)
    assert waited == pytest.approx(run.waited)


def test_of_many_workers_the_extremes_have_bars() -> None:
    text = Page(draw(64, 8)).text
    assert "32 of 512 workers: those that waited least" in text
    charts = Page(draw(64, 8)).attributes("aria-label")
    bars = [says for says in charts if re.match(r"Worker \d+: features", says)]
    assert [int(says.split(":")[0].split()[1]) for says in bars] == [*range(16), *range(496, 512)]


def test_node_types_and_relations_have_a_line_each() -> None:
    assert 'id="graph"' not in draw()
    types = [TypeCount("user", 61, 7, 0), TypeCount("item", 40, 0, 6)]
    relations = [RelationCount("user:buys:item", 1500), RelationCount("item:by:user", 1500)]
    traffic = [replace(one, relation="user:buys:item") for one in make_report(2, 2).traffic]
    report = make_report(2, 2, types=types, relations=relations, traffic=traffic)
    manifest = make_manifest()
    held = {"user": {"reference": None}, "item": {"reference": manifest.pop("reference")}}
    page = draw_page(report, manifest | {"types": held})
    for words in ("node types, ", "relations; what", "buys", "before the layers, user:buys:item"):
        assert words in page
    assert "Comparison with the model&#x27;s reference: item" in page
    assert "all agree" in page


def test_a_sample_is_not_called_all_edges() -> None:
    assert "each over all edges" in draw()
    sampled = draw(fanout=[5, 5, 5], seed=1)
    assert "each over all edges" not in sampled
    assert "it read a sample" in sampled


def test_bad_news_is_marked() -> None:
    assert "tile bad" not in draw()
    reference = {**make_manifest()["reference"], "beyond": 3}
    assert draw(reference=reference).count("tile bad") == 1
    report = make_report(1, 1, planned_traffic=[], warnings=["look here"])
    memory = [type(report.memory[0])(0, 1, 300, 100, {})]
    html = draw_page(make_report(1, 1, memory=memory), make_manifest(reference=None))
    assert "tile bad" in html
    assert "more than planned" in html
    assert "Warning: look here" in Page(draw_page(report, make_manifest())).text


def test_markup_escapes_text_and_attributes() -> None:
    assert tag("p", "<b>", title='"&') == '<p title="&quot;&amp;">&lt;b&gt;</p>'
    assert tag("br", class_=None, hidden=True) == "<br hidden>"
    assert join(["a<", None, Html("<i>")]) == "a&lt;<i>"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (0.000_038, "38 µs"),
        (0.004_25, "4.2 ms"),
        (0.34, "340 ms"),
        (0.9996, "1.00 s"),
        (7.749, "7.75 s"),
        (9.996, "10.0 s"),
        (59.96, "1 min 00 s"),
        (80.0, "1 min 20 s"),
        (9886.75, "2 h 44 min"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds).replace("\N{NO-BREAK SPACE}", " ") == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (9_999, "9,999"),
        (10_000, "10.0 k"),
        (99_960, "100 k"),
        (999_700, "1.00 M"),
        (1_048_576, "1.05 M"),
        (20_971_520_000, "21.0 G"),
        (5e15, "5000 T"),
    ],
)
def test_counts_have_three_digits(number: float, words: str) -> None:
    assert short_count(number).replace("\N{NO-BREAK SPACE}", " ") == words


def test_shares_and_deviations() -> None:
    assert share(1, 0) == "-"
    assert share(0.3, 100).replace("\N{NO-BREAK SPACE}", " ") == "0.3 %"
    assert share(24, 100).replace("\N{NO-BREAK SPACE}", " ") == "24 %"
    assert against_mean(1.08, 1.0)[:2] == "+8"
    assert against_mean(0.5, 1.0)[:3] == "\N{MINUS SIGN}50"
    assert against_mean(1.001, 1.0)[:2] == "±0"
    assert small(0.0) == "0"


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(4.26, round_duration), ["0 s", "1 s", "2 s", "3 s", "4 s"]),
        (Scale(0.05, round_duration), ["0 s", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"]),
        (Scale(1.29, round_duration), ["0 s", "0.25 s", "0.5 s", "0.75 s", "1 s", "1.25 s"]),
        (Scale(382 << 20, round_size, 1024.0), [f"{n} MiB" for n in (64, 128, 192, 256, 320)]),
        (
            Scale(1.5 * 2**30, round_size, 1024.0),
            ["256 MiB", "512 MiB", "768 MiB", "1 GiB", "1.25 GiB"],
        ),
        (Scale(0.0, round_duration), ["0 s"]),
    ],
)
def test_scales_have_round_ticks(scale: Scale, ticks: list[str]) -> None:
    found = [scale.words(tick).replace("\N{NO-BREAK SPACE}", " ") for tick in scale.ticks]
    assert found[: len(ticks)] == ticks or found[1 : len(ticks) + 1] == ticks
    assert len(found) <= 8
    assert scale.ticks[-1] <= scale.largest


def test_bars_stay_on_their_scale() -> None:
    scale = Scale(2.0, duration)
    assert (scale.at(1.0), scale.at(5.0), scale.at(-1.0)) == ("50.000%", "100.000%", "0.000%")
    assert scale.width(1.0, 1.0) == "0.000%"
    assert scale.width(1.0, 1.000001) == "0.250%"
