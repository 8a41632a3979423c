"""Memory that workers really take, held to its plan where the data outweigh what is constant."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.memory import SHAPES, measure

pytestmark = pytest.mark.distributed

CASES = [
    ("wide", 0.5, "1x1"),
    ("wide", 1.0, "2x2"),
    ("wide-int64", 0.5, "2x1"),
    ("weights", 0.5, "1x2"),
    ("gat", 0.5, "2x1"),
    ("dotgat", 1.0, "1x2"),
]
"""Shape of ``benchmarks/memory.py``, how much of it, grid."""
WITHIN = 0.2


@pytest.mark.parametrize(("shape", "times", "grid"), CASES)
def test_the_fullest_worker_takes_what_is_planned(
    tmp_path: Path, shape: str, times: float, grid: str
) -> None:
    job = SHAPES[shape].make(tmp_path / "job", times)
    found = measure(job, grid)
    by_stage = ", ".join(
        f"{stage} {found['taken_stages'][stage]} of {planned}"
        for stage, planned in found["planned_stages"].items()
    )
    assert found["taken"] == pytest.approx(found["planned"], rel=WITHIN), by_stage
