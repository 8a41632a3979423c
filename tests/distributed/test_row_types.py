"""Rows in bfloat16: rounded where they are said to be, and nowhere else, on every grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embertide.models.reference import run_reference
from embertide.program.steps import Activation, Aggregate, Linear, Program
from tests.support.exact import UNIT, assert_exact
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all
from tests.support.world import GRAPHS, make_features

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2))
LAYER = GRAPHS["directed", False].layer()
WIDTHS = (9, 7, 6)
SUM = Program(
    steps=(Aggregate(out="a", layer=0, x="x"),),
    params={},
    widths={"x": 9, "a": 9},
    layers=1,
    results={"": "a"},
)


def both_ways() -> Program:
    """Two layers: a product, a sum with factors of both ends, and relu."""
    generator = torch.Generator().manual_seed(1)
    steps = [
        step
        for at, x in enumerate(("x", "r0"))
        for step in (
            Linear(out=f"h{at}", layer=at, x=x, weight=f"w{at}"),
            Aggregate(out=f"a{at}", layer=at, x=f"h{at}", norm="both"),
            Activation(out=f"r{at}", layer=at, x=f"a{at}", kind="relu"),
        )
    ]
    shapes = [(WIDTHS[at + 1], WIDTHS[at]) for at in range(2)]
    return Program(
        steps=tuple(steps),
        params={f"w{at}": torch.randn(*s, generator=generator) for at, s in enumerate(shapes)},
        widths={"x": 9} | {f"{name}{at}": WIDTHS[at + 1] for name in "har" for at in range(2)},
        layers=2,
        results={"": "r1"},
    )


def bound_of(program: Program, x: torch.Tensor) -> np.ndarray:
    """[N, D'] how far each value can be from that in float64, roundings adding up at the worst.

    A product is rounded as it becomes a tile, as it is read over edges and as it is scaled to be
    sent; a sum as it becomes rows, and as rows become a tile. relu makes no error larger.
    """
    value, error = x.double(), torch.zeros_like(x, dtype=torch.float64)
    for at in range(2):
        weight = program.params[f"w{at}"].double()
        value, error = value @ weight.T, error @ weight.abs().T
        error += ((1 + UNIT) ** 3 - 1) * (value.abs() + error)
        once = Aggregate(out="a", layer=0, x="x", norm="both")
        of = Program(
            steps=(once,),
            params={},
            widths={"x": WIDTHS[at + 1], "a": WIDTHS[at + 1]},
            layers=1,
            results={"": "a"},
        )
        value, error = (run_reference(of, [LAYER], each) for each in (value, error))
        error += ((1 + UNIT) ** 2 - 1) * (value.abs() + error)
        value = value.relu()
    return (error + 1e-5 * value.abs().max()).numpy()


@pytest.mark.parametrize(("p", "m"), GRIDS)
def test_rows_in_bfloat16_are_as_exact_as_rounding_lets_them_be(p: int, m: int) -> None:
    layers, x = both_ways(), make_features(9)
    programs = [(program, "directed", False) for program in (SUM, layers)]
    answers = on_grid(p, m, embed_all, GRAPHS, programs, "bfloat16")
    summed, layered = (np.concatenate(parts) for parts in zip(*answers, strict=True))
    # The reference, rounded where the run rounds; with slices, results are as they become rows.
    expected = run_reference(SUM, [LAYER], x.bfloat16().float()).numpy()
    if m == 1:
        assert_exact(summed, expected)
    else:
        assert (np.abs(summed - expected) <= UNIT * np.abs(expected) + 1e-5).all()
    exact = run_reference(layers, [LAYER] * 2, x).numpy()
    assert (np.abs(layered - exact) <= bound_of(layers, x)).all()
