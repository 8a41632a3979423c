"""Rows that an operation takes at a time, with its tensors on disk."""

from __future__ import annotations

import pytest
import torch

from embertide.footprint import FLOAT_BYTES
from embertide.kernels.scratch import PAGE_ROWS
from embertide.plans import spill
from embertide.plans.plan import Plan
from embertide.spec.grid import GridShape
from embertide.steps import Activation, Linear, Program
from tests.support.plans import in_slices


def product(width: int) -> Plan:
    """One operation, of tensors of so many columns."""
    steps = (
        Linear(out="x0", layer=0, x="x", weight="w"),
        Activation(out="out", layer=0, x="x0", kind="relu"),
    )
    widths, params = dict.fromkeys(("x", "x0", "out"), width), {"w": torch.eye(width)}
    return in_slices(Program(steps=steps, params=params, widths=widths, layers=1), GridShape())


@pytest.mark.parametrize("width", [1, 16, 96, 100, 128, 300, 2000])
def test_a_block_fills_pages_of_every_panel(width: int) -> None:
    plan = product(width)
    most = spill.BLOCK_BYTES // (FLOAT_BYTES * width)
    for rows in (spill.block_rows(plan, plan.ops[0]), spill.change_rows(plan, "out")):
        assert rows % PAGE_ROWS == 0
        assert most - PAGE_ROWS < rows <= most + 16


def test_a_block_of_rows_so_wide_that_few_fit_has_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "BLOCK_BYTES", 4096)
    plan = product(16)
    assert spill.block_rows(plan, plan.ops[0]) == 64
