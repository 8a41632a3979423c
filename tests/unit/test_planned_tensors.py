"""The largest tensors of a program: what fused runs, landing and layouts save and cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from embertide.engine.planning.layer_memory import tensor_peak
from embertide.footprint import GraphSize
from embertide.program.steps import (
    Affine,
    Aggregate,
    Attend,
    Elementwise,
    Linear,
    Message,
    Program,
    Propagate,
    Step,
    message,
)
from embertide.spec.grid import GridShape
from tests.support.plans import in_slices

NODES, GROUP = 1000, 16
ONE = 4.0 * NODES
"""Bytes of a tensor of width 1."""


def size(graph: int = 1, feature: int = 1) -> GraphSize:
    grid = GridShape.of(graph, feature)
    return GraphSize(nodes={"": NODES}, edges={"": 1 << 20}, grid=grid, group_bytes=GROUP, depth=1)


def program(*steps: Step, **widths: int) -> Program:
    products = [step for step in steps if isinstance(step, Linear)]
    params = {"w": torch.zeros(1)}
    params |= {of.weight: torch.zeros(widths[of.out], widths[of.x]) for of in products}
    return Program(steps=steps, params=params, widths=widths, layers=1)


def peak(
    of: Program, size: GraphSize, *, placed: bool = False, building: float = 0.0, block: float = 0.0
) -> float:
    given = [""] if placed else []
    plan = in_slices(of, size.grid)
    return tensor_peak(plan, size, placed=given, building={"": building}, block={"": block})


def sum_of(x: str, out: str) -> Aggregate:
    return Aggregate(out=out, layer=0, x=x)


def product_of(x: str, out: str) -> Linear:
    return Linear(out=out, layer=0, x=x, weight=f"to {out}")


SUM_AND_PRODUCT = program(sum_of("x", "sums"), product_of("sums", "out"), x=10, sums=10, out=7)


def test_alone_a_sum_and_its_product_make_one_tensor() -> None:
    assert peak(SUM_AND_PRODUCT, size(), placed=True) == 17 * ONE


def test_a_product_of_a_sum_is_made_in_those_before_it() -> None:
    total = Elementwise(out="out", layer=0, inputs=("a", "b", "c"), op="sum")
    steps = product_of("x", "a"), product_of("x", "b"), product_of("x", "c"), total
    assert peak(program(*steps, x=10, a=7, b=7, c=7, out=7), size(), placed=True) == 17 * ONE


def test_rows_that_are_not_placed_are_put_in_order_first() -> None:
    assert peak(SUM_AND_PRODUCT, size()) == 20 * ONE


def test_among_many_the_sums_exist_and_the_summed_tensor_makes_room() -> None:
    one = program(
        product_of("x", "a"), sum_of("a", "s"), product_of("s", "out"), x=1, a=10, s=10, out=7
    )
    groups = 4 * GROUP
    # A sum of 10 beside what was summed; the product of 7 comes when that is gone.
    assert peak(one, size(2)) == 20 * ONE / 2 + groups
    late = program(
        product_of("x", "a"), sum_of("a", "s"), product_of("s", "out"), x=1, a=10, s=10, out=30
    )
    assert peak(late, size(2)) == 40 * ONE / 2


def test_products_land_beside_the_loaded_rows_in_batches() -> None:
    landed = program(product_of("x", "out"), x=20, out=10)
    # A batch has at least a row of ten columns.
    assert peak(landed, size(2)) == 30 * ONE / 2 + 5 * 4 * 10


def test_a_tensor_in_two_layouts_counts_twice() -> None:
    steps = (
        product_of("x", "a"),
        product_of("a", "b"),
        sum_of("b", "c"),
        Affine(out="out", layer=0, x="c", shift="w"),
    )
    both = program(*steps, x=1, a=10, b=10, c=10, out=10)
    # `b` comes as rows and is summed as a tile.
    assert peak(both, size(1, 2)) == 20 * ONE / 2


@pytest.mark.parametrize("graph", [1, 2])
def test_attention_keeps_maxima_and_sums_where_groups_follow_each_other(graph: int) -> None:
    attend = Attend(out="out", layer=0, x="a", source="s", target="t", heads=1)
    attending = program(
        product_of("x", "a"), product_of("x", "s"), product_of("x", "t"), attend,
        x=1, a=10, s=1, t=1, out=10,
    )  # fmt: skip
    found = peak(attending, size(graph))
    scores = 0.0 if graph == 1 else 2 * ONE / 2 + 4 * size(2).of_relation("").unique() + 4 * GROUP
    assert found == pytest.approx(22 * ONE / graph + scores)


def test_a_graph_that_is_being_built_counts_beside_what_is_alive_then() -> None:
    assert peak(SUM_AND_PRODUCT, size(), placed=True, building=50 * ONE) == 60 * ONE


@pytest.mark.parametrize(
    ("alpha", "hops", "most"),
    [(0.0, None, 2), (0.1, None, 3), (0.0, (1.0, 1.0, 1.0, 1.0), 3), (0.1, (1.0,) * 4, 4)],
)
def test_a_propagation_holds_two_sums_beside_what_it_reads_again(
    alpha: float, hops: tuple[float, ...] | None, most: int
) -> None:
    again = Propagate(out="out", layer=0, x="a", times=3, alpha=alpha, hops=hops)
    assert peak(program(product_of("x", "a"), again, x=1, a=10, out=10), size()) == most * 10 * ONE


def test_messages_hold_a_chunk_of_edges_beside_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message, "CHUNK_VALUES", 5000)
    one = Message(out="out", layer=0, x="a", target="a", lines=("out = add(s, t)",))
    spread = replace(one, reduce="var")
    # The ends, the result and counts, and for a spread the means; of 161 edges both ends, their
    # weight and the message at a time.
    for step, tensors in ((one, 2), (spread, 3)):
        found = peak(program(product_of("x", "a"), step, x=1, a=10, out=10), size())
        assert found == (tensors * 10 + 1) * ONE + 4 * 161 * 31
