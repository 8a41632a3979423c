"""Programs for kinds of steps that no module of DGL or PyG needs in all their forms.

Light: ranks run them, and every grid is held to the reference.
"""

from __future__ import annotations

from typing import Any

from embertide.program.steps import (
    ColumnStatistic,
    Combine,
    Degree,
    Elementwise,
    GraphNorm,
    LinearAttend,
    Program,
    Propagate,
    RowWise,
    SemanticAttend,
    SizeNorm,
)
from tests.support.step_cases_edges import edge_cases
from tests.support.step_program import linear, program, summed


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

    def statistic(
        out: str, x: str, of: Any, correction: int = 0, count: str | None = None
    ) -> ColumnStatistic:
        return ColumnStatistic(out=out, layer=0, x=x, of=of, correction=correction, count=count)

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
        "column_statistic of rows that count": program(
            linear("h"),
            Degree(out="k", layer=0, of="in"),
            summed("s", "h"),
            statistic("a", "s", "max", count="k"),
            statistic("b", "s", "min", count="k"),
            statistic("c", "h", "max"),
            Elementwise(out="out", layer=0, inputs=("a", "b", "c", "s"), op="sum"),
        ),
        "column_statistic of features": program(
            statistic("n", "x", "mean"),
            Combine(out="c", layer=0, a="x", b="n", beta=-1.0),
            summed("out", "c"),
        ),
    }


def linear_attention() -> dict[str, Program]:
    """Of rows, sums over edges and features; of one head, and of a head for each column."""
    of = {"layer": 0}
    return {
        "linear_attend": program(
            linear("q"),
            linear("k", weight="v"),
            summed("s", "q"),
            LinearAttend(out="a", q="q", k="k", v="x", **of),
            LinearAttend(out="b", q="s", k="k", v="q", heads=7, **of),
            linear("c", "a"),
            Combine(out="out", layer=0, a="c", b="b", alpha=1e-3),
        )
    }


def step_cases() -> dict[str, Program]:
    """Name -> program."""
    return {
        **elementwise(),
        **propagate(),
        **row_wise(),
        **graph_norms(),
        **semantic(),
        **column_statistics(),
        **linear_attention(),
        **edge_cases(),
    }
