"""Norms whose statistics are taken over all nodes, as steps."""

from __future__ import annotations

from embertide.models.builder import ProgramBuilder
from embertide.models.norm_options import GraphNormOptions
from embertide.models.weights import Scope


def norm_over_nodes(b: ProgramBuilder, s: Scope, o: GraphNormOptions, h: str) -> str:
    """The norm that the options describe; one with running statistics is a batch norm."""
    columns = b.widths[h] or "columns"
    if o.kind == "pair":
        return pair_norm(b, h, o.scale, individually=o.scale_individually, eps=o.eps)
    if o.kind == "mean_subtraction":
        return b.graph_norm(h, "none")
    if o.kind == "size":
        return b.size_norm(h)
    with_affine = o.affine or o.kind == "graph"
    weight, bias = (s.take(name, columns) if with_affine else None for name in ("weight", "bias"))
    times = s.take("mean_scale", columns) if o.kind == "graph" else None
    return b.graph_norm(h, "columns", scale=weight, shift=bias, mean_scale=times, eps=o.eps)


def pair_norm(b: ProgramBuilder, h: str, scale: float, *, individually: bool, eps: float) -> str:
    """Centred rows divided by the root of their mean squared length, or each by its length."""
    if not individually:
        return b.graph_norm(h, "rows", factor=scale, eps=eps)
    lines = (
        "squares = square(x0)",
        "total = sum(squares, 1, keepdim=True)",
        "length = sqrt(total)",
        f"more = add(length, {eps!r})",
        f"scaled = mul(x0, {scale!r})",
        "out = div(scaled, more)",
    )
    return b.row_wise((b.graph_norm(h, "none"),), lines, (), b.widths[h])
