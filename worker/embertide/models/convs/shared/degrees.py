"""Rows multiplied by functions of their degree (PNA, LEConv, FAConv)."""

from __future__ import annotations

from typing import Literal

from embertide.models.builder import ProgramBuilder
from embertide.program.steps import Loops

DegreeFunction = Literal["degree", "inverse", "any", "inverse_root", "log", "inverse_log"]

_LINES: dict[DegreeFunction, tuple[str, ...]] = {
    "degree": ("f = mul(x1, {0})",),
    "inverse": ("a = clamp(x1, 1.0)", "f = div({0}, a)"),
    "any": ("f = gt(x1, 0.0)",),
    "inverse_root": ("a = gt(x1, 0.0)", "b = rsqrt(x1)", "f = where(a, b, 0.0)"),
    "log": ("a = log1p(x1)", "f = mul(a, {0})"),
    "inverse_log": ("a = clamp(x1, 1.0)", "b = log1p(a)", "f = div({0}, b)"),
}


def scale_by_degree(
    b: ProgramBuilder,
    x: str,
    function: DegreeFunction,
    value: float = 1.0,
    *,
    loops: Loops = "keep",
    edge_weight: bool = False,
) -> str:
    """f(d_i) * x_i, d_i the number of in-edges of node i, or the sum of their weights:

    - ``degree``: value * d; ``inverse``: value / max(1, d);
    - ``any``: 1 where there is an edge, else 0; ``inverse_root``: 1 / sqrt(d), and 0 for 0;
    - ``log``: value * log(d + 1); ``inverse_log``: value / log(max(1, d) + 1).
    """
    degree = b.degree("weight" if edge_weight else "in", loops=loops)
    lines = tuple(line.format(value) for line in _LINES[function])
    return b.row_wise((x, degree), (*lines, "out = mul(x0, f)"), (), b.widths[x])
