"""Real runs and what their reports say: one clock, shares that add up, plans beside them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from embertide.facts.report import draw_page
from embertide.facts.report.run import Run
from embertide.facts.telemetry.report import RunReport
from embertide.io.storage.opening import open_storage
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.run_reports import read_report
from embertide.launch.local import run_job
from embertide.spec.grid import GridShape
from tests.support.browser import MISSING, browser, find_browser
from tests.support.job_files import HIDDEN, OUT, WIDTH, JobFiles, write_job
from tests.support.world import make_features, make_graph

pytestmark = pytest.mark.distributed

GRAPH = make_graph()
STAGES = ["features", "ingest", "csr", "infer", "publish"]
CASES = {
    "gcn-1x1": ("gcn", 1, 1, "full"),
    "gcn-2x2": ("gcn", 2, 2, "full"),
    "gat-2x1": ("gat", 2, 1, "full"),
    "sage-1x2-sampled": ("sage", 1, 2, [3, 5]),
}


@pytest.fixture(scope="module", params=CASES)
def ran(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[JobFiles, RunReport]:
    conv, graph, feature, fanout = CASES[request.param]
    files = write_job(
        tmp_path_factory.mktemp("job"),
        GRAPH,
        make_features(WIDTH),
        ids="string",
        conv=conv,
        inference={"fanout": fanout},
    )
    return files, run_job(files.job, grid=GridShape.of(graph, feature), threads=1)


def test_it_is_beside_the_version(ran: tuple[JobFiles, RunReport]) -> None:
    files, report = ran
    output = files.job.spec.output.uri
    assert report.warnings == []
    assert read_report(open_storage(None), output, report.version) == report
    folder = Path(report.uri.removeprefix("file://"))
    page = (folder / "_report.html").read_text()
    assert page == draw_page(report, read_manifest(open_storage(None), output, report.version)[0])


def test_stages_follow_each_other_on_one_clock(ran: tuple[JobFiles, RunReport]) -> None:
    _, report = ran
    assert [worker.rank for worker in report.workers] == list(range(report.grid.workers))
    meetings = []
    for worker in report.workers:
        stages = [span for span in worker.spans if span.layer < 0 and span.stage != "sample"]
        assert [span.stage for span in stages] == STAGES
        for before, after in pairwise(stages):
            assert before.end <= after.start
        assert all(0 <= span.start < span.end for span in worker.spans)
        meetings.append(stages[STAGES.index("csr")])
    # Nobody leaves csr before all have come to its end; clocks are aligned to some milliseconds.
    assert max(span.start for span in meetings) <= min(span.end for span in meetings) + 0.5
    assert Run(report, {}).seconds <= report.total_seconds + 0.5


def test_layers_lie_within_infer(ran: tuple[JobFiles, RunReport]) -> None:
    _, report = ran
    for worker in report.workers:
        (infer,) = [s for s in worker.spans if (s.stage, s.layer) == ("infer", -1)]
        layers = [span for span in worker.spans if span.layer >= 0]
        assert {span.layer for span in layers} == {0, 1, 2}
        assert all(infer.start <= span.start <= span.end <= infer.end for span in layers)
        assert sum(span.seconds for span in layers) <= infer.seconds
        samples = [span for span in worker.spans if span.stage == "sample"]
        assert len(samples) == (2 if "sample" in report.stages else 0)


def test_waits_are_within_their_stages_and_within_the_totals(
    ran: tuple[JobFiles, RunReport],
) -> None:
    _, report = ran
    for worker in report.workers:
        assert all(0 <= span.wait_seconds <= span.seconds for span in worker.spans)
        stages = sum(s.wait_seconds for s in worker.spans if s.stage in STAGES and s.layer < 0)
        assert stages <= worker.wait_seconds + 1e-9
        assert (worker.wait_seconds > 0) == (report.grid.workers > 1)
    counted = sum(item.wait_seconds for item in report.traffic)
    assert counted <= sum(worker.wait_seconds for worker in report.workers) + 1e-9


def test_workers_add_up_to_the_run(ran: tuple[JobFiles, RunReport]) -> None:
    _, report = ran

    def total(name: str) -> int:
        return sum(int(getattr(worker, name)) for worker in report.workers)

    assert total("nodes") == report.nodes == GRAPH.nodes
    assert total("edges") == report.edges == len(GRAPH.src)
    assert total("bytes_sent") == sum(item.bytes_sent for item in report.traffic)
    assert total("bytes_received") == sum(item.bytes_received for item in report.traffic)
    assert total("bytes_sent") == total("bytes_received")
    for axis in {item.axis for item in report.traffic}:
        sent = sum(worker.sent_by_axis.get(axis, 0) for worker in report.workers)
        assert sent == sum(item.bytes_sent for item in report.traffic if item.axis == axis)


def test_plans_and_facts_are_those_of_the_run(ran: tuple[JobFiles, RunReport]) -> None:
    _, report = ran
    assert set(report.planned_memory) == set(STAGES)
    assert max(report.planned_memory.values()) == report.memory[0].planned_bytes
    assert bool(report.planned_traffic) == (report.grid.workers > 1)
    facts = report.facts
    assert facts is not None
    assert [layer.width for layer in facts.layers] == [HIDDEN, OUT]
    assert (facts.input_width, facts.graph_layers, facts.threads) == (WIDTH, 2, 1)
    assert (facts.device, facts.group_bytes) == ("cpu", 4096)


@pytest.mark.skipif(find_browser() is None, reason=MISSING)
def test_its_page_draws_every_worker(ran: tuple[JobFiles, RunReport], tmp_path: Path) -> None:
    _, report = ran
    program = find_browser()
    assert program is not None
    with browser(program, tmp_path) as opened:
        opened.open(Path(report.uri.removeprefix("file://")) / "_report.html", width=1280)
        bars = opened.evaluate(
            "[...document.querySelectorAll('svg[role=img]')]"
            ".filter(svg => svg.querySelector('rect')?.getBoundingClientRect().width > 0)"
            ".map(svg => svg.getAttribute('aria-label'))"
        )
        assert opened.problems == []
        assert len([url for url in opened.requests if url != "data:,"]) == 1
    for worker in report.workers:
        assert [says for says in bars if says.startswith(f"Worker {worker.rank}: ")]
