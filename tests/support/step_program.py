"""Programs of a few steps, with parameters at random. Light: ranks import it."""

from __future__ import annotations

import torch

from embertide.program.steps import (
    Aggregate,
    Linear,
    Program,
    Step,
)
from embertide.program.steps.shapes import Shapes

WIDTH = 10
EDGE_FEATURES = 3
PARAMS = {
    "edge": (10, 3),
    "score": (2, 3),
    "w": (7, 10),
    "v": (7, 10),
    "both": (6, 17),
    "heads": (1, 2, 3),
    "even": (6, 10),
    "other": (6, 10),
    "values": (8, 10),
    "sums": (6, 8),
    "score_bias": (6,),
    "pair": (1, 2, 3),
    "a": (7,),
    "b": (7,),
    "c": (7,),
    "hidden": (4, 7),
    "hidden_bias": (4,),
    "q": (1, 4),
}


def program(*steps: Step, layers: int = 1) -> Program:
    """A program with random parameters, whose widths are what its steps say."""
    g = torch.Generator().manual_seed(12)
    random = {name: torch.randn(*shape, generator=g) for name, shape in PARAMS.items()}
    read = {name for step in steps for name in step.param_names()}
    params = {name: tensor for name, tensor in random.items() if name in read}
    widths = {"x": WIDTH}
    for step in steps:
        widths[step.out] = step.width(Shapes(widths, params))
    return Program(
        steps=steps, params=params, widths=widths, layers=layers, results={"": steps[-1].out}
    )


def linear(out: str, x: str = "x", weight: str = "w") -> Linear:
    return Linear(out=out, layer=0, x=x, weight=weight)


def summed(out: str, x: str) -> Aggregate:
    return Aggregate(out=out, layer=0, x=x, norm="in")
