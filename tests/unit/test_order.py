"""Programs in the order that costs least give the same numbers, and fuse into few runs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from embertide.models.reference import run_reference
from embertide.program.steps import Activation, Affine, Aggregate, Elementwise, Linear, Program
from embertide.program.steps.elementwise import ElementOp
from tests.support.catalogue import catalogue
from tests.support.plans import ops_of, order_steps
from tests.support.world import make_features


def gcn(*widths: int) -> Program:
    """One layer of each width after the first, the product before the sum."""
    steps, names, params, x = [], {"x": widths[0]}, {}, "x"
    for at, (given, width) in enumerate(itertools.pairwise(widths)):
        names |= {f"{at}.{part}": width for part in ("linear", "aggregate", "affine", "relu")}
        params |= {f"{at}.w": torch.randn(width, given), f"{at}.b": torch.randn(width)}
        steps += [
            Linear(out=f"{at}.linear", layer=at, x=x, weight=f"{at}.w"),
            Aggregate(out=f"{at}.aggregate", layer=at, x=f"{at}.linear", norm="both"),
            Affine(out=f"{at}.affine", layer=at, x=f"{at}.aggregate", shift=f"{at}.b"),
            Activation(out=f"{at}.relu", layer=at, x=f"{at}.affine", kind="relu"),
        ]
        x = f"{at}.relu"
    return Program(
        steps=tuple(steps), params=params, widths=names, layers=len(widths) - 1, results={"": x}
    )


@pytest.mark.parametrize(
    ("widths", "workers", "first"),
    [
        ((8, 8, 8), 1, [Aggregate, Aggregate]),
        ((8, 8, 8), 2, [Linear, Aggregate]),
        ((8, 4, 8), 2, [Linear, Aggregate]),
        ((4, 8, 4), 2, [Aggregate, Linear]),
    ],
)
def test_rows_are_summed_where_they_are_narrow(
    widths: tuple[int, ...], workers: int, first: list[type]
) -> None:
    ordered = order_steps(gcn(*widths), workers)
    assert [type(step) for step in ordered.steps[::4]] == first
    assert order_steps(ordered, workers).steps == ordered.steps
    # As workers do who read each other's tensors in place.
    assert order_steps(ordered, 1).steps == order_steps(gcn(*widths), 1).steps
    for step in ordered.steps:
        if isinstance(step, Aggregate):
            assert ordered.widths[step.x] == ordered.widths[step.out]
    assert len(ops_of(ordered)) == sum(1 if kind is Aggregate else 2 for kind in first)


def test_the_next_sum_alone_lets_its_factors_be_multiplied_early() -> None:
    sums, *_, last = ops_of(order_steps(gcn(8, 8, 8), 1))
    assert sums.reader == last.leader
    assert last.reader is None
    # What a layer makes has a name, for reports; nobody reads it by that.
    named = replace(gcn(8, 8, 8), outputs=("0.relu", "1.relu"))
    assert ops_of(order_steps(named, 1))[0].reader == last.leader
    wanted = replace(gcn(8, 8, 8), results={"": "0.relu", "other": "1.relu"})
    assert all(run.reader is None for run in ops_of(order_steps(wanted, 1)))


def of_products(op: ElementOp = "sum", *, asked: tuple[str, ...] = ()) -> Program:
    """Two sums over in-edges and the node itself, each through a weight, and a ReLU of all."""
    steps = [
        Aggregate(out="s1", layer=0, x="x"),
        Aggregate(out="s2", layer=0, x="x", reduce="max"),
        Linear(out="p1", layer=0, x="s1", weight="w", bias="b"),
        Linear(out="p2", layer=0, x="s2", weight="w"),
        Linear(out="p3", layer=0, x="x", weight="w", bias="b"),
        Elementwise(out="all", layer=0, inputs=("p3", "p1", "p2"), op=op),
        Activation(out="out", layer=0, x="all", kind="relu"),
    ]
    return Program(
        steps=tuple(steps),
        params={"w": torch.randn(4, 4), "b": torch.randn(4)},
        widths=dict.fromkeys(("x", *(step.out for step in steps)), 4),
        layers=1,
        outputs=asked,
    )


def test_products_of_a_sum_are_added_to_each_other() -> None:
    """Each in a run with the sum before it; the last one is finished with the activation."""
    ordered = order_steps(of_products(), 1)
    assert [(run.out, run.onto, run.part) for run in ops_of(ordered)] == [
        ("p1", None, True),
        ("p2", "p1", True),
        ("out", "p2", False),
    ]
    assert [len(run.steps) for run in ops_of(ordered)] == [2, 2, 3]


@pytest.mark.parametrize(
    "program",
    [of_products("max"), of_products("mean"), of_products(asked=("p1",))],
    ids=["maximum", "mean", "one is asked for"],
)
def test_other_products_are_tensors(program: Program) -> None:
    assert not any(run.onto or run.part for run in ops_of(order_steps(program, 1)))


def test_what_is_behind_no_product_is_not_added_to() -> None:
    """A sum over in-edges that is no product's ends the chain, unless it is the first."""
    first, last = of_products(), of_products()
    bare = Aggregate(out="p2", layer=0, x="x", reduce="max")
    first = replace(first, steps=(bare, *(s for s in first.steps if s.out not in ("s2", "p2"))))
    last = replace(last, steps=(*last.steps[:3], last.steps[4], bare, *last.steps[5:]))
    assert [run.onto for run in ops_of(order_steps(first, 1))] == [None, "p2", "p1"]
    assert not any(run.onto for run in ops_of(order_steps(last, 1)))


def test_every_model_gives_the_same_numbers() -> None:
    for name, case in catalogue().items():
        graphs = [case.graph.layer()] * case.program.layers
        features = make_features(case.program.input_width)
        expected = run_reference(case.program, graphs, features)
        seen = {case.program.steps}
        for workers in (1, 4):
            ordered = order_steps(case.program, workers)
            assert [step for run in ops_of(ordered) for step in run.steps] == list(ordered.steps)
            if ordered.steps not in seen:
                seen.add(ordered.steps)
                torch.testing.assert_close(
                    run_reference(ordered, graphs, features),
                    expected,
                    msg=lambda text, name=name, workers=workers: f"{name} of {workers}: {text}",
                )
