"""Memory that workers really take, held to its plan where the data outweigh what is constant."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.distributed

CASES = [
    ("0.5", ("wide@1x1", "wide-int64@2x1", "weights@1x2", "gat@2x1", "types@2x1")),
    ("1", ("wide@2x2",)),
    ("0.25", ("edge-features@1x1",)),
    ("1", ("dotgat@1x2",)),
]
"""How much of which shapes of ``benchmarks/memory.py``, on which grids; the command has more."""


@pytest.mark.parametrize(("times", "shapes"), CASES)
def test_the_fullest_worker_takes_what_is_planned(times: str, shapes: tuple[str, ...]) -> None:
    # A process of its own: a fork server that other tests left here may have other settings.
    options = ["--times", times, "--within", "0.2", *shapes]
    command = [sys.executable, "-m", "benchmarks.memory", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
