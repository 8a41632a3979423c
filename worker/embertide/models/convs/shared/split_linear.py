"""A Linear over several tensors side by side, as one weight for each of them."""

from __future__ import annotations

from embertide.models.weights import Scope


def split_linear(s: Scope, short: str, count: int, *, alternating: bool = False) -> list[str]:
    """The weight [out, count * in] of a Linear over ``count`` tensors, cut into one for each.

    Args:
        alternating: every second one with the opposite sign.

    Returns:
        The names of ``count`` parameters [out, in].
    """
    names = [s.name(f"{short}.{at}") for at in range(count)]
    whole = s.raw(short, "out", count * s.size("in") or "columns")
    if whole is None:
        return names
    if whole.shape[1] % count:
        expected = f"columns for {count} tensors  ({s.label})"
        s.weights.differ(s.name(short), expected, f"{whole.shape[1]} columns")
        return names
    s.agree("in", whole.shape[1] // count)
    for at, (name, weight) in enumerate(zip(names, whole.chunk(count, dim=1), strict=True)):
        s.put(name, -weight if alternating and at % 2 else weight)
    return names


def count_linears(s: Scope) -> int:
    """How many Linears ``lins`` holds; at least one, so that what is missing can be named."""
    count = 1
    while s.has(f"lins.{count}.weight"):
        count += 1
    return count
