"""Memory that workers really take, held to its plan where the data outweigh what is constant."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.distributed

CASES = [
    ("wide", "0.5", ("1x1", "2x2")),
    ("wide-int64", "0.5", ("2x1",)),
    ("weights", "0.5", ("1x2",)),
    ("gat", "0.5", ("2x1",)),
    ("dotgat", "1", ("1x2",)),
]
"""Shape of ``benchmarks/memory.py``, how much of it, grids; the command has more of them."""


@pytest.mark.parametrize(("shape", "times", "grids"), CASES)
def test_the_fullest_worker_takes_what_is_planned(
    shape: str, times: str, grids: tuple[str, ...]
) -> None:
    # A process of its own: a fork server that other tests left here may have other settings.
    options = [shape, "--times", times, *(f"--grid={grid}" for grid in grids)]
    command = [sys.executable, "-m", "benchmarks.memory", *options]
    done = subprocess.run(
        [*command, "--within", "0.2"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
