"""Rows as steps see them: which are stale, which are wanted, and how far they have moved.

What a step makes of these is its own: `Step.stale`, `Step.wants`, `Step.moves`. A plan is walked by
`program/plans/flow.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        made: result of a step -> the rows of it that are wanted.
    """

    types: Mapping[str, str]
    nodes: Mapping[str, int]
    sources: Expand
    graphs: GraphRows = field(default_factory=dict)
    of_types: dict[str, Rows] = field(default_factory=dict)
    made: dict[str, Rows] = field(default_factory=dict)

    def every(self, name: str) -> Rows:
        """All rows of a tensor."""
        return torch.ones(self.nodes[self.types[name]], dtype=torch.bool)


@dataclass(frozen=True)
class Far:
    """How far some rows are from others at most; rows that are not among these not at all.

    Attributes:
        rows: [k] int64, dense ids, ascending.
        by: [k] float64, Euclidean.
    """

    rows: torch.Tensor
    by: torch.Tensor

    @classmethod
    def none(cls) -> Far:
        """No row."""
        return cls(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64))

    @classmethod
    def sum(cls, parts: Sequence[Far]) -> Far:
        """The distances of several added up, row by row."""
        first, *others = parts
        if all(len(of.rows) == 0 for of in others):
            return first
        if all(torch.equal(of.rows, first.rows) for of in others):
            return cls(first.rows, torch.stack([of.by for of in parts]).sum(0))
        rows, at = torch.unique(torch.cat([of.rows for of in parts]), return_inverse=True)
        by = torch.zeros(len(rows), dtype=torch.float64)
        return cls(rows, by.index_add_(0, at, torch.cat([of.by for of in parts])))

    def times(self, factor: float | torch.Tensor) -> Far:
        """Every distance by a factor, or each by one of [k] factors."""
        return Far(self.rows, self.by * factor)

    def within(self, first: int, last: int) -> Far:
        """Those of a range of rows."""
        low, high = torch.searchsorted(self.rows, torch.tensor([first, last])).tolist()
        return Far(self.rows[low:high], self.by[low:high])

    def where(self, rows: Rows) -> Far:
        """Those of rows that are set."""
        some = rows[self.rows]
        return Far(self.rows[some], self.by[some])

    def at(self, rows: torch.Tensor) -> torch.Tensor:
        """[n] float64, the distances of rows by their dense ids [n] int64."""
        if not len(self.rows):
            return torch.zeros(len(rows), dtype=torch.float64)
        at = torch.searchsorted(self.rows, rows).clamp(max=len(self.rows) - 1)
        return torch.where(self.rows[at] == rows, self.by[at], 0.0)

    def of_all(self, count: int) -> torch.Tensor:
        """[count] float64, the distances of all rows."""
        every = torch.zeros(count, dtype=torch.float64)
        every[self.rows] = self.by
        return every


@dataclass(frozen=True, kw_only=True)
class Moved:
    """How far rows have moved at most, where a step begins, by the name of a tensor.

    Attributes:
        ours: of our partition's rows.
        everywhere: of all rows. Collective: every rank must call.
        norm: a parameter's spectral norm, of a vector its largest magnitude.
        edges_of: layer and relation -> the in-edges of our partition's rows, as they are stored,
            without a view's self-loops.
    """

    execution: Execution
    ours: Callable[[str], Far]
    everywhere: Callable[[str], Far]
    norm: Callable[[str], float]
    edges_of: Callable[[int, str], Csr]
