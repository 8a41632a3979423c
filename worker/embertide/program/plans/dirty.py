"""Which rows of each tensor differ from those of an earlier run: sets of rows, forward through a
plan.

A row differs where its features or its in-edges do, where a degree that it is multiplied by does,
or where a row that it is made of does. Rows that are not among these have the bits that they had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from embertide.program.plans.plan import Plan
from embertide.program.plans.wanted import Rows, read_at_sources
from embertide.program.steps.base import EdgeStep, Step
from embertide.program.steps.propagate import Propagate
from embertide.program.steps.reach import Reach
from embertide.program.steps.run import Run
from embertide.spec.relations import Relation

Targets = Callable[[str, Rows], Rows]
"""Relation and rows of its source type -> the rows that have an edge from one of them.

Collective: every rank must call.
"""


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


def why_whole(plan: Plan, *, sampled: bool) -> str:
    """Why some rows of a plan cannot be computed alone with the bits of a whole run; "": they can.

    Args:
        sampled: each layer reads a sample of the edges.
    """
    for step in plan.program.steps:
        name = f"{step.out} ({step.kind_name}, layer {step.layer + 1})"
        if step.reach is Reach.GRAPH:
            return f"{name} needs a statistic over all nodes"
        for end, weighted in step.degrees_read:
            if end == "out" and (weighted or sampled):
                what = "sums of the weights of out-edges" if weighted else "out-degrees of samples"
                return f"{name} reads {what}"
        if not step.exact_alone:
            return f"the rows of {name} may be rounded in another way among other rows"
    return ""


def dirty_rows(plan: Plan, changes: Changes, targets: Targets) -> dict[str, Rows]:
    """Tensor -> [N] bool, the rows that differ from an earlier run's, or may.

    Of a plan for which :func:`why_whole` has no reason. Collective where ``targets`` is.
    """
    return dirty_in(plan, plan.ops, changed_inputs(plan, changes), changes, targets)


def changed_inputs(plan: Plan, changes: Changes) -> dict[str, Rows]:
    """Name of an input -> [N] bool, its rows that differ."""
    return {name: changes.features[of] for of, name in plan.program.inputs.items()}


def dirty_in(
    plan: Plan,
    ops: Sequence[Run],
    known: Mapping[str, Rows],
    changes: Changes,
    targets: Targets,
) -> dict[str, Rows]:
    """As :func:`dirty_rows` for some operations of a plan, in order.

    Args:
        known: tensor -> [N] bool, the rows that differ of those that earlier operations have made.

    Returns:
        Also what is known.
    """
    walk = _Dirty(plan, changes, targets, known)
    for op in ops:
        walk.over(op.steps)
        # Rows that are multiplied already by the factors of the sum that reads them.
        if op.scales and op.reader is not None:
            walk.rows[op.out] = walk.rows[op.out] | walk.degrees(op.reader, op.out)
    return walk.rows


def ends_of(relation: str) -> tuple[str, str]:
    """Source and destination type of a relation, by a program's names."""
    if not relation:
        return "", ""
    ends = Relation.parse(relation)
    return ends.source, ends.destination


class _Dirty:
    """The rows that differ of each tensor, from the features to the results."""

    def __init__(
        self, plan: Plan, changes: Changes, targets: Targets, known: Mapping[str, Rows]
    ) -> None:
        self._changes, self._targets = changes, targets
        self._types = plan.program.types
        self._scaled = {op.reader.out for op in plan.ops if op.scales and op.reader is not None}
        self.rows: dict[str, Rows] = dict(known)

    def over(self, steps: Sequence[Step]) -> None:
        """Follow the rows through some steps, in order."""
        for step in steps:
            rows = self._over_edges(step) if isinstance(step, EdgeStep) else self._at_rows(step)
            self.rows[step.out] = rows | self._changes.new[self._types[step.out]]

    def _at_rows(self, step: Step) -> Rows:
        """Dirty rows of a step that reads only its own row, and numbers of the row's edges."""
        rows = self.degrees(step, step.out)
        for name in step.reads():
            rows = rows | self.rows[name]
        view = step.own_edges
        if view is not None and ends_of(view.relation)[1] == self._types[step.out]:
            rows = rows | self._changes.edges[view.relation]
        return rows

    def _over_edges(self, step: EdgeStep) -> Rows:
        """Dirty rows of a step that reads rows of in-neighbours."""
        of_type = self._types[step.out]
        source, _ = ends_of(step.relation)
        rows = self._changes.edges[step.relation] | self.degrees(step, step.out)
        at_sources = read_at_sources(step)
        for name in step.reads():
            if self._types[name] == of_type:
                rows = rows | self.rows[name]
        sources = self._degrees_of(step, source)
        if step.out in self._scaled:
            # The factors are in the rows that it reads, which differ if a factor does.
            sources = torch.zeros_like(sources)
        for name in at_sources:
            sources = sources | self.rows[name]
        for _ in range(step.times if isinstance(step, Propagate) else 1):
            rows = rows | self._targets(step.relation, sources)
            if source == of_type:
                # A row is its own neighbour where the step adds self-loops.
                rows = rows | sources
                sources = rows
        return rows

    def degrees(self, step: Step, out: str) -> Rows:
        """Rows of a tensor's node type of which the step reads another degree."""
        return self._degrees_of(step, self._types[out])

    def _degrees_of(self, step: Step, node_type: str) -> Rows:
        rows = torch.zeros_like(self._changes.new[node_type])
        view = step.own_edges
        for end, _ in step.degrees_read:
            assert view is not None
            source, destination = ends_of(view.relation)
            if end == "in" and destination == node_type:
                rows = rows | self._changes.edges[view.relation]
            if end == "out" and source == node_type:
                rows = rows | self._changes.out[view.relation]
        return rows
