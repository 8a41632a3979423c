"""The line that a run shows in notebooks."""

from __future__ import annotations

import io
import sys
from types import ModuleType, SimpleNamespace

import pytest

from embertide.facts.telemetry.notebook_progress import LineProgress, in_ipython, line_in_notebooks
from embertide.facts.telemetry.progress import Progress, ProgressClock
from tests.unit.test_progress import HALVES, Clock


def lines_of(text: str) -> list[str]:
    """What was on the line, one state after another."""
    assert text.startswith("\r")
    return text.removeprefix("\r").split("\r")


def test_one_line_is_rewritten() -> None:
    time, out = Clock(), io.StringIO()
    line = LineProgress(out, ProgressClock(HALVES, time), now=time)
    line(Progress("read", fraction=0.5, message="from s3://shop"))
    line(Progress("compute", 1, 2, fraction=0.5))
    line.finish()
    line.end()
    first, second, last = lines_of(out.getvalue())
    assert first == f"[{'#' * 3}{'-' * 21}]  12% read, from s3://shop"
    assert second.rstrip() == f"[{'#' * 15}{'-' * 9}]  62% compute layer 1/2"
    assert len(second) >= len(first)
    assert last.rstrip(" \n") == f"[{'#' * 24}] 100% done"
    assert len(last.removesuffix("\n")) >= len(second.rstrip())
    assert out.getvalue().count("\n") == 1


def test_a_stage_writes_at_most_every_tenth_of_a_second() -> None:
    time, out = Clock(), io.StringIO()
    line = LineProgress(out, ProgressClock(HALVES, time), now=time)
    for at in range(100):
        time.seconds += 0.01
        line(Progress("read", fraction=at / 100))
    assert 9 <= len(lines_of(out.getvalue())) <= 11


def test_a_long_message_does_not_wrap() -> None:
    out = io.StringIO()
    LineProgress(out, ProgressClock(HALVES))(Progress("read", message="a\nb" + "x" * 200))
    (line,) = lines_of(out.getvalue())
    assert len(line) == 79
    assert line.endswith("…")
    assert "a b" in line


@pytest.fixture
def ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module as IPython's, which knows that it runs."""
    module = ModuleType("IPython")
    vars(module)["get_ipython"] = SimpleNamespace
    monkeypatch.setitem(sys.modules, "IPython", module)


@pytest.mark.usefixtures("ipython")
def test_a_notebook_shows_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert in_ipython()
    with line_in_notebooks(None) as on_progress:
        on_progress(Progress("ingest"))
    shown = capsys.readouterr().out
    assert "ingest" in shown
    assert shown.endswith("\n")
    assert "100% done" in shown


@pytest.mark.usefixtures("ipython")
def test_an_error_leaves_the_line_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with line_in_notebooks(None) as on_progress:
            on_progress(Progress("ingest"))
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail()
    shown = capsys.readouterr().out
    assert "done" not in shown
    assert shown.endswith("\n")


@pytest.mark.usefixtures("ipython")
def test_the_callers_own_view_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Progress] = []
    with line_in_notebooks(seen.append) as on_progress:
        on_progress(Progress("ingest"))
    assert seen == [Progress("ingest")]
    assert capsys.readouterr().out == ""


def test_other_programs_show_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    with line_in_notebooks(None) as on_progress:
        on_progress(Progress("ingest"))
    assert capsys.readouterr().out == ""
