"""The API server holds the same rules as the command line, with messages to act on."""

from __future__ import annotations

import subprocess

import pytest
import yaml
from cluster.crd_cases import BASE, Case
from cluster.crd_rule_cases import CASES
from cluster.fixture import Cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def namespace(cluster: Cluster, operator: str) -> str:
    """One for all cases, which leave nothing there."""
    return cluster.namespace("cases")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_rule_is_refused_with_its_message(
    case: Case, cluster: Cluster, namespace: str
) -> None:
    manifest = yaml.safe_dump(case.mutate(BASE))
    command = ("apply", "--dry-run=server", "-f", "-")
    result = cluster.try_kubectl("-n", namespace, *command, input=manifest)
    assert isinstance(result, subprocess.CompletedProcess)
    if case.message:
        assert result.returncode != 0
        assert case.message in result.stderr
    else:
        assert result.returncode == 0, result.stderr
