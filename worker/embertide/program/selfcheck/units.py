"""What of a plan is computed again: for each phase and node type, the operations on its rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from embertide.graph.views import EdgeView
from embertide.program.plans.plan import Plan
from embertide.program.steps.base import EdgeStep, Step
from embertide.program.steps.op import Op, Reach
from embertide.spec.relations import ends_of


@dataclass(frozen=True, eq=False)
class Unit:
    """The operations of a phase that make rows of one node type.

    Attributes:
        skipped: the first of them, whose rows need a statistic over all nodes; it is not computed
            again, and what it made is taken as it is.
    """

    phase: int
    node_type: str
    ops: tuple[Op, ...]
    skipped: Op | None = None

    @cached_property
    def steps(self) -> list[Step]:
        """The steps that are computed again, in order."""
        return [step for op in self.ops for step in op.steps]

    @property
    def layer(self) -> int:
        """The layer graph that the unit belongs to."""
        return (self.ops or (self.skipped,))[0].steps[0].layer  # type: ignore[union-attr]

    @cached_property
    def over_edges(self) -> EdgeStep | None:
        """The step that reads rows of neighbours; there is one at most, and it is the first."""
        first = self.steps[0] if self.steps else None
        return first if isinstance(first, EdgeStep) else None

    @cached_property
    def graphs(self) -> list[tuple[int, str]]:
        """Layer and relation of the graphs whose in-edges of the rows are needed."""
        views = [view for step in self.steps if (view := step.own_edges) is not None]
        ours = [view for view in views if self.are_rows(view)]
        return list(dict.fromkeys((view.layer, view.relation) for view in ours))

    def are_rows(self, view: EdgeView) -> bool:
        """Whether the rows are destinations of a layer graph, and not sources alone."""
        return not view.relation or ends_of(view.relation)[1] == self.node_type

    @cached_property
    def at_sources(self) -> list[str]:
        """Tensors whose rows are read at the sources of edges."""
        return self.over_edges.reads_at_sources() if self.over_edges else []

    @cached_property
    def at_rows(self) -> list[str]:
        """All other tensors from before the unit: their rows are read at the rows themselves."""
        made: set[str] = set()
        names: list[str] = []
        for op in self.ops:
            names += [op.onto] if op.onto is not None else []
            for step in op.steps:
                own = step.reads_at_rows()
                # A sum of products is read as the tensor that it is added to.
                names += [] if op.onto is not None and step.summed else own
                made.add(step.out)
        there = {*made, *self.at_sources}
        return [name for name in dict.fromkeys(names) if name not in there]


def units_of(plan: Plan) -> list[list[Unit]]:
    """The units of each phase."""
    types = plan.program.types
    phases: list[list[Unit]] = []
    for phase in range(max(plan.phases) + 1):
        ops = [op for op, number in zip(plan.ops, plan.phases, strict=True) if number == phase]
        skipped = ops.pop(0) if ops[0].reach is Reach.GRAPH else None
        names = dict.fromkeys(types[op.out] for op in [*ops, *([skipped] if skipped else [])])
        phases.append(
            [
                Unit(
                    phase,
                    name,
                    tuple(op for op in ops if types[op.out] == name),
                    skipped if skipped and types[skipped.out] == name else None,
                )
                for name in names
            ]
        )
    return phases
