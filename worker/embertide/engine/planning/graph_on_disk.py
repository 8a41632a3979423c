"""Whether the graph can be on disk, whose edges are then gone over part by part."""

from __future__ import annotations

from embertide.engine.planning.publishing import published
from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Target
from embertide.program.steps.program import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob


def graph_problem(job: EmbeddingJob, program: Program, grid: GridShape, *, in_place: bool) -> str:
    """Why the graph can't be on disk beside the tensors; "" where it can.

    Args:
        in_place: all workers are on one host, and read each other's tensors where they stand.
    """
    if grid.graph > 1 and not in_place:
        return "the graph can be on disk with one worker, or in a run whose workers are on one host"
    program = published(job, program)
    if grid.feature > 1 and not make_plan(program, Target(grid=grid, in_place=in_place)).whole_rows:
        pairs = [step for step in program.steps if step.pairs]
        if pairs:
            step = pairs[0]
            return (
                f"{step.kind_name} ({step.out}, layer {step.layer}) needs the graph in memory where"
                f" layers are computed in slices of columns, as on the grid {grid}"
            )
    return ""
