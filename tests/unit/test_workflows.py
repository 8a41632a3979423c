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
    rows = publish["jobs"]["images"]["strategy"]["matrix"]["include"]
    pushed = {f"ghcr.io/embertide/{row['name']}:{version}{row['suffix']}" for row in rows}
    command = [program("helm"), "template", "embertide", CHART, "--kube-version=1.30"]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"ghcr\.io/embertide/[\w./:-]+", rendered)) == pushed


def test_the_chart_and_the_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"]
    assert f'version = "{chart["version"]}"' in (ROOT / "pyproject.toml").read_text()
