"""Files that hosts, registries and contributors look for: they are there and say what is so."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.support.paths import ROOT

CONFIGURED = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIGURED["project"]
GITHUB = ROOT / ".github"


@pytest.mark.parametrize("form", sorted(GITHUB.glob("ISSUE_TEMPLATE/*.yaml")), ids=str)
def test_forms_for_issues_are_valid(form: Path) -> None:
    found = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= found.keys()
    kinds = {part["type"] for part in found["body"]}
    assert kinds <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    questions = [part["id"] for part in found["body"] if part["type"] != "markdown"]
    assert len(set(questions)) == len(questions) > 0


def test_owners_are_of_files_that_exist() -> None:
    lines = (GITHUB / "CODEOWNERS").read_text().splitlines()
    patterns = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    assert [one for one in patterns[1:] if not (ROOT / one.strip("/")).exists()] == []


def test_what_is_updated_is_what_is_pinned() -> None:
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    assert {one["package-ecosystem"] for one in updates} == {"uv", "github-actions"}
    assert (ROOT / "uv.lock").exists()


def test_a_registry_shows_whose_it_is_and_where_to_read_on() -> None:
    assert PROJECT["authors"]
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= PROJECT["urls"].keys()
    versions = [name for name in PROJECT["classifiers"] if "Python :: 3." in name]
    assert [name.rpartition(" ")[2] for name in versions] == ["3.11", "3.12", "3.13"]
    chart = yaml.safe_load((ROOT / "charts" / "embertide" / "Chart.yaml").read_text())
    assert {"home", "sources", "maintainers", "keywords"} <= chart.keys()


@pytest.mark.tier(2)
def test_types_of_every_module_are_checked_that_is_not_excluded(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file in ("new/room.py", "tests/support/new/module.py", "tests/unit/test_new.py"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text('wrong: int = ""\n')
    command = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path / ".cache"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    wrong = re.findall(r"^(.*):1: error", found.stdout, re.MULTILINE)
    assert sorted(wrong) == ["new/room.py", "tests/support/new/module.py"]


def test_what_types_exclude_exists() -> None:
    files = [str(path.relative_to(ROOT)) for path in ROOT.glob("[a-z]*/**/*.py")]
    for pattern in CONFIGURED["tool"]["mypy"]["exclude"]:
        assert any(re.search(pattern, file) for file in files), pattern
