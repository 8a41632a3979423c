"""What a recorded tensor is in a program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rows:
    """A tensor of the program: one row for each node, times a number.

    A row holds what the module has behind its first dimension, row-major, so [N, heads, width]
    and [N, heads * width] are the same rows.
    """

    name: str
    factor: float = 1.0


@dataclass(frozen=True)
class Stack:
    """Tensors of equal shape along a new dimension, until something reduces it."""

    parts: tuple[Rows, ...]
    dim: int


Value = Rows | Stack
