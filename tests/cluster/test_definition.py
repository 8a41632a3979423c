"""The API server holds the same rules as the command line, with messages to act on."""

from __future__ import annotations

import subprocess

import pytest
import yaml
from cluster.crd_cases import BASE, Case
from cluster.crd_rule_cases import CASES
from cluster.jobs import Jobs

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_rule_is_refused_with_its_message(case: Case, jobs: Jobs) -> None:
    manifest = yaml.safe_dump(case.mutate(BASE))
    command = ("apply", "--dry-run=server", "-f", "-")
    result = jobs.cluster.try_kubectl("-n", jobs.namespace, *command, input=manifest)
    assert isinstance(result, subprocess.CompletedProcess)
    if case.message:
        assert result.returncode != 0
        assert case.message in result.stderr
    else:
        assert result.returncode == 0, result.stderr
