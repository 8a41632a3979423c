"""Parts that operations take at a time, with tensors on disk, and which of these are stored."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from embertide.footprint import FLOAT_BYTES
from embertide.kernels.scratch import PAGE_ROWS
from embertide.program.plans import panels, spill
from embertide.program.plans.fuse import fuse
from embertide.program.plans.passes import MARKING, make_plan
from embertide.program.plans.plan import Plan, Target
from embertide.program.steps import Activation, Attend, HeadDot, Linear, Program, Step
from embertide.spec.grid import GridShape
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
    for rows in (spill.block_rows(plan, plan.ops), spill.change_rows(plan, "out")):
        assert rows % PAGE_ROWS == 0
        assert most - PAGE_ROWS < rows <= most + 16


def test_a_block_of_rows_so_wide_that_few_fit_has_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "BLOCK_BYTES", 4096)
    plan = product(16)
    assert spill.block_rows(plan, plan.ops) == 64


def attention(heads: int, panel: int) -> Plan:
    """Two layers of additive attention, with a norm and an activation between them."""
    steps, widths, x = list[Step](), {"x": 32}, "x"
    for layer in range(2):
        h, source, target, out = (f"{layer}.{name}" for name in ("h", "source", "target", "out"))
        steps += [
            Linear(out=h, layer=layer, x=x, weight="w"),
            HeadDot(out=source, layer=layer, x=h, vector="a", heads=heads),
            HeadDot(out=target, layer=layer, x=h, vector="a", heads=heads),
            Attend(out=out, layer=layer, x=h, source=source, target=target, heads=heads),
            Activation(out=f"{layer}.elu", layer=layer, x=out, kind="elu"),
        ]
        widths |= {h: 32, source: heads, target: heads, out: 32, f"{layer}.elu": 32}
        x = f"{layer}.elu"
    params = {"w": torch.eye(32), "a": torch.ones(heads, 32 // heads)}
    program = Program(steps=tuple(steps), params=params, widths=widths, layers=2)
    program = replace(program, results={"": x})
    return make_plan(program, Target(grid=GridShape(), panel=panel), (fuse, *MARKING))


def test_rows_between_functions_of_rows_are_never_on_disk() -> None:
    plan = attention(4, panel=8)
    ops = spill.on_disk(plan).ops
    stored = [list(op.stores) for op in ops]
    assert [op.parts for op in ops] == [
        *("later", "later", "rows", "columns"),
        *("later", "later", "later", "rows", "columns", "rows"),
    ]
    assert stored == [
        *([], [], ["0.h", "0.source", "0.target"], ["0.out"]),
        *([], [], [], ["1.h", "1.source", "1.target"], ["1.out"], ["1.elu"]),
    ]
    assert [[read.name for read in op.reads] for op in ops if op.parts == "rows"] == [
        *(["x"], ["0.out"], ["1.out"])
    ]
    assert {name for op in ops for name in op.frees} == {
        *("x", "0.h", "0.source", "0.target", "0.out"),
        *("1.h", "1.source", "1.target", "1.out"),
    }


@pytest.mark.parametrize(("heads", "columns"), [(1, 8), (2, 16), (4, 8), (8, 8)])
def test_the_columns_of_one_head_come_apart_and_those_of_several_do_not(
    heads: int, columns: int
) -> None:
    plan = attention(heads, panel=8)
    attend = next(op for op in plan.ops if op.out == "0.out")
    assert panels.panel_columns(plan, 32) == columns
    for panel in panels.panels(plan, 32, 0):
        own = panels.for_panel(plan, attend, panel.each)
        first = panel.columns.start * heads // 32
        count = max(1, heads * columns // 32)
        assert own.reads["0.h"] == panel.each
        assert own.reads["0.source"] == (slice(first, first + count),)
        assert own.op.steps[0] == replace(attend.steps[0], heads=count)
