"""Which rows of each layer some rows of the results need: sets of rows, backward through a plan.

An operation needs of what it reads the rows that are wanted of its result; over edges also those of
their in-neighbours, and for a statistic all. Rows that are not wanted are left with no edges: what
they hold means nothing, and nothing that is wanted reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from embertide.program.plans.plan import Plan
from embertide.program.steps.base import EdgeStep, Step
from embertide.program.steps.propagate import Propagate
from embertide.program.steps.reach import Reach
from embertide.program.steps.run import Run

Rows = torch.Tensor
"""[N] bool, of a node type."""
Neighbours = Callable[[str, Rows], Rows]
"""Relation and rows of its destination type -> the sources of their edges, of its source type."""
GraphRows = dict[tuple[int, str], Rows]
"""Layer and relation -> the rows whose edges are needed."""


def wanted_rows(
    plan: Plan, results: Mapping[str, Rows], nodes: Mapping[str, int], neighbours: Neighbours
) -> GraphRows:
    """Layer and relation -> the rows whose edges are needed.

    Args:
        results: tensor -> rows of it that are wanted, of the results that are.
        nodes: node type, by the program's name -> how many there are.
    """
    return _Wanted(plan, nodes, neighbours).walk(plan.program.steps, results)


def wanted_in(
    plan: Plan,
    ops: Sequence[Run],
    results: Mapping[str, Rows],
    nodes: Mapping[str, int],
    neighbours: Neighbours,
) -> tuple[GraphRows, dict[str, Rows]]:
    """As :func:`wanted_rows` for some operations of a plan, which begin where its tensors are kept.

    Args:
        results: tensor -> rows of it that are wanted, of those that the operations make.

    Returns:
        The rows whose edges are needed, and node type -> [N] bool, the rows that any tensor is
        needed of.
    """
    walk = _Wanted(plan, nodes, neighbours)
    graphs = walk.walk([step for op in ops for step in op.steps], results)
    return graphs, walk.of_types


class _Wanted:
    """The rows that are wanted of each tensor, from the results to the features."""

    def __init__(self, plan: Plan, nodes: Mapping[str, int], neighbours: Neighbours) -> None:
        self._plan, self._nodes, self._neighbours = plan, nodes, neighbours
        self._rows: dict[str, Rows] = {}
        self._graphs: GraphRows = {}
        self.of_types: dict[str, Rows] = {}

    def walk(self, steps: Sequence[Step], results: Mapping[str, Rows]) -> GraphRows:
        """See :func:`wanted_rows`."""
        for name, rows in results.items():
            self._want(name, rows)
        for step in reversed(steps):
            if step.out in self._rows:
                self._before(step, self._rows.pop(step.out))
        return self._graphs

    def _want(self, name: str, rows: Rows) -> None:
        self._rows[name] = rows | self._rows[name] if name in self._rows else rows
        of_type = self._plan.program.types[name]
        self.of_types[of_type] = rows | self.of_types[of_type] if of_type in self.of_types else rows

    def _before(self, step: Step, rows: Rows) -> None:
        """What a step reads for some rows of its result."""
        if isinstance(step, EdgeStep):
            self._over_edges(step, rows)
            return
        for name in step.reads():
            if step.reach is Reach.GRAPH:
                rows = torch.ones(self._nodes[self._plan.program.types[name]], dtype=torch.bool)
            self._want(name, rows)

    def _over_edges(self, step: EdgeStep, rows: Rows) -> None:
        types = self._plan.program.types
        sources, key = rows, (step.layer, step.relation)
        for _ in range(step.times if isinstance(step, Propagate) else 1):
            # Sums of sums read the same graph again, for the sources of the rows before.
            reached = sources if types[step.x] == types[step.out] else rows
            self._graphs[key] = reached | self._graphs[key] if key in self._graphs else reached
            neighbours = self._neighbours(step.relation, reached)
            # A row is its own neighbour where the step adds self-loops.
            sources = neighbours | reached if neighbours.shape == reached.shape else neighbours
        for name in step.reads():
            if types[name] == types[step.out]:
                self._want(name, rows)
        for name in read_at_sources(step):
            self._want(name, sources)


def read_at_sources(step: EdgeStep) -> list[str]:
    """The tensors that a step reads at the sources of edges, some of them at both ends."""
    names = step.reads()
    for field in step.at_destination:
        if (name := getattr(step, field)) is not None:
            names.remove(name)
    return names
