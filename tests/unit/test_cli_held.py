"""What differs between versions, and what happens to held ones, on real outputs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest, list_versions
from tests.support.cli import JOB, REPORT
from tests.support.compared import publish_rows, random_rows
from tests.support.versions import CURRENT, LATER, NEXT, OLD

Cli = Callable[..., tuple[int, str, str]]
STORAGE = open_storage()
ROWS = random_rows(60, 4, 1)
WHY = ("rows removed: 50.0%; maxRemovedRows is 10%",)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Two versions, ten rows changed between them; a third one is held."""
    uri = f"file://{tmp_path}/out"
    moved = {name: row + np.float32(0.1) for name, row in list(ROWS.items())[:10]}
    publish_rows(STORAGE, uri, OLD, ROWS)
    publish_rows(STORAGE, uri, CURRENT, {**ROWS, **moved})
    publish_rows(STORAGE, uri, NEXT, dict(list(ROWS.items())[:30]), held=WHY)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path / "out"


def manifest(output: Path) -> str:
    return str(output.parent / "job.yaml")


def current(output: Path) -> str:
    return latest(STORAGE, f"file://{output}").version


def test_diff_of_names_and_words(cli: Cli, output: Path) -> None:
    code, out, _ = cli("diff", manifest(output), "previous", "current", "--json")
    found = json.loads(out)
    assert (code, found["event"], found["version"], found["previous"]) == (0, "diff", CURRENT, OLD)
    assert (found["types"][0]["changed_rows"], found["types"][0]["new_rows"]) == (10, 0)
    code, out, _ = cli("diff", "--output", str(output), "current", NEXT)
    assert code == 0
    assert f"{NEXT} compared with {CURRENT}" in out
    for words in ("removed", "neighbours kept", "cosine", "Edges read", "node:edge:node"):
        assert words in out


def test_diff_takes_two_versions(cli: Cli, output: Path) -> None:
    assert cli("diff", manifest(output), OLD)[0] == 2
    code, _, err = cli("diff", manifest(output), OLD, LATER)
    assert code == 5
    assert f"no complete version {LATER}" in err


def test_versions_marks_what_is_held_and_says_why(cli: Cli, output: Path) -> None:
    code, out, _ = cli("versions", manifest(output))
    assert code == 0
    assert f"! {NEXT} " in " ".join(out.split())
    assert f"! {NEXT} is held: {WHY[0]}" in " ".join(out.split())
    code, out, _ = cli("versions", manifest(output), "--json")
    assert [info["held"] for info in json.loads(out)] == [[], [], list(WHY)]


def test_release_takes_the_newest_held_version(cli: Cli, output: Path) -> None:
    code, out, _ = cli("release", manifest(output))
    assert (code, current(output)) == (0, NEXT)
    assert out == f"{NEXT} is now the current version of file://{output}\n"
    code, _, err = cli("release", manifest(output))
    assert code == 5
    assert "has no held version newer than the current one" in err


def test_release_by_name_and_for_machines(cli: Cli, output: Path) -> None:
    code, out, _ = cli("release", "--output", str(output), NEXT, "--json")
    assert (code, json.loads(out)["version"], json.loads(out)["held"]) == (0, NEXT, [])
    code, _, err = cli("release", "--output", str(output), OLD)
    assert code == 6
    assert f"version {OLD} of file://{output} is not held" in err


def test_discard_removes_the_held_version(cli: Cli, output: Path) -> None:
    code, out, _ = cli("discard", manifest(output))
    assert (code, current(output)) == (0, CURRENT)
    assert out == f"{NEXT} of file://{output} is removed\n"
    there = [info.version for info in list_versions(STORAGE, f"file://{output}")]
    assert there == [OLD, CURRENT]


@pytest.mark.parametrize("command", ["release", "discard"])
def test_which_output_has_to_be_named(cli: Cli, output: Path, command: str) -> None:
    code, _, err = cli(command)
    assert code == 2
    assert "give JOB.yaml, or --output URI" in " ".join(err.replace("│", "").split())
    assert cli(command, manifest(output), OLD, NEXT)[0] == 2
    assert current(output) == CURRENT


def test_rollback_refuses_and_skips_held_versions(cli: Cli, output: Path) -> None:
    code, _, err = cli("rollback", manifest(output), NEXT)
    assert code == 6
    assert "embertide release makes it current anyway" in err
    publish_rows(STORAGE, f"file://{output}", LATER, ROWS)
    assert cli("rollback", manifest(output), "previous")[0] == 0
    assert current(output) == CURRENT


def test_a_run_that_is_held_ends_with_its_own_exit_code(
    cli: Cli, engine: Any, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = replace(REPORT, held=list(WHY), current=False)
    local = sys.modules["embertide.launch.local"]
    monkeypatch.setattr(local, "run_job", lambda *_args, **_options: held)
    code, out, err = cli("run", job)
    assert code == 11
    assert out.startswith(f"Held {REPORT.version}")
    assert f"{REPORT.version} is complete but held: {WHY[0]}" in err
    code, out, _ = cli("run", job, "--json")
    report, error = map(json.loads, out.splitlines()[-2:])
    assert (code, report["held"], error["error"]) == (11, list(WHY), "VersionHeld")


def test_a_run_whose_version_is_not_current_ends_with_its_own_exit_code(
    cli: Cli, engine: Any, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = f"version {NEXT} is current, whose run began later than this one"
    passed = replace(REPORT, current=False, not_current=why)
    local = sys.modules["embertide.launch.local"]
    monkeypatch.setattr(local, "run_job", lambda *_args, **_options: passed)
    code, out, err = cli("run", job)
    assert code == 13
    assert out.startswith(f"Not current {REPORT.version}")
    assert f"{REPORT.version} is complete but not current: {why}" in " ".join(err.split())
    code, out, _ = cli("run", job, "--json")
    report, error = map(json.loads, out.splitlines()[-2:])
    assert (code, report["not_current"], error["error"]) == (13, why, "VersionPassed")
