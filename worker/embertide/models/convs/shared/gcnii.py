"""GCNII (Chen et al., eq. 5) for both libraries: an initial residual and an identity mapping."""

from __future__ import annotations

from embertide.models.builder import ProgramBuilder
from embertide.models.weights import Scope


def gcnii_steps(
    b: ProgramBuilder, s: Scope, total: str, start: str, *, alpha: float, beta: float
) -> str:
    """What follows the normalised sum ``total``; ``start`` is the initial representation.

    The weights tell whether both have one weight (variant ``weight2``: each its own).
    """
    if b.widths[start] and b.widths[total] and b.widths[start] != b.widths[total]:
        expected = f"an initial representation of {b.widths[total]} columns  ({s.label})"
        s.weights.differ(s.prefix, expected, f"{b.widths[start]} columns")
    weight = s.take("weight1", "in", "in", turned=True)
    mixed = b.combine(total, start, alpha=1.0 - alpha, beta=alpha)
    if not s.has("weight2"):
        product = b.linear(mixed, weight, s.size("in"))
        return b.combine(mixed, product, alpha=1.0 - beta, beta=beta)
    other = b.linear(start, s.take("weight2", "in", "in", turned=True), s.size("in"))
    product = b.linear(total, weight, s.size("in"))
    products = b.combine(product, other, alpha=beta * (1.0 - alpha), beta=beta * alpha)
    return b.combine(mixed, products, alpha=1.0 - beta)
