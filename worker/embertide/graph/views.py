"""A layer's graph as steps see it: one relation, with the self-loops that a step asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Loops = Literal["keep", "single", "replace", "more", "none"]
"""``single``: the layer graph with exactly one self-loop per node, as PyG's convolutions make it;
``more``: with one more per node, whether it has some or not, as PyG's `add_self_loops` adds them;
``none``: without self-loops; ``keep``: as it is. Where edge weights count, an existing loop keeps
its weight (of several the heaviest, so that the order of edges never matters) and a new one gets
``loop_weight``; where they do not (not asked for, or the graph has none) every edge and loop
counts 1, whatever ``loop_weight`` says: PyG does so. ``replace``: as ``single``, but that every
self-loop is a new one, as `remove_self_loops` and then `add_self_loops` make it."""


class EdgeView(NamedTuple):
    """A layer graph as a step sees it; ``relation`` is "" in a graph that has one."""

    layer: int
    loops: Loops = "keep"
    loop_weight: float = 1.0
    edge_weight: bool = False
    relation: str = ""


@dataclass(frozen=True)
class EdgeNeeds:
    """What a program needs of a layer graph beside the tile pattern.

    Attributes:
        positions: numbers of edges are found by their positions in the CSR (pair attention).
        again: the CSR's columns are read again after the tile pattern has been found.
        features: columns of the edges' features that steps read; 0 where none does.
        messages: steps make a message of each edge of our sub-range, from rows with full width.
    """

    positions: bool
    again: bool
    features: int = 0
    messages: bool = False

    def placed(self, *, pairs: bool) -> bool:
        """Whether blocks carry each non-zero's position: of tiles, or of a sub-range's pairs."""
        return self.positions or (pairs and self.features > 0)
