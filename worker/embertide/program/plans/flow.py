"""One walk over a plan for all that follows its data: from step to step, forward or backward.

Forward go the rows that are stale, backward the rows that are wanted. What a step makes of either
is its own (`program/steps/frontier.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from embertide.graph.views import EdgeView, Loops
from embertide.program.plans.plan import Plan
from embertide.program.steps import Program
from embertide.program.steps.base import EdgeStep, Leader, Step
from embertide.program.steps.frontier import Changes, Expand, Rows, Stale, Wants, join
from embertide.program.steps.op import Op, Reach
from embertide.program.steps.reference import End
from embertide.spec.relations import ends_of

Value = TypeVar("Value")


def forward(
    ops: Iterable[Op],
    values: dict[str, Value],
    over: Callable[[Step], Value],
    scaled: Callable[[Leader, str], Value],
) -> None:
    """Follow what is known of each tensor through operations, in order.

    Args:
        values: name of a tensor -> what is known of it; grows.
        over: what is then known of a step's result.
        scaled: what is known of a result once its rows are multiplied by its reader's factors.
    """
    for op in ops:
        for step in op.steps:
            values[step.out] = over(step)
        if op.scales and op.reader is not None:
            values[op.out] = scaled(op.reader, op.out)


def stale_in(
    plan: Plan, ops: Sequence[Op], known: Mapping[str, Rows], changes: Changes, targets: Expand
) -> dict[str, Rows]:
    """Tensor -> its rows that differ from an earlier run's, or may, after some operations.

    Rows that are not among these have the bits that they had. Of a plan for which
    :func:`why_whole` has no reason. Collective where ``targets`` is.

    Args:
        known: the rows of the tensors that were there before, which are returned too.
    """
    types = plan.program.types
    scaled = frozenset(op.reader.out for op in plan.ops if op.scales and op.reader is not None)
    at = Stale(changes=changes, types=types, targets=targets, scaled=scaled, rows=dict(known))
    forward(
        ops,
        at.rows,
        lambda step: step.stale(at) | changes.new[types[step.out]],
        lambda reader, out: at.rows[out] | at.degrees(reader, types[out]),
    )
    return at.rows


def stale_rows(plan: Plan, changes: Changes, targets: Expand) -> dict[str, Rows]:
    """As :func:`stale_in`, of all operations."""
    return stale_in(plan, plan.ops, stale_inputs(plan, changes), changes, targets)


def stale_inputs(plan: Plan, changes: Changes) -> dict[str, Rows]:
    """Name of an input -> its rows that are stale."""
    return {name: changes.features[of] for of, name in plan.program.inputs.items()}


def wanted_in(
    plan: Plan,
    ops: Sequence[Op],
    results: Mapping[str, Rows],
    nodes: Mapping[str, int],
    sources: Expand,
) -> Wants:
    """What some operations of a plan read for some rows of what they make.

    Rows that are not wanted are left with no edges: what they hold means nothing, and nothing that
    is wanted reads it.

    Args:
        results: tensor -> rows of it that are wanted, of those that the operations make.
        nodes: node type, by the program's name -> how many there are.
    """
    types, due = plan.program.types, dict[str, Rows]()
    at = Wants(types=types, nodes=nodes, sources=sources)

    def want(rows: Mapping[str, Rows]) -> None:
        for name, some in rows.items():
            join(due, name, some)
            join(at.of_types, types[name], some)

    want(results)
    for step in reversed([step for op in ops for step in op.steps]):
        if step.out in due:
            at.made[step.out] = due.pop(step.out)
            want(step.wants(at.made[step.out], at))
    return at


def why_whole(plan: Plan, *, sampled: bool) -> str:
    """Why some rows of a plan cannot be computed alone with the bits of a whole run; "": they can.

    Args:
        sampled: each layer reads a sample of the edges.
    """
    for step in plan.program.steps:
        if step.reach is Reach.GRAPH:
            return f"{step.label} needs a statistic over all nodes"
        for end, weighted in step.degrees_read:
            if end == "out" and (weighted or sampled):
                what = "sums of the weights of out-edges" if weighted else "out-degrees of samples"
                return f"{step.label} reads {what}"
        if not step.exact_alone:
            return f"the rows of {step.label} may be rounded in another way among other rows"
    return ""


def why_more(ops: Sequence[Op], *, sampled: bool) -> str:
    """What operations need of neighbours but rows that were there before; "": nothing.

    Args:
        sampled: see :func:`why_whole`.
    """
    reached = set[str]()
    for step in (step for op in ops for step in op.steps):
        if step.reach is Reach.GRAPH:
            return f"{step.label} needs a statistic over all nodes"
        degrees = step.degrees_read | step.degrees_counted
        if sampled and degrees:
            return f"{step.label} reads degrees of samples"
        if ("out", True) in degrees:
            return f"{step.label} reads sums of the weights of out-edges"
        several = isinstance(step, EdgeStep) and step.passes > 1
        if several or reached.intersection(step.reads_at_sources()):
            return f"{step.label} reads sums of its neighbours within one layer"
        if step.reach is Reach.NEIGHBOURS or reached.intersection(step.reads()):
            reached.add(step.out)
    return ""


class DegreeKind(NamedTuple):
    """Degrees of the nodes at one end of a relation's edges, with the self-loops of a view.

    Attributes:
        weighted: sums of the weights of edges; else numbers of edges.
    """

    relation: str
    end: End
    weighted: bool
    loops: Loops = "keep"
    loop_weight: float = 1.0

    @property
    def name(self) -> str:
        """The name of the tensor that is kept."""
        counted = "weights" if self.weighted else "edges"
        loops = self.loops if not self.weighted else f"{self.loops} {self.loop_weight!r}"
        return f"degrees {self.end} {counted} {loops} {self.relation}"

    @property
    def node_type(self) -> str:
        """Whose degrees they are."""
        source, destination = ends_of(self.relation)
        return destination if self.end == "in" else source


def kind_of(view: EdgeView, end: End, *, weighted: bool) -> DegreeKind:
    """The degrees of a view; weights count where it has them.

    Args:
        weighted: the norm adds weights up, and the graph has some.
    """
    counts = weighted and view.edge_weight
    if view.loops == "keep" or not counts:
        return DegreeKind(view.relation, end, counts, view.loops)
    return DegreeKind(view.relation, end, counts, view.loops, view.loop_weight)


def kinds_read(program: Program, weighted: Mapping[str, bool]) -> list[DegreeKind]:
    """The degrees that a program reads of nodes other than those whose in-edges it goes over.

    They are kept with the rows of a version: where a row is computed over kept rows, its neighbours
    have the degrees that they had then.

    Args:
        weighted: relation -> whether its edges have weights.
    """
    kinds = [
        kind_of(view, end, weighted=adds and weighted[view.relation])
        for step in program.steps
        if (view := step.own_edges) is not None
        for end, adds in sorted(step.degrees_read | step.degrees_counted)
    ]
    return list(dict.fromkeys(kinds))
