"""Attention by cosine (AGNN) for both libraries."""

from __future__ import annotations

from embertide.models.builder import ProgramBuilder
from embertide.models.weights import Scope
from embertide.program.steps import Loops


def cosine_attention(b: ProgramBuilder, s: Scope, x: str, *, loops: Loops) -> str:
    """softmax over N(i) of beta * cos(x_j, x_i), then the weighted sum (Thekumparampil, eq. 5)."""
    beta = s.raw("beta", 1)
    direction = b.row_normalize(x)
    return b.pair_attend(
        x,
        direction,
        1,
        kind="dot",
        key=direction,
        scale=1.0 if beta is None else float(beta[0]),
        loops=loops,
    )
