"""Programs for kinds of steps that no module of DGL or PyG needs in all their forms.

Light: ranks run them, and every grid is held to the reference.
"""

from __future__ import annotations

from typing import Any

import torch

from embertide.models.builder import ProgramBuilder
from embertide.steps import (
    Aggregate,
    Attend,
    ColumnStatistic,
    Combine,
    Concat,
    Degree,
    Elementwise,
    GraphNorm,
    HeadDot,
    Linear,
    Message,
    PairAttend,
    Program,
    Propagate,
    RowWise,
    SemanticAttend,
    SizeNorm,
    Step,
)
from embertide.steps.shapes import Shapes

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
        "propagate by weighted degrees of sources": program(
            Propagate(out="a", x="x", **again | {"norm": "both_weighted"}, edge_weight=True),
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


def row_wise() -> dict[str, Program]:
    """A gate between two tensors, and heads that are put together in another way."""
    gate = RowWise(
        out="out", layer=0, inputs=("c", "a"),
        lines=(
            "open = sigmoid(x0)",
            "kept = mul(open, x1)",
            "shut = sub(1.0, open)",
            "other = tanh(x0)",
            "rest = mul(shut, other)",
            "out = add(kept, rest)",
        ),
    )  # fmt: skip
    heads = RowWise(
        out="h", layer=0, inputs=("x",), params=("heads", "both"),
        lines=(
            "some = narrow(x0, 1, 2, 6)",
            "h = reshape(some, [2, 3])",
            "scaled = mul(h, p0)",
            "a = softmax(scaled, 2)",
            "mixed = einsum('nhf,nhg->nfg', a, h)",
            "flat = flatten(mixed)",
            "norm = layer_norm(flat)",
            "top = amax(norm, 1, keepdim=True)",
            "parts = cat([norm, flat], -1)",
            "less = narrow(parts, 1, 0, 16)",
            "long = cat([less, top], 1)",
            "out = linear(long, p1)",
        ),
    )  # fmt: skip
    return {
        "a gate": program(linear("a"), summed("c", "a"), gate),
        "heads of features": program(heads, summed("out", "h")),
    }


def message() -> dict[str, Program]:
    """Every reduction, of both ends through a product and of the source alone."""
    lines = (
        "ends = cat([t, s], 1)",
        "made = linear(ends, p0)",
        "lit = leaky_relu(made, 0.1)",
        "out = mul(lit, w)",
    )
    cases = {}
    for number, reduce in enumerate(("sum", "mean", "max", "min", "var", "std")):
        cases[f"message {reduce}"] = program(
            linear("a"),
            Message(
                out="m", layer=0, x="x", target="a", params=("both",), lines=lines, reduce=reduce,
                edge_weight=True, loops="single" if number % 2 else "keep",
            ),
            summed("b", "m"),
            Message(out="out", layer=0, x="b", lines=("out = square(s)",), reduce=reduce),
        )  # fmt: skip
    cases["message softmax"] = program(
        summed("a", "x"),
        Message(
            out="m", layer=0, x="x", target="a", params=("both", "heads"), reduce="softmax",
            lines=(
                "less = narrow(t, 1, 3, 7)",
                "ends = cat([s, less], 1)",
                "out = linear(ends, p0)",
                "h = reshape(out, [2, 3])",
                "products = mul(h, p1)",
                "cut = mul(products, 4.0)",
                "score = sum(cut, 2)",
            ),
        ),
        Combine(out="out", layer=0, a="m", b="m", alpha=2.0),
    )  # fmt: skip
    return cases


def edge_features() -> dict[str, Program]:
    """Of edges as they are, without self-loops, and with new ones, whatever these have."""
    lines = ("moved = linear(e, p0)", "sum = add(s, moved)", "lit = relu(sum)", "out = mul(lit, w)")
    cases = {}
    for loops, fill in (
        ("keep", "mean"), ("none", "mean"), ("single", 0.5),
        ("single", "mean"), ("single", "max"),
    ):  # fmt: skip
        read = {"loops": loops, "loop_features": fill, "edge_features": EDGE_FEATURES}
        cases[f"edge features {loops} {fill}"] = program(
            Message(
                out="m", layer=0, x="x", params=("edge",), lines=lines, edge_weight=True, **read
            ),
            Message(
                out="out", layer=0, x="m", params=("score",), reduce="softmax", **read,
                lines=("out = mul(s, 0.5)", "score = linear(e, p0)"),
            ),
        )  # fmt: skip
    return cases


def merged() -> dict[str, Program]:
    """One softmax over the edges, and over the edges with self-loops."""
    b = ProgramBuilder(WIDTH)
    b.begin(reads_edges=True)
    lines = ("out = narrow(s, 1, 0, 6)", "both = mul(s, t)", "score = narrow(both, 1, 0, 3)")
    parts = [
        b.message("x", lines, 9, reduce="softmax", target="x", loops=loops, log_sum=True)
        for loops in ("keep", "single")
    ]
    b.merge_softmax(tuple(parts), 6, 3)
    return {"merged softmax": program(*b.steps)}


def pair_parts() -> dict[str, Program]:
    """One softmax over three sets of edges; the middle's result is read again."""
    pairs = {"layer": 0, "x": "v", "heads": 2}
    dots = pairs | {"key": "k", "query": "q", "kind": "dot", "scale": 0.5}
    return {
        "pair attention in parts": program(
            linear("k", weight="even"),
            linear("q", weight="other"),
            linear("v", weight="values"),
            PairAttend(out="one", **dots, loops="none", edge_weight=True, log_sum=True),
            PairAttend(
                out="two", **pairs, key="q", query="k", kind="gatv2", vector="pair", loops="single",
                before="one", log_sum=True,
            ),
            PairAttend(out="three", **dots, before="two"),
            PairAttend(out="four", **dots, before="two", loops="single", log_sum=True),
            Concat(out="out", layer=0, inputs=("two", "three", "four")),
        )
    }  # fmt: skip


def degrees() -> dict[str, Program]:
    """Degrees of every kind beside the features, as scalers and gates of edges need them."""
    cases = {}
    for of in ("in", "out", "weight"):
        for loops in ("keep", "single"):
            cases[f"degree {of} {loops}"] = program(
                Degree(out="d", layer=0, of=of, loops=loops, loop_weight=2.0),
                Concat(out="c", layer=0, inputs=("d", "x")),
                Message(
                    out="m", layer=0, x="c", target="c", loops=loops,
                    lines=(
                        "here = narrow(t, 1, 0, 1)",
                        "there = narrow(s, 1, 0, 1)",
                        "both = mul(here, there)",
                        "more = add(both, 1.0)",
                        "scale = rsqrt(more)",
                        "out = mul(s, scale)",
                    ),
                ),
            )  # fmt: skip
    return cases


def weighted_norms() -> dict[str, Program]:
    """Sums divided by weighted degrees, with self-loops and without, of features and of rows."""
    cases = {}
    for loops, norms in (
        ("keep", ("in_weighted", "out_weighted", "both_weighted", "sym_out_weighted")),
        ("none", ("out_weighted", "both_weighted", "sym_out_weighted")),
    ):
        for norm in norms:
            how = {"layer": 0, "norm": norm, "loops": loops, "edge_weight": True}
            first, last = Aggregate(out="a", x="x", **how), Aggregate(out="out", x="b", **how)
            cases[f"sum {norm} {loops}"] = program(first, linear("b", "a"), last)
    return cases


def graph_norms() -> dict[str, Program]:
    """Statistics over all nodes, of tiles, of rows and of the features themselves."""
    how = {"shift": "a", "scale": "b"}
    kinds: dict[str, Any] = {
        "columns": how | {"mean_scale": "c"}, "rows": {"factor": 2.0}, "all": how, "none": {},
    }  # fmt: skip
    cases = {
        f"graph_norm {over}": program(
            linear("h"),
            summed("s", "h"),
            # In place, then of a tensor that is read again.
            GraphNorm(out="t", layer=0, x="s", over=over, **more),
            GraphNorm(out="u", layer=0, x="t", over=over, factor=0.5),
            linear("v", weight="v"),
            GraphNorm(out="r", layer=0, x="v", over=over, eps=0.1, **more),
            Combine(out="w", layer=0, a="t", b="u"),
            Combine(out="out", layer=0, a="w", b="r"),
        )
        for over, more in kinds.items()
    }
    cases["size_norm"] = program(
        linear("h"),
        SizeNorm(out="r", layer=0, x="h"),
        summed("s", "h"),
        SizeNorm(out="t", layer=0, x="s"),
        Combine(out="out", layer=0, a="r", b="t"),
    )
    cases["graph_norm of features"] = program(
        GraphNorm(out="n", layer=0, x="x", over="columns"), summed("out", "n")
    )
    return cases


def semantic() -> dict[str, Program]:
    """Of tiles and rows; and of tensors that are read again."""
    of = {"layer": 0, "weight": "hidden", "vector": "q"}
    return {
        "semantic_attend": program(
            linear("a"),
            linear("b", weight="v"),
            summed("c", "a"),
            SemanticAttend(out="d", inputs=("a", "b", "c"), bias="hidden_bias", **of),
            SemanticAttend(out="e", inputs=("a", "d"), **of),
            Combine(out="out", layer=0, a="d", b="e"),
        )
    }


def column_statistics() -> dict[str, Program]:
    """Of tiles, of rows and of the features themselves, in place and of what is read again."""

    def statistic(out: str, x: str, of: Any, correction: int = 0) -> ColumnStatistic:
        return ColumnStatistic(out=out, layer=0, x=x, of=of, correction=correction)

    return {
        "column_statistic": program(
            linear("h"),
            summed("s", "h"),
            statistic("a", "s", "mean"),
            statistic("b", "s", "std", 1),
            linear("v", weight="v"),
            statistic("c", "v", "norm"),
            statistic("d", "v", "var"),
            statistic("e", "c", "sum"),
            Elementwise(out="f", layer=0, inputs=("a", "b", "d"), op="sum"),
            # Far larger than the others, which count, too.
            Combine(out="out", layer=0, a="f", b="e", beta=1e-3),
        ),
        "column_statistic of features": program(
            statistic("n", "x", "mean"),
            Combine(out="c", layer=0, a="x", b="n", beta=-1.0),
            summed("out", "c"),
        ),
    }


def scores() -> dict[str, Program]:
    """Of the features' product, of a tile's, and of rows', none of which is made."""
    dots = {"layer": 0, "heads": 2, "vector": "pair"}
    return {
        "scores of products": program(
            HeadDot(out="left", x="x", weight="even", **dots),
            linear("a", weight="values"),
            summed("b", "a"),
            HeadDot(out="right", x="b", weight="sums", bias="score_bias", **dots),
            Attend(out="c", layer=0, x="a", source="left", target="right", heads=2, loops="single"),
            RowWise(out="d", layer=0, inputs=("c",), lines=("out = tanh(x0)",)),
            HeadDot(out="e", x="d", weight="sums", **dots),
            Concat(out="out", layer=0, inputs=("d", "e")),
        )
    }


def step_cases() -> dict[str, Program]:
    """Name -> program."""
    return {
        **elementwise(),
        **propagate(),
        **row_wise(),
        **message(),
        **edge_features(),
        **merged(),
        **pair_parts(),
        **degrees(),
        **weighted_norms(),
        **graph_norms(),
        **semantic(),
        **column_statistics(),
        **scores(),
    }
