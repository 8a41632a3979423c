"""The runbook of EmbertideJobFailed has a row for every reason that the alert can have."""

from __future__ import annotations

import ast
import importlib
import re

import pytest

from embertide import errors
from embertide.errors import EmbertideError
from embertide.pod.endings import INTERNAL, OUT_OF_MEMORY
from embertide_operator.decide import obstacles
from embertide_operator.job import disruptions
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "runbooks" / "EmbertideJobFailed.md"
OPERATOR = ROOT / "operator" / "embertide_operator"
NOT_IN_A_POD = {
    "ClusterError",
    "JobFailed",
    "Interrupted",
    "EmbertideError",
    "VersionHeld",
    "VersionPassed",
}
"""Errors of the command line only."""
NEVER_THE_CAUSE = {
    "SpecChanged": "the workers are restarted, and nothing has failed",
    "WorkerDisrupted": "retried; too many in a row are TooManyDisruptions",
    "BackoffLimitExceeded": "the reason of the last failure stands in its place",
    "PushFailed": "the version is published, so the job is complete",
    "ProcessDied": "reported as WorkerFailed, with what died",
}
OF_KUBERNETES = {"Evicted"}
"""Reasons of pods that the operator passes on without naming them."""


def of_workers() -> set[str]:
    """What a container reports: its errors' classes, and two reasons that have none."""
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, EmbertideError)
    }
    names = {name.removesuffix("Error") for name in classes - NOT_IN_A_POD}
    return names | {INTERNAL, OUT_OF_MEMORY}


def of_the_operator() -> set[str]:
    """The first arguments of ``Failure(...)``, and the obstacles that end a job."""
    named = {"ImagePullBackOff", obstacles.PODS_REFUSED, *obstacles._MISTAKES}
    for path in sorted(OPERATOR.rglob("*.py")):
        tree = ast.parse(path.read_text())
        module = ".".join(path.relative_to(OPERATOR).with_suffix("").parts)
        named |= {reason for call in ast.walk(tree) if (reason := _reason(call, module))}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "_unreported":
                named |= _returned(node)
    return named | set(disruptions._OWN_FAULTS)


def _reason(node: ast.AST, module: str) -> str | None:
    """The reason of a ``Failure``: a literal, or a constant of its module."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "Failure" and node.args):
        return None
    reason = node.args[0]
    if isinstance(reason, ast.Constant):
        return str(reason.value)
    if isinstance(reason, ast.Name) and reason.id.isupper():
        return str(getattr(importlib.import_module(f"embertide_operator.{module}"), reason.id))
    return None


def _returned(function: ast.FunctionDef) -> set[str]:
    """The first items of the tuples that it returns."""
    tuples = (n.value for n in ast.walk(function) if isinstance(n, ast.Return))
    firsts = (value.elts[0] for value in tuples if isinstance(value, ast.Tuple))
    return {str(first.value) for first in firsts if isinstance(first, ast.Constant)}


def rows() -> list[str]:
    """The reasons in the table, in order."""
    section = PAGE.read_text().split("\n## Mitigation\n")[1]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_every_reason_has_one_row_and_every_row_is_a_reason() -> None:
    reasons = (of_workers() | of_the_operator() | OF_KUBERNETES) - set(NEVER_THE_CAUSE)
    assert sorted(rows()) == sorted(reasons)


def test_reasons_are_read_from_the_code() -> None:
    assert {"DeadlineExceeded", "PlannerFailed", "InputsNotReady", "CannotStart"} <= (
        of_the_operator()
    )
    assert {"Input", "StoreUnavailable", "Internal"} <= of_workers()


@pytest.mark.parametrize("reason", sorted(NEVER_THE_CAUSE))
def test_what_is_left_out_exists(reason: str) -> None:
    assert reason in of_workers() | of_the_operator()
