"""Polynomials of a graph: sum over k of P_k(A) x @ W_k.T, in whichever order has narrower rows.

A reads edges and acts on rows, W acts on columns, so they commute. Where the result is narrower
than x, Horner's scheme (Clenshaw's for Chebyshev polynomials) sums rows as wide as the result.
Else the powers of x are made one after the other, and only the last two are alive.

All of a layer's sums read one layer graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embertide.models.builder import ProgramBuilder

Apply = Callable[[str], str]
"""Appends the steps of A times a tensor and returns the result's name."""


def powers(
    b: ProgramBuilder, x: str, weights: Sequence[str], width: int, bias: str | None, apply: Apply
) -> str:
    """sum over k of A^k x @ W_k.T, plus the bias; each weight is [width, D]."""
    first, *others = weights
    if width < b.widths[x] and others:
        total = b.linear(x, others[-1], width)
        for weight in others[-2::-1]:
            total = b.combine(b.linear(x, weight, width), apply(total))
        return b.combine(b.linear(x, first, width, bias), apply(total))
    total, h = b.linear(x, first, width, bias), x
    for weight in others:
        h = apply(h)
        total = b.combine(b.linear(h, weight, width), total)
    return total


def chebyshev(
    b: ProgramBuilder, x: str, weights: Sequence[str], width: int, bias: str | None, apply: Apply
) -> str:
    """sum over k of T_k(A) x @ W_k.T, plus the bias, T_k being Chebyshev's polynomials."""
    if len(weights) == 1:
        return b.linear(x, weights[0], width, bias)
    if width < b.widths[x]:
        return _clenshaw(b, x, weights, width, bias, apply)
    terms = [x, apply(x)]
    total = b.combine(b.linear(x, weights[0], width, bias), b.linear(terms[1], weights[1], width))
    for weight in weights[2:]:
        terms = [terms[1], b.combine(apply(terms[1]), terms[0], alpha=2.0, beta=-1.0)]
        total = b.combine(b.linear(terms[1], weight, width), total)
    return total


def _clenshaw(
    b: ProgramBuilder, x: str, weights: Sequence[str], width: int, bias: str | None, apply: Apply
) -> str:
    """b_k = W_k x + 2 A b_(k+1) - b_(k+2); the result is W_0 x + A b_1 - b_2."""
    first, *others = weights
    later = [b.linear(x, others[-1], width)]
    for weight in others[-2::-1]:
        doubled = b.combine(b.linear(x, weight, width), apply(later[-1]), beta=2.0)
        later.append(_minus(b, doubled, later[-2:-1]))
    total = b.combine(b.linear(x, first, width, bias), apply(later[-1]))
    return _minus(b, total, later[-2:-1])


def _minus(b: ProgramBuilder, h: str, earlier: Sequence[str]) -> str:
    """h less the tensor, if there is one."""
    return b.combine(h, earlier[0], beta=-1.0) if earlier else h


def laplacian(b: ProgramBuilder, lambda_max: float, normalized: Apply) -> Apply:
    """The negative of L scaled to [-1, 1]: r A - (r - 1) I for r = 2 / lambda_max, L = I - A.

    T_k(-M) is (-1)^k T_k(M), so what follows every second weight has the opposite sign.
    """
    share = 2.0 / lambda_max
    if share == 1.0:
        return normalized
    return lambda h: b.combine(normalized(h), h, alpha=share, beta=1.0 - share)
