"""Propagation without weights: the same sum over in-edges, several times (SGC, APPNP).

Steps of one layer read one layer graph, so a sampled run draws one sample for all of them, as the
libraries' modules do on a sampled graph.
"""

from __future__ import annotations

from collections.abc import Callable

from embertide.models.builder import ProgramBuilder


def propagate(
    b: ProgramBuilder, x: str, times: int, alpha: float, aggregate: Callable[[str], str]
) -> str:
    """``times`` times h = (1 - alpha) * aggregate(h) + alpha * x (Gasteiger et al., eq. 4)."""
    h = x
    for _ in range(times):
        h = aggregate(h)
        if alpha:
            h = b.combine(x, h, alpha=alpha, beta=1.0 - alpha)
    return h
