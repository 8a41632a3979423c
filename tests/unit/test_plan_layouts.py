"""The pass that chooses layouts: what each operation reads, makes, frees, reuses and brings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from embertide.facts.telemetry.recorder import NullRecorder
from embertide.graph.exchange import Exchange
from embertide.grid import Grid, RowRanges
from embertide.layouts import Loaded
from embertide.program.plans.layouts import check, with_placed
from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Plan, Target
from embertide.program.steps import Activation, Aggregate, Combine, Linear, Program
from embertide.program.steps.op import Input, Op
from embertide.program.steps.tensors import Tensors
from embertide.spec.grid import GridShape
from embertide.spec.identity import identity
from tests.support.plans import in_slices
from tests.support.sharing_programs import additive, messages, pairs, read


def convolution(norm: str = "both") -> Program:
    """A product, a sum, a product, a sum, to which the first product is added."""
    how = {"norm": norm, "edge_weight": False}
    steps = (
        Linear(out="x0", layer=0, x="x", weight="w"),
        Aggregate(out="a", layer=0, x="x0", **how),
        Activation(out="b", layer=0, x="a", kind="tanh"),
        Linear(out="c", layer=1, x="b", weight="v"),
        Aggregate(out="d", layer=1, x="c", **how),
        Combine(out="out", layer=1, a="d", b="x0"),
    )
    widths = {"x": 6, **{step.out: 4 for step in steps}}
    params = {"w": torch.eye(4, 6), "v": torch.eye(4)}
    return Program(steps=steps, params=params, widths=widths, layers=2)


def ops_on(p: int, m: int, program: Program | None = None) -> dict[str, Op]:
    """The operations by the tensors they make."""
    plan = in_slices(program or convolution(), GridShape.of(p, m))
    return {op.out: op for op in plan.ops}


def read_by(op: Op) -> dict[str, str]:
    return {one.name: one.layout for one in op.inputs}


def test_slices_sum_tiles_and_multiply_them_on_their_way_to_rows() -> None:
    ops = ops_on(2, 2)
    assert (read_by(ops["x0"]), ops["x0"].layout) == ({"x": "loaded"}, "tile")
    assert (read_by(ops["a"]), ops["a"].layout) == ({"x0": "tile"}, "tile")
    assert (read_by(ops["c"]), ops["c"].layout) == ({"b": "tile"}, "rows")
    assert (read_by(ops["d"]), ops["d"].layout) == ({"c": "tile"}, "tile")
    assert (read_by(ops["out"]), ops["out"].layout) == ({"d": "tile", "x0": "tile"}, "tile")


def test_only_what_no_later_operation_reads_is_freed_and_changed_in_place() -> None:
    ops = ops_on(1, 1)
    assert (ops["x0"].frees, ops["a"].frees) == ({"x"}, frozenset())
    assert (ops["b"].frees, ops["b"].reuses) == ({"a"}, "a")
    assert (ops["out"].frees, ops["out"].reuses) == ({"d", "x0"}, "x0")
    twice = replace(convolution(), results={"": "out", "again": "x0"})
    kept = {op.out: op for op in in_slices(twice, GridShape()).ops}
    assert (kept["out"].frees, kept["out"].reuses) == ({"d"}, None)


def test_a_product_multiplies_by_the_factors_of_the_sum_that_reads_it() -> None:
    for grid in ((1, 1), (2, 2)):
        ops = ops_on(*grid)
        # Of loaded features it does not: the factors are those of the rows' owners.
        assert [name for name, op in ops.items() if op.scales] == ["c"]
    assert not any(op.scales for op in ops_on(2, 2, convolution("in")).values())
    sampled = make_plan(convolution(), Target(grid=GridShape(), sampled=True))
    assert not any(op.scales for op in sampled.ops)


def test_features_in_order_are_rows_from_the_start() -> None:
    plan = in_slices(convolution(), GridShape())
    assert plan.ops[0].inputs == (Input("x", "loaded"),)
    assert with_placed(plan, [""]).ops[0].inputs == (Input("x", "rows"),)


@pytest.mark.parametrize("program", [additive(), pairs(), messages(), read()])
def test_the_first_of_several_makes_the_sums_of_all_and_the_others_read_them(
    program: Program,
) -> None:
    plan = make_plan(program, Target(grid=GridShape.of(2, 1)))
    brought = {step.out for op in plan.ops if len(op.brings) > 1 for step in op.brings[1:]}
    assert brought
    seen: set[str] = set()
    for op in plan.ops:
        own = op.steps[0].out
        assert op.reads(own, "sums") == (own in brought)
        if own in brought:
            assert own in seen
            assert read_by(op).items() >= {own: "sums"}.items()
        seen |= {step.out for step in op.brings}
    alone = make_plan(program, Target(grid=GridShape()))
    assert all(len(op.brings) <= 1 for op in alone.ops)


def test_a_plan_may_not_begin_again_between_sums_and_what_finishes_them() -> None:
    plan = make_plan(read(), Target(grid=GridShape.of(2, 1)))
    made = {step.out: number for number, op in enumerate(plan.ops) for step in op.brings}
    own = {op.steps[0].out: number for number, op in enumerate(plan.ops)}
    waiting = [range(made[name] + 1, own[name] + 1) for name in made if made[name] < own[name]]
    assert waiting
    for at in range(len(plan.ops)):
        assert plan.has_sums_at(at) == any(at in span for span in waiting)


def test_operations_are_the_same_ones_whatever_their_layouts() -> None:
    one, four = (list(ops_on(*grid).values()) for grid in ((1, 1), (2, 2)))
    assert one != four
    assert identity(one) == identity(four)


def test_an_operation_that_does_not_name_what_it_reads_is_refused() -> None:
    plan: Plan = in_slices(convolution(), GridShape())
    first, *others = plan.ops
    with pytest.raises(AssertionError, match="without a layout"):
        check(replace(plan, ops=(replace(first, inputs=()), *others)))


def test_a_run_reads_nothing_that_its_plan_does_not_name() -> None:
    exchange = Exchange(Grid(GridShape(), 0), torch.device("cpu"), NullRecorder())
    loaded = Loaded(torch.arange(0), torch.ones(3, 6), placed=True)
    ranges = {"": RowRanges((0, 3), 1)}
    tensors = Tensors(exchange, convolution(), ranges, {"": loaded}, {}, batch_bytes=64)
    channel = exchange.channel("feature", "gemm")
    tensors.begin([Input("x", "rows")], ["x"])
    assert tensors.get("x", "rows", channel).data is loaded.data
    with pytest.raises(AssertionError, match="unlike planned"):
        tensors.get("x", "tile", channel)
