"""Counting the rows and edges of the layers as they are done."""

from __future__ import annotations

from embertide.models.fuse import Run
from embertide.models.program import EdgeStep
from embertide.stages.infer.execution import Execution


class LayerWork:
    """Counts every layer once: its edges with the last step over them, its rows at its end.

    The ranks that share a partition's edges, each with some columns, count a share each.
    """

    def __init__(self, execution: Execution, runs: list[Run]) -> None:
        self._execution = execution
        self._ends = {run.steps[-1].layer: run.out for run in runs}
        self._over_edges = {run.steps[-1].layer: run.out for run in runs if _is_over_edges(run)}

    def done(self, run: Run) -> None:
        """A run of steps is over."""
        execution, layer = self._execution, run.steps[-1].layer
        grid, work = execution.grid, execution.ctx.work
        if self._over_edges.get(layer) == run.out:
            # Columns may be gone by now, row ends are not.
            edges = int(execution.graphs(layer).csr.indptr[-1])
            work.add("infer", edges=(edges + grid.m) // grid.feature)
        if self._ends[layer] == run.out:
            start, stop = execution.ranges.worker(grid.rank)
            work.add("infer", rows=stop - start)


def _is_over_edges(run: Run) -> bool:
    return isinstance(run.steps[0], EdgeStep)
