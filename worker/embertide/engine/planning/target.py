"""Where a job's program is to run, as a plan depends on it."""

from __future__ import annotations

from embertide.program.plans.plan import Target
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob


def target_of_job(
    job: EmbeddingJob,
    grid: GridShape,
    *,
    in_place: bool = False,
    panel: int = 0,
    spills_graph: bool = False,
) -> Target:
    """The job's program on a grid.

    Args:
        in_place, panel, spills_graph: see :class:`Target`.
    """
    return Target(
        grid=grid,
        in_place=in_place,
        sampled=job.spec.inference.fanout != "full",
        panel=panel,
        spills_graph=spills_graph,
    )
