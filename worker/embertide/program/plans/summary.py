"""A plan as plain data: each operation with its inputs, its output, and what it frees."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from embertide.program.plans.plan import Plan
from embertide.program.steps.op import Op


@dataclass(frozen=True)
class OpSummary:
    """One operation.

    Attributes:
        phase: from 0.
        out: the tensor it makes, of ``columns`` columns.
        steps: the kinds of its steps, in order.
        reads: the tensors it reads.
        layouts: name of a tensor -> the layout in which it is read; ``loaded`` is where its rows
            were read, ``sums`` what an earlier operation has made for this one.
        layout: of the tensor it makes.
        reach: what of the other nodes it needs: row, neighbours or graph.
        node_type: of the rows that it makes; "" where there is one type.
        relation: of the edges that it reads; "" without edges, or where there is one relation.
        brings: relations whose sums it makes, since they read the same rows, where there are
            several.
        onto: the tensor that its product is added to, which becomes the result; "" for none.
        reuses: the tensor that is changed in place into the result; "" for none.
        frees: the tensors that no later operation reads.
    """

    phase: int
    out: str
    steps: list[str]
    reads: list[str]
    layouts: dict[str, str]
    columns: int
    layout: str
    reach: str
    node_type: str
    relation: str
    brings: list[str]
    onto: str
    reuses: str
    frees: list[str]


@dataclass(frozen=True)
class PlanSummary:
    """All operations.

    Attributes:
        grid: of the workers, such as ``2x2``; ``layers_grid`` is the one that computes the layers.
        kept: of each phase, the tensors that later ones read, or that are results.
    """

    grid: str
    layers_grid: str
    in_place: bool
    ops: list[OpSummary]
    kept: list[list[str]]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def summarise_plan(plan: Plan) -> PlanSummary:
    """Each operation in order, and what is kept after each phase."""
    phases = range(max(plan.phases) + 1)
    return PlanSummary(
        grid=str(plan.target.grid),
        layers_grid=str(plan.grid),
        in_place=plan.target.in_place,
        ops=[_op(plan, at, op) for at, op in enumerate(plan.ops)],
        kept=[plan.kept_after(phase) for phase in phases],
    )


def _op(plan: Plan, at: int, op: Op) -> OpSummary:
    first, program = op.steps[0], plan.program
    outputs = {step.out for step in op.steps}
    reads = list(dict.fromkeys(n for step in op.steps for n in step.reads() if n not in outputs))
    return OpSummary(
        phase=plan.phases[at],
        out=op.out,
        steps=[step.kind_name for step in op.steps],
        reads=reads,
        layouts={read.name: read.layout for read in op.inputs},
        columns=program.widths[op.out],
        layout=op.layout,
        reach=op.reach.name.lower(),
        node_type=program.types[op.out],
        relation=first.edges.relation if first.edges is not None else "",
        brings=[step.relation for step in op.brings] if len(op.brings) > 1 else [],
        onto=op.onto or "",
        reuses=op.reuses or "",
        frees=[name for name in reads if name in op.frees],
    )
