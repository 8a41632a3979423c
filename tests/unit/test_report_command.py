"""``embertide report``: which version, where the page goes, and what is refused."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

from embertide.io.storage.opening import open_storage
from embertide.io.versions.run_reports import write_report
from tests.support.run_reports import make_report
from tests.support.versions import CURRENT, NEXT, OLD, publish_one

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two versions, the older with a report; the working folder is an empty one."""
    uri = f"file://{tmp_path}/out"
    for version in (OLD, CURRENT):
        publish_one(open_storage(None), uri, version)
        write_report(open_storage(None), uri, make_report(2, 2, version=version), "")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("EMBERTIDE_DEBUG", raising=False)
    return uri


def test_the_current_version_in_a_file_named_after_it(output: str, cli: Cli) -> None:
    code, out, _ = cli("report", "--output", output)
    assert (code, out) == (0, f"report-{CURRENT}.html\n")
    page = Path(out.strip()).read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert CURRENT in page


def test_a_version_and_a_file_by_name(output: str, cli: Cli) -> None:
    code, out, _ = cli("report", "--output", output, "--version", OLD, "--out", "old.html")
    assert (code, out) == (0, "old.html\n")
    assert OLD in Path("old.html").read_text()


def test_a_manifest_names_the_output(output: str, cli: Cli, job: str) -> None:
    path = Path(job)
    path.write_text(path.read_text().replace("uri: out", f"uri: {output}"))
    assert cli("report", job)[0] == 0


def test_stdout_and_data(output: str, cli: Cli) -> None:
    _, out, _ = cli("report", "--output", output, "--out", "-")
    assert out.startswith("<!DOCTYPE html>")
    _, out, _ = cli("report", "--output", output, "--json")
    assert json.loads(out)["version"] == CURRENT
    assert list(Path.cwd().iterdir()) == []


def test_open_shows_the_file(output: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda uri: shown.append(uri) or True)
    assert cli("report", "--output", output, "--open")[2] == ""
    assert shown == [(Path.cwd() / f"report-{CURRENT}.html").as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda _uri: False)
    _, out, err = cli("report", "--output", output, "--open")
    assert err == f"embertide: found no browser here; open {out.strip()}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--open", "--json"], "--open shows a file"),
        (["--open", "--out", "-"], "--open shows a file"),
        (["--json", "--out", "x"], "--json writes to stdout"),
        (["job.yaml"], "give either JOB.yaml or --output URI"),
    ],
)
def test_options_that_do_not_go_together(
    output: str, cli: Cli, options: list[str], message: str
) -> None:
    code, _, err = cli("report", "--output", output, *options)
    assert code == 2
    assert message in err


def test_what_is_not_there(output: str, cli: Cli) -> None:
    code, _, err = cli("report", "--output", output, "--version", NEXT)
    assert code == 5
    assert f"has no complete version {NEXT}; it has {OLD}, {CURRENT}" in err
    publish_one(open_storage(None), output, NEXT)
    code, _, err = cli("report", "--output", output)
    assert code == 5
    assert f"{NEXT} of {output} has no report" in err


def test_a_file_that_cannot_be_written(output: str, cli: Cli) -> None:
    code, _, err = cli("report", "--output", output, "--out", "nowhere/x.html")
    assert code == 6
    assert "nowhere/x.html cannot be written: No such file or directory" in err
