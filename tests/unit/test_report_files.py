"""A report beside its version: what it may not disturb, and what it says where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from embertide.context import RunContext
from embertide.engine.stages import report as stage
from embertide.errors import AccessDenied, ObjectMissing, OutputError
from embertide.facts.telemetry.report import RunReport
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import list_versions
from embertide.io.versions.publish import rollback
from embertide.io.versions.retention import remove_old
from embertide.io.versions.run_reports import read_report, write_report
from embertide.spec.manifest import load_manifest
from tests.support.manifests import EXAMPLE
from tests.support.run_reports import make_report
from tests.support.versions import CURRENT, NEXT, OLD, Hooked, publish_one


@pytest.fixture
def output(tmp_path: Path) -> str:
    """Two versions with reports, and one without."""
    uri = f"file://{tmp_path}/out"
    for version in (OLD, CURRENT, NEXT):
        publish_one(open_storage(None), uri, version)
        if version != NEXT:
            write_report(open_storage(None), uri, report_of(version), "<html>")
    return uri


def report_of(version: str) -> RunReport:
    return make_report(1, 1, version=version)


def folder_of(output: str, version: str) -> Path:
    return Path(output.removeprefix("file://")) / "versions" / version


def test_it_is_kept_as_data_and_as_a_page(output: str) -> None:
    assert read_report(open_storage(None), output, CURRENT) == report_of(CURRENT)
    names = {path.name for path in folder_of(output, CURRENT).iterdir()}
    assert {"_report.json", "_report.html", "_manifest.json"} < names
    assert (folder_of(output, CURRENT) / "_report.html").read_text() == "<html>"


def test_readers_and_commands_do_not_see_it(output: str) -> None:
    storage = open_storage(None)
    sizes = {info.version: info.size for info in list_versions(storage, output)}
    assert sizes[OLD] == sizes[CURRENT] == sizes[NEXT]
    assert pq.read_table(folder_of(output, CURRENT)).num_rows == 7
    # A rollback refuses versions with data that does not belong to them.
    assert rollback(storage, output, OLD).current


def test_it_goes_with_its_version(output: str) -> None:
    remove_old(open_storage(None), output, keep=1)
    assert not folder_of(output, OLD).exists()
    assert not folder_of(output, CURRENT).exists()


def test_a_version_without_a_report_says_so(output: str) -> None:
    with pytest.raises(ObjectMissing, match=rf"{NEXT} of .* has no report: there is no .*_report"):
        read_report(open_storage(None), output, NEXT)


WITHOUT_OPERATIONS = json.dumps(
    {"grid": [1, 1], "traffic": [], "memory": [], "workers": [], "planned_traffic": []}
    | {"storage": {"operations": []}}
)
"""A list where names are expected."""


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"grid": [2], "traffic": 1}', WITHOUT_OPERATIONS]
)
def test_a_damaged_report_says_so(output: str, text: str) -> None:
    (folder_of(output, CURRENT) / "_report.json").write_text(text)
    with pytest.raises(OutputError, match=r"_report\.json is damaged, or of another release"):
        read_report(open_storage(None), output, CURRENT)


def context(output: str, before: Any = lambda _operation, _uri: None) -> RunContext:
    job = load_manifest(EXAMPLE)
    to = job.spec.output.model_copy(update={"uri": output})
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"output": to})})
    storage: Any = Hooked(open_storage(None), before)
    return RunContext(job, None, storage, lambda _event: None)  # type: ignore[arg-type]


def test_a_run_keeps_its_report(output: str) -> None:
    report = report_of(NEXT)
    assert stage.keep_report(context(output), report) == report
    page = (folder_of(output, NEXT) / "_report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert NEXT in page
    kept = json.loads((folder_of(output, NEXT) / "_report.json").read_text())
    assert kept["total_seconds"] == report.total_seconds


def test_a_store_that_refuses_it_does_not_stop_the_run(output: str) -> None:
    def refuse(operation: str, uri: str) -> None:
        if operation == "write" and "_report" in uri:
            raise AccessDenied(f"{uri}: not allowed")

    report = stage.keep_report(context(output, refuse), report_of(NEXT))
    (warning,) = report.warnings
    assert "is published, but the report of its run could not be kept" in warning
    assert "_report.json: not allowed" in warning


def test_a_page_that_cannot_be_drawn_does_not_stop_the_run(
    output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: Any) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(stage, "draw_page", fail)
    report = stage.keep_report(context(output), report_of(NEXT))
    assert "ZeroDivisionError()" in report.warnings[0]
    assert not (folder_of(output, NEXT) / "_report.json").exists()
