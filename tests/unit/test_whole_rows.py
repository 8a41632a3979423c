"""Which programs workers of one host compute in whole rows, whatever the grid slices."""

from __future__ import annotations

import pytest
import torch

from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Target
from embertide.program.steps import Aggregate, GraphNorm, Linear, Program, Propagate, Step
from embertide.spec.grid import GridShape
from tests.support import sharing_programs
from tests.support.plans import order_steps

GRIDS = [(2, 1), (1, 2), (2, 2)]


def whole_rows(program: Program, p: int, m: int, *, sampled: bool = False) -> bool:
    """Whether workers of one host compute a program in whole rows."""
    at = Target(grid=GridShape.of(p, m), in_place=True, sampled=sampled)
    return make_plan(program, at).whole_rows


def of_one_type(*steps: Step) -> Program:
    """Twelve columns, of four features: sums go before products on any grid."""
    return Program(
        steps=steps,
        params={"w": torch.zeros(12, 4)},
        widths={"x": 4, "a": 4, "h": 12, "n": 12, "p": 4},
        layers=1,
        results={"": steps[-1].out},
    )


PAIR = (Aggregate(out="a", layer=0, x="x"), Linear(out="h", layer=0, x="a", weight="w"))


@pytest.mark.parametrize(("name", "p", "m"), [("additive", 2, 2), ("pairs", 1, 2), ("pairs", 2, 2)])
def test_relations_that_share_rows_keep_no_program_in_slices(name: str, p: int, m: int) -> None:
    assert whole_rows(getattr(sharing_programs, name)(), p, m)


@pytest.mark.parametrize(("p", "m"), GRIDS)
def test_features_that_are_summed_first_are_read_as_whole_rows(p: int, m: int) -> None:
    assert whole_rows(of_one_type(*PAIR), p, m)


def test_sums_one_after_the_other_stay_in_slices() -> None:
    hops = of_one_type(Propagate(out="p", layer=0, x="x", times=3))
    assert not whole_rows(hops, 1, 2)
    assert not whole_rows(hops, 2, 2)


@pytest.mark.parametrize(("p", "m"), GRIDS)
def test_statistics_over_all_nodes_keep_a_program_in_slices(p: int, m: int) -> None:
    normed = of_one_type(*PAIR, GraphNorm(out="n", layer=0, x="h", over="columns"))
    assert not whole_rows(normed, p, m)


def test_heads_in_several_slices_keep_a_program_in_slices() -> None:
    assert not whole_rows(sharing_programs.additive(), 1, 3)


def test_workers_that_are_apart_and_samples_stay_in_slices() -> None:
    program = sharing_programs.read()
    assert whole_rows(program, 2, 2)
    assert not whole_rows(program, 2, 2, sampled=True)
    assert not make_plan(program, Target(grid=GridShape.of(2, 2))).whole_rows


def test_the_order_is_that_of_one_worker() -> None:
    program = sharing_programs.read()
    plan = make_plan(program, Target(grid=GridShape.of(2, 2), in_place=True))
    assert (plan.whole_rows, plan.grid) == (True, GridShape.of(4, 1))
    assert plan.program.steps == order_steps(program, 1).steps
    assert plan.sliced.steps == order_steps(program, 4).steps
