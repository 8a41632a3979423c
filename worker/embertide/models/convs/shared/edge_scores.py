"""Additive attention with a third score, that of the edge's features."""

from __future__ import annotations

from embertide.kernels.edge_features import LoopFill
from embertide.models.builder import ProgramBuilder
from embertide.models.weights import Scope
from embertide.program.steps import Loops


def edge_projection(s: Scope, name: str, columns: int | None) -> str:
    """The weight by which features of edges are projected; their number is the size ``edge``."""
    weight = s.take(f"{name}.weight", "columns", "edge")
    if columns is not None:
        s.agree("edge", columns)
    return weight


def attend_edges(
    b: ProgramBuilder,
    s: Scope,
    values: str,
    scores: tuple[str, str],
    params: tuple[str, str],
    *,
    negative_slope: float,
    loops: Loops = "keep",
    fill: LoopFill = "mean",
    carry: bool = False,
) -> str:
    """Additive attention with a third score, of the projected features of the edge.

    Args:
        values: [N, H*F] of the sources.
        scores: [N, H] of the sources and of the targets.
        params: the projection [H*F, K] and the vector [H, F] of the edges' scores.
        fill: what an added self-loop has as features.
        carry: add the projected features to the source's values.
    """
    heads, columns = s.size("heads"), s.size("columns")
    lines = (
        f"value = narrow(s, 1, 0, {columns})",
        f"source = narrow(s, 1, {columns}, {heads})",
        "moved = linear(e, p0)",
        f"apart = reshape(moved, [{heads}, -1])",
        "parts = mul(apart, p1)",
        "own = sum(parts, 2)",
        "ends = add(source, t)",
        "three = add(ends, own)",
        f"score = leaky_relu(three, {negative_slope})",
        "out = add(value, moved)" if carry else "out = same(value)",
    )
    return b.message(
        b.concat((values, scores[0])),
        lines,
        columns,
        reduce="softmax",
        target=scores[1],
        params=params,
        loops=loops,
        edge_features=s.size("edge"),
        loop_features=fill,
    )
