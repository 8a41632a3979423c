"""Rows as steps see them: which are stale, which are wanted, and how far they have moved.

What a step makes of these is its own: `Step.stale`, `Step.wants`, `Step.moves`. A plan is walked by
`program/plans/flow.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import torch

from embertide.spec.relations import ends_of

if TYPE_CHECKING:
    from embertide.kernels.csr import Csr
    from embertide.program.steps.base import Step
    from embertide.program.steps.execution import Execution

Key = TypeVar("Key")
Rows = torch.Tensor
"""[N] bool, of a node type."""
Expand = Callable[[str, Rows], Rows]
"""Relation and rows at one end of its edges -> the rows at the other. May be collective."""
GraphRows = dict[tuple[int, str], Rows]
"""Layer and relation -> the rows whose edges are read."""


def join(sets: dict[Key, Rows], key: Key, rows: Rows) -> None:
    """Add rows to one of several sets."""
    sets[key] = rows | sets[key] if key in sets else rows


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What differs from an earlier run's inputs, by the program's names.

    Attributes:
        new: node type -> [N] bool, the nodes that it did not have.
        features: node type -> [N] bool, other features; new nodes too.
        edges: relation -> [N] bool of its destination type, other in-edges.
        out: relation -> [N] bool of its source type, another out-degree; of those that are read.
    """

    new: Mapping[str, Rows]
    features: Mapping[str, Rows]
    edges: Mapping[str, Rows]
    out: Mapping[str, Rows]


@dataclass(frozen=True, kw_only=True)
class Stale:
    """The rows that are stale where a step begins.

    Attributes:
        types: name of a tensor -> its node type.
        targets: rows of a relation's source type -> those that have an edge from one of them.
        scaled: results of sums whose factors are in the rows that they read already.
        rows: name of a tensor -> its rows that are stale.
    """

    changes: Changes
    types: Mapping[str, str]
    targets: Expand
    scaled: frozenset[str]
    rows: dict[str, Rows]

    def degrees(self, step: Step, node_type: str) -> Rows:
        """Rows of a node type of which a step reads another degree."""
        rows, view = torch.zeros_like(self.changes.new[node_type]), step.own_edges
        for end, _ in step.degrees_read:
            assert view is not None
            source, destination = ends_of(view.relation)
            if end == "in" and destination == node_type:
                rows = rows | self.changes.edges[view.relation]
            if end == "out" and source == node_type:
                rows = rows | self.changes.out[view.relation]
        return rows


@dataclass(frozen=True, kw_only=True)
class Wants:
    """What is wanted of a plan's inputs and graphs, so far.

    Attributes:
        nodes: node type -> how many there are.
        sources: rows of a relation's destination type -> the sources of their edges.
        graphs: the rows whose edges are wanted.
        of_types: node type -> the rows that any tensor is wanted of.
    """

    types: Mapping[str, str]
    nodes: Mapping[str, int]
    sources: Expand
    graphs: GraphRows = field(default_factory=dict)
    of_types: dict[str, Rows] = field(default_factory=dict)

    def every(self, name: str) -> Rows:
        """All rows of a tensor."""
        return torch.ones(self.nodes[self.types[name]], dtype=torch.bool)


@dataclass(frozen=True, kw_only=True)
class Moved:
    """How far rows have moved at most, where a step begins: float64, by the name of a tensor.

    Attributes:
        ours: [N/P], of our partition's rows.
        everywhere: [N]. Collective: every rank must call.
        norm: a parameter's spectral norm, of a vector its largest magnitude.
        edges_of: layer and relation -> the in-edges of our partition's rows, as they are stored,
            without a view's self-loops.
    """

    execution: Execution
    ours: Callable[[str], torch.Tensor]
    everywhere: Callable[[str], torch.Tensor]
    norm: Callable[[str], float]
    edges_of: Callable[[int, str], Csr]
