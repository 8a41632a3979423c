"""Programs for kinds of steps that no module of DGL or PyG needs in all their forms.

Light: ranks run them, and every grid is held to the reference.
"""

from __future__ import annotations

import torch

from embertide.steps import Aggregate, Combine, Elementwise, Linear, Program, Propagate, Step
from embertide.steps.shapes import Shapes

WIDTH = 10
PARAMS = {
    "w": (7, 10),
    "v": (7, 10),
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
    return Program(steps=steps, params=params, widths=widths, layers=layers, output=steps[-1].out)


def linear(out: str, x: str = "x", weight: str = "w") -> Linear:
    return Linear(out=out, layer=0, x=x, weight=weight)


def summed(out: str, x: str) -> Aggregate:
    return Aggregate(out=out, layer=0, x=x, norm="in")


def elementwise() -> dict[str, Program]:
    """Every operation, on tiles, on rows, and on the features themselves."""
    cases = {}
    for op in ("sum", "mean", "max", "min", "product"):
        joined = {"layer": 0, "op": op}
        cases[f"elementwise {op}"] = program(
            linear("a"),
            linear("b", weight="v"),
            summed("c", "a"),
            Elementwise(out="rows", inputs=("a", "b", "c"), **joined),
            summed("d", "rows"),
            # The same tensor twice, and one that is read again.
            Elementwise(out="tiles", inputs=("c", "d", "d"), **joined),
            Combine(out="out", layer=0, a="d", b="tiles"),
        )
    cases["elementwise of features"] = program(
        Elementwise(out="s", layer=0, inputs=("x", "x"), op="product"), summed("out", "s")
    )
    return cases


def propagate() -> dict[str, Program]:
    """Of features and behind a product, with a teleport and with a sum over hops."""
    again = {"layer": 0, "times": 3, "norm": "both"}
    return {
        "propagate features": program(Propagate(out="out", x="x", **again)),
        "propagate a product": program(linear("a"), Propagate(out="out", x="a", **again)),
        "propagate with a teleport": program(
            linear("a"),
            Propagate(out="b", x="a", **again | {"norm": "none"}, alpha=0.2),
            Combine(out="out", layer=0, a="a", b="b"),
        ),
        "propagate the sum of hops": program(
            Propagate(out="a", x="x", **again | {"norm": "sym_in"}, hops=(0.5, 0.0, -1.0, 2.0)),
            linear("out", "a"),
        ),
        "propagate weights and loops": program(
            Propagate(
                out="a", layer=0, x="x", times=2, norm="sym_in_weighted", loops="single",
                edge_weight=True, alpha=0.1, hops=(1.0, 1.0, 1.0),
            ),
            linear("out", "a"),
        ),
    }  # fmt: skip


def step_cases() -> dict[str, Program]:
    """Name -> program."""
    return {**elementwise(), **propagate()}
