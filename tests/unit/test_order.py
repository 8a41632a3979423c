"""Programs in the order that costs least give the same numbers, and fuse into few runs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from embertide.models.order import order_steps
from embertide.models.reference import run_reference
from embertide.steps import Activation, Affine, Aggregate, Linear, Program
from embertide.steps.fuse import runs
from tests.support.catalogue import catalogue
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
    for step in ordered.steps:
        if isinstance(step, Aggregate):
            assert ordered.widths[step.x] == ordered.widths[step.out]
    assert len(runs(ordered)) == sum(1 if kind is Aggregate else 2 for kind in first)


def test_the_next_sum_alone_lets_its_factors_be_multiplied_early() -> None:
    sums, *_, last = runs(order_steps(gcn(8, 8, 8), 1))
    assert sums.reader == last.leader
    assert last.reader is None
    shared = replace(gcn(8, 8, 8), outputs=("0.relu",))
    assert all(run.reader is None for run in runs(order_steps(shared, 1)))


@pytest.mark.parametrize("workers", [1, 4])
def test_every_model_gives_the_same_numbers(workers: int) -> None:
    for name, case in catalogue().items():
        ordered = order_steps(case.program, workers)
        graphs = [case.graph.layer()] * case.program.layers
        features = make_features(case.program.input_width)
        torch.testing.assert_close(
            run_reference(ordered, graphs, features),
            run_reference(case.program, graphs, features),
            msg=lambda text, name=name: f"{name}: {text}",
        )
        assert [step for run in runs(ordered) for step in run.steps] == list(ordered.steps)
