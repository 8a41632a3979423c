"""Programs for steps that read edges, in forms that no module of DGL or PyG needs."""

from __future__ import annotations

from embertide.models.builder import ProgramBuilder
from embertide.program.steps import (
    Aggregate,
    Attend,
    Combine,
    Concat,
    Degree,
    HeadDot,
    Message,
    PairAttend,
    Program,
    RowWise,
)
from tests.support.step_program import EDGE_FEATURES, WIDTH, linear, program, summed


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
        ("single", "mean"), ("single", "max"), ("replace", "add"), ("more", 0.5), ("more", "min"),
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
    for of in ("in", "out", "weight", "out_weight"):
        for loops in ("keep", "single", "replace", "more"):
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
        ("replace", ("sym_in_weighted", "both_weighted")),
        ("more", ("sym_in_weighted", "both_weighted")),
    ):
        for norm in norms:
            how = {"layer": 0, "norm": norm, "loops": loops, "edge_weight": True}
            first, last = Aggregate(out="a", x="x", **how), Aggregate(out="out", x="b", **how)
            cases[f"sum {norm} {loops}"] = program(first, linear("b", "a"), last)
    return cases


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


def edge_cases() -> dict[str, Program]:
    """Name -> program."""
    return {
        **message(),
        **edge_features(),
        **merged(),
        **pair_parts(),
        **degrees(),
        **weighted_norms(),
        **scores(),
    }
