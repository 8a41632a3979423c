"""Manifest, report and status of small runs are what was frozen (``python -m tools.oracles``)."""

from __future__ import annotations

import difflib
import itertools

import pytest

from tools.frozen_runs import RUNS, sections
from tools.oracles import frozen

pytestmark = pytest.mark.distributed

FIRST = ("2x1", "targets", "refreshed", "held by a gate", "fails by its features")
"""Runs of the first tier."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.tier(1 if name in FIRST else 2)) for name in RUNS],
)
def test_a_run_leaves_what_was_frozen(name: str) -> None:
    lines = frozen("runs.txt")[name].splitlines(), sections()[name]().splitlines()
    differing = difflib.unified_diff(*lines, f"{name}, frozen", "left", lineterm="", n=1)
    assert "\n".join(itertools.islice(differing, 40)) == ""


@pytest.mark.tier(1)
def test_every_run_is_frozen() -> None:
    assert [*frozen("runs.txt")] == [*RUNS]
