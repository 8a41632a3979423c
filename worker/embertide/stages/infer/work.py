"""The rows and edges of the layers: counted as they are done, and told ahead for progress."""

from __future__ import annotations

from embertide.models.fuse import Run
from embertide.models.program import EdgeStep, PairAttend
from embertide.stages.infer.execution import Execution


class LayerWork:
    """Counts every layer once: its edges with the last step over them, its rows at its end.

    The ranks that share a partition's edges, each with some columns, count a share each.
    """

    def __init__(self, execution: Execution, runs: list[Run]) -> None:
        self._execution = execution
        self._ends = {run.steps[-1].layer: run.out for run in runs}
        self._over_edges = {run.steps[-1].layer: run.out for run in runs if _is_over_edges(run)}

    def begins(self, run: Run, done: float, until: float) -> None:
        """A run of steps begins: say where the layers stand, and what it will go over.

        Collective: every rank must call.

        Args:
            done, until: fraction of all layers before and after it.
        """
        execution, step = self._execution, run.steps[0]
        # First, since a sample is made here, which is a stage of its own.
        edges = self._edges(step) if isinstance(step, EdgeStep) else 0
        ctx, layers = execution.ctx, execution.program.layers
        ctx.progress("infer", done, run.steps[-1].layer + 1, layers)
        if edges:
            ctx.ahead(until, edges)

    def _edges(self, step: EdgeStep) -> int:
        """Edges that this rank goes over in a step. Collective: every rank must call."""
        execution = self._execution
        indptr, rank = execution.graphs(step.layer).csr.indptr, execution.grid.rank
        edges = int(indptr[-1])
        if isinstance(step, PairAttend) and execution.grid.world > 1:
            # Scores of our sub-range come first.
            first, last = execution.ranges.within(rank)
            edges += int(indptr[last] - indptr[first])
        return edges

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
