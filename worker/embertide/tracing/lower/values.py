"""What a recorded tensor is in a program."""

from __future__ import annotations

from dataclasses import dataclass

from embertide.tracing.record.traced import Node


@dataclass(frozen=True)
class NodeRows:
    """A tensor of the program: one row for each node, times a number.

    A row holds what the module has after its first dimension, row-major, so [N, heads, width]
    and [N, heads * width] are the same rows.
    """

    name: str
    factor: float = 1.0


@dataclass(frozen=True)
class Stack:
    """Tensors of equal shape along a new dimension, until something reduces it."""

    parts: tuple[NodeRows, ...]
    dim: int


@dataclass(frozen=True)
class Pending:
    """Operations that wait to become one row-wise step.

    Attributes:
        node: the last of them.
        nodes: all of them.
    """

    node: Node
    nodes: frozenset[Node]


@dataclass(frozen=True)
class Pieces:
    """Several results of one operation, of which each is asked for by its place."""


Value = NodeRows | Stack | Pending
