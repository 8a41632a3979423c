"""Constants that a module passes to an operation."""

from __future__ import annotations

from torch import Tensor


def uniform(constant: Tensor) -> float | None:
    """The number that fills a constant, such as ``torch.ones(len(x), 1)``; None for others."""
    first = constant.flatten()[:1]
    return float(first) if len(first) and bool((constant == first).all()) else None
