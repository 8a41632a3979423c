"""The workflows of GitHub Actions: valid, pinned, and publishing what the chart installs."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from tests.support.go_programs import program
from tests.support.paths import ROOT

pytestmark = pytest.mark.needs("helm", "publishing")

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
CHART = ROOT / "charts" / "embertide"
RELEASE = ("release", "release-try")
"""Make targets: the packages of a release, built and tried; release-check does more than both."""


def test_actionlint_finds_nothing() -> None:
    command = [program("actionlint"), "-color=false", *WORKFLOWS]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(WORKFLOWS) >= 2


def test_actions_are_pinned_by_commit_and_say_their_version() -> None:
    for path in WORKFLOWS:
        used = re.findall(r"uses: (?!\./)(.*)", path.read_text())
        assert used
        for line in used:
            assert re.fullmatch(r"[\w/.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_images_are_published_under_the_names_that_the_chart_has() -> None:
    publish = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yaml").read_text())
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    jobs = (publish["jobs"][name]["strategy"]["matrix"]["include"] for name in ("images", "tags"))
    built, pushed = (
        {f"ghcr.io/embertide/{row['name']}:{version}{row['suffix']}" for row in rows}
        for rows in jobs
    )
    command = [program("helm"), "template", "embertide", CHART, "--kube-version=1.30"]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"ghcr\.io/embertide/[\w./:-]+", rendered)) == built
    # Made from the worker's: clients of indexes are chosen by a job, not by the chart.
    assert pushed - built == {f"ghcr.io/embertide/worker:{version}-push"}
    assert built < pushed


def test_rooms_of_the_exhaustive_tests_are_packages() -> None:
    workflow = (ROOT / ".github" / "workflows" / "exhaustive.yaml").read_text()
    rooms = re.findall(r'"([a-z.]+)"', re.findall(r"\|\| '\[(.*?)\]'", workflow)[0])
    assert len(rooms) > 5
    package = ROOT / "worker" / "embertide"
    assert [r for r in rooms if not (package / r.replace(".", "/") / "__init__.py").exists()] == []


def unseen(workflow: str) -> list[str]:
    """Steps that neither tests nor `make release-check` run, and that give no reason for it.

    A reason is a comment "not seen: ..." in the step. Without one, a step runs make targets of a
    release, or programs of docker/ that tests name.
    """
    makefile = (ROOT / "Makefile").read_text()
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    found = []
    for step in re.split(r"^      - ", workflow, flags=re.MULTILINE)[1:]:
        step = re.split(r"^ {2,4}\S", step, maxsplit=1, flags=re.MULTILINE)[0]
        if re.search(r"# not seen: \w", step):
            continue
        targets, programs = re.findall(r"\bmake ([\w-]+)", step), re.findall(r"docker/(\S+)", step)
        seen = [target in RELEASE and f"\n{target}: " in makefile for target in targets]
        seen += [f'"{name}"' in tests for name in programs]
        if not seen or not all(seen):
            found.append(step.partition("\n")[0])
    return found


def test_every_step_of_a_release_runs_here_or_says_why_not() -> None:
    workflow = (ROOT / ".github" / "workflows" / "publish.yaml").read_text()
    assert unseen(workflow) == []
    assert workflow.count("\n      - ") > 30
    for line, taken in {
        "make release TAG": "make release-upload TAG",
        "docker/join-platforms": "docker/join-images",
        "# not seen: needs PyPI": "# needs PyPI",
    }.items():
        assert len(unseen(workflow.replace(line, taken))) == 1, taken
