"""Passes make plans: program in, operations out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from embertide.program.plans.fuse import fuse
from embertide.program.plans.layouts import check, mark_phases
from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Plan, Target
from embertide.program.plans.summary import summarise_plan
from embertide.program.steps import (
    Activation,
    Affine,
    Aggregate,
    Combine,
    GraphNorm,
    Linear,
    Program,
    SemanticAttend,
    SizeNorm,
)
from embertide.program.steps.base import KINDS, EdgeStep
from embertide.program.steps.op import Reach
from embertide.spec.grid import GridShape
from tests.support import sharing_programs
from tests.support.catalogue import catalogue
from tests.support.plans import in_slices
from tests.support.small_job import SmallJob

ONE = Target(grid=GridShape())


def initial_residual() -> Program:
    """Two sums, of which the second adds the product of the features again."""
    steps = (
        Linear(out="x0", layer=0, x="x", weight="w"),
        Aggregate(out="a", layer=0, x="x0"),
        Activation(out="b", layer=0, x="a", kind="relu"),
        Aggregate(out="c", layer=1, x="b"),
        Combine(out="d", layer=1, a="c", b="x0"),
        GraphNorm(out="e", layer=1, x="d", over="columns"),
        Affine(out="out", layer=1, x="e", shift="s"),
    )
    widths = {"x": 6, **{step.out: 4 for step in steps}}
    params = {"w": torch.eye(4, 6), "s": torch.ones(4)}
    return Program(steps=steps, params=params, widths=widths, layers=2)


def plan() -> Plan:
    return in_slices(initial_residual(), GridShape())


def test_a_phase_ends_where_rows_of_others_or_a_statistic_are_needed() -> None:
    made = plan()
    assert [(op.out, phase) for op, phase in zip(made.ops, made.phases, strict=True)] == [
        ("x0", 0),
        ("b", 1),
        ("c", 2),
        ("d", 2),
        ("e", 3),
        ("out", 3),
    ]
    # Of an initial residual the first product is kept until the phase that adds it.
    assert [made.kept_after(phase) for phase in range(4)] == [["x0"], ["x0", "b"], ["d"], ["out"]]


def test_every_kind_of_step_states_its_reach() -> None:
    graph = {GraphNorm, SizeNorm, SemanticAttend}
    graph |= {KINDS["column_statistic"], KINDS["linear_attend"]}
    assert {kind for kind in KINDS.values() if kind.reach is Reach.GRAPH} == graph
    over_edges = {kind for kind in KINDS.values() if issubclass(kind, EdgeStep)}
    assert {kind for kind in KINDS.values() if kind.reach is Reach.NEIGHBOURS} == over_edges


@pytest.mark.parametrize(
    ("grid", "in_place"), [((1, 1), False), ((2, 2), False), ((2, 2), True), ((1, 3), True)]
)
def test_every_model_has_a_plan(grid: tuple[int, int], in_place: bool) -> None:
    """The last pass checks each; the same program has the same plan."""
    at = Target(grid=GridShape.of(*grid), in_place=in_place)
    for case in catalogue().values():
        made = make_plan(case.program, at)
        assert make_plan(case.program, at) == made
        assert summarise_plan(made).ops[-1].out == made.ops[-1].out


def test_the_last_pass_refuses_what_no_plan_may_be() -> None:
    made = plan()
    first, second, *others = made.ops
    with pytest.raises(AssertionError, match="other steps"):
        check(replace(made, ops=(second, first, *others)))
    with pytest.raises(AssertionError, match="without a phase"):
        check(replace(made, phases=made.phases[1:]))
    turned = replace(made.program, steps=made.program.steps[::-1])
    with pytest.raises(AssertionError, match="before it is made"):
        make_plan(turned, ONE, [fuse, mark_phases, check])


def test_the_summary_says_what_an_operation_fuses_shares_and_frees() -> None:
    shown = summarise_plan(plan())
    assert (shown.grid, shown.layers_grid) == ("1x1", "1x1")
    first, second, *_ = shown.ops
    assert (first.steps, first.reads, first.reach, first.frees) == (["linear"], ["x"], "row", ["x"])
    assert (second.steps, second.reach, second.frees) == (
        ["aggregate", "activation"],
        "neighbours",
        [],
    )
    shared = summarise_plan(make_plan(sharing_programs.pairs(), Target(grid=GridShape.of(2, 1))))
    assert any(len(op.brings) == 2 for op in shared.ops)
    whole = summarise_plan(
        make_plan(sharing_programs.pairs(), Target(grid=GridShape.of(2, 2), in_place=True))
    )
    assert (whole.grid, whole.layers_grid) == ("2x2", "4x1")


def test_the_command_shows_the_plan(
    cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    model = str(SmallJob.make(tmp_path).model)
    code, out, _ = cli("show", model, "--plan", "--grid", "2x2")
    assert code == 0
    assert "Plan on the grid 2x2" in out
    assert "Kept tensors" in out
    code, out, _ = cli("show", model, "--plan", "--grid", "2x2", "--in-place", "--json")
    shown = json.loads(out)["plan"]
    # Two sums and one change of layout: slices stay.
    assert (code, shown["in_place"], shown["layers_grid"]) == (0, True, "2x2")
    assert shown["ops"][-1]["out"] in shown["kept"][-1]
    assert "plan" not in json.loads(cli("show", model, "--json")[1])
