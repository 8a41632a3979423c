"""Runs compare their version with the current one, the same on every grid."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embertide.facts.report import draw_page
from embertide.facts.telemetry.comparison import Comparison
from embertide.facts.telemetry.report import RunReport
from embertide.io.compare.diff import compare_versions
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest, list_versions
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.reading import iter_embeddings
from embertide.launch.local import run_job
from embertide.spec.gate import Gate
from embertide.spec.grid import GridShape
from embertide.spec.refresh import Refresh
from tests.support.compared import Rows, slow_counts
from tests.support.job_files import WIDTH, JobFiles, write_job
from tests.support.live_controller import wait_for
from tests.support.tiers import by_turns
from tests.support.world import NODES, make_features, make_graph

pytestmark = pytest.mark.distributed

GRAPH = make_graph()


def with_output(files: JobFiles, **changes: Any) -> JobFiles:
    spec = files.job.spec
    output = spec.output.model_copy(update=changes)
    job = files.job.model_copy(update={"spec": spec.model_copy(update={"output": output})})
    return replace(files, job=job)


def run(files: JobFiles, grid: tuple[int, int]) -> RunReport:
    """Compute, also where inputs and model are those of the current version."""
    spec = files.job.spec.model_copy(update={"refresh": Refresh(mode="full")})
    job = files.job.model_copy(update={"spec": spec})
    return run_job(job, grid=GridShape.of(*grid), threads=2)


def change(files: JobFiles, tmp_path: Path, ids: str) -> JobFiles:
    """A few nodes' features are others, and some edges: most rows change, not all."""
    features = make_features(WIDTH)
    features[:5] += 1
    other = write_job(tmp_path / "next", GRAPH, features, ids=ids)
    output = files.job.spec.output
    return with_output(other, uri=output.uri, gate=output.gate, compare=output.compare)


def rows_of(files: JobFiles, version: str) -> Rows:
    batches = iter_embeddings(open_storage(None), files.job.spec.output.uri, version)
    return {
        name: row for ids, values in batches for name, row in zip(ids.tolist(), values, strict=True)
    }


def comparison_of(report: RunReport) -> Comparison:
    assert report.comparison is not None
    return report.comparison


@pytest.mark.parametrize(
    ("ids", "grid"), by_turns(["dense", "int64", "string"], [(2, 2), (3, 1), (1, 1)])
)
def test_a_run_compares_as_a_loop_and_as_diff(
    tmp_path: Path, grid: tuple[int, int], ids: str
) -> None:
    files = write_job(tmp_path, GRAPH, make_features(WIDTH), ids=ids)
    first = run(files, (2, 2))
    assert comparison_of(first).state == "first"
    report = run(change(files, tmp_path, ids), grid)
    found = comparison_of(report)
    old, new = rows_of(files, first.version), rows_of(files, report.version)
    counts = slow_counts(old, new)
    assert {name: getattr(found.types[0], name) for name in counts} == counts
    assert 0 < counts["unchanged_rows"] < NODES
    storage, uri = open_storage(None), files.job.spec.output.uri
    again = compare_versions(storage, uri, first.version, report.version)
    assert replace(found, seconds=0) == replace(again, seconds=0)
    manifest, _ = read_manifest(storage, uri, report.version)
    assert Comparison.from_json(manifest["comparison"]) == found
    assert manifest["gate"]["mode"] is None
    page = draw_page(report, manifest)
    assert f"Compared with <code>{first.version}</code>" in page.replace("<span>", "")


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    files = write_job(tmp_path, GRAPH, make_features(WIDTH), ids="string")
    run(files, (2, 1))
    report = run(files, (2, 1))
    (found,) = comparison_of(report).types
    assert (found.unchanged_rows, found.overlap, found.residual) == (
        NODES,
        1.0,
        pytest.approx(0, abs=1e-9),
    )
    assert report.warnings == []


def test_without_a_gate_a_broken_version_is_published_with_a_warning(tmp_path: Path) -> None:
    files = write_job(tmp_path, GRAPH, make_features(WIDTH))
    run(files, (1, 1))
    broken = write_job(tmp_path / "next", GRAPH, -make_features(WIDTH))
    report = run(with_output(broken, uri=files.job.spec.output.uri), (1, 1))
    assert (report.held, report.current) == ([], True)
    assert any("minCosine" in text and "the default gate" in text for text in report.warnings)


@pytest.mark.tier(1)
def test_a_gate_holds_a_broken_version_and_the_next_night_goes_on(tmp_path: Path) -> None:
    files = with_output(write_job(tmp_path, GRAPH, make_features(WIDTH)), gate=Gate())
    first = run(files, (2, 1))
    broken = write_job(tmp_path / "next", GRAPH, -make_features(WIDTH))
    uri, storage = files.job.spec.output.uri, open_storage(None)
    report = run(with_output(broken, uri=uri, gate=Gate()), (2, 1))
    assert not report.current
    assert any("minCosine is 0.9" in reason for reason in report.held)
    assert any("is complete but held" in text for text in report.warnings)
    assert latest(storage, uri).version == first.version
    manifest, _ = read_manifest(storage, uri, report.version)
    assert manifest["gate"] == {"mode": "hold", "violations": report.held}
    third = run(files, (2, 1))
    assert third.current
    assert comparison_of(third).previous == first.version
    assert [bool(info.held) for info in list_versions(storage, uri)] == [False, True, False]


def test_a_gate_that_warns_holds_nothing(tmp_path: Path) -> None:
    files = write_job(tmp_path, GRAPH, make_features(WIDTH))
    run(files, (1, 1))
    broken = write_job(tmp_path / "next", GRAPH, -make_features(WIDTH))
    gate = Gate(mode="warn")
    report = run(with_output(broken, uri=files.job.spec.output.uri, gate=gate), (1, 1))
    assert report.current
    assert any("beyond a bound of spec.output.gate" in text for text in report.warnings)


def test_a_current_version_that_cannot_be_read_holds_or_warns(tmp_path: Path) -> None:
    files = write_job(tmp_path, GRAPH, make_features(WIDTH), ids="int64")
    first = run(files, (2, 1))
    for part in Path(first.uri.removeprefix("file://")).glob("part-*.parquet"):
        part.write_bytes(part.read_bytes()[:50])
    held = run(with_output(files, gate=Gate()), (2, 1))
    assert any("part-00000" in reason for reason in held.held)
    assert comparison_of(held).state == "failed"
    report = run(files, (2, 1))
    assert report.current
    assert any(f"not compared with {first.version}" in text for text in report.warnings)


def test_nothing_is_compared_where_that_is_switched_off(tmp_path: Path) -> None:
    files = with_output(write_job(tmp_path, GRAPH, make_features(WIDTH)), compare=False)
    run(files, (1, 1))
    report = run(files, (1, 1))
    assert comparison_of(report) == Comparison(state="off")
    assert report.warnings == []


def test_inputs_that_are_too_old_are_held(tmp_path: Path) -> None:
    files = with_output(write_job(tmp_path, GRAPH, make_features(WIDTH)), gate=Gate())
    newest = max(path.stat().st_ctime for path in tmp_path.rglob("*.parquet"))
    lenient = with_output(files, gate=Gate(max_input_age="1d"))
    assert run(lenient, (1, 1)).held == []
    strict = with_output(files, gate=Gate(max_input_age="1s"))
    wait_for(lambda: time.time() > newest + 1)
    (reason,) = run(strict, (1, 1)).held
    assert re.fullmatch(r"the newest input is [\dms.]+ old; maxInputAge is 1s", reason)
