"""Whether the graph can be on disk, whose edges are then gone over part by part."""

from __future__ import annotations

from embertide.engine.planning.publishing import published
from embertide.engine.planning.target import target_of_job
from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Plan
from embertide.program.steps.program import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob


def graph_problem(job: EmbeddingJob, program: Program, grid: GridShape, *, in_place: bool) -> str:
    """Why the graph can't be on disk beside the tensors; "" where it can.

    Args:
        in_place: all workers are on one host, and read each other's tensors where they stand.
    """
    program = published(job, program)
    return needed_in_memory(make_plan(program, target_of_job(job, grid, in_place=in_place)))


def needed_in_memory(plan: Plan) -> str:
    """The step of a plan that goes over all of its edges at once; "" where none does.

    Where workers exchange rows, or compute slices of columns, scores of edges are sent in the order
    of the edges.
    """
    if plan.grid.workers == 1 or (plan.target.in_place and plan.grid.feature == 1):
        return ""
    how = "compute slices of columns" if plan.grid.feature > 1 else "exchange rows"
    for step in plan.program.steps:
        if step.pairs and step.tiles:
            return (
                f"{step.kind_name} ({step.out}, layer {step.layer}) needs the graph in memory where"
                f" workers {how}, as on the grid {plan.target.grid}"
            )
    return ""
