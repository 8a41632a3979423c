"""The rows and edges of the layers: counted as they are done, and told ahead for progress."""

from __future__ import annotations

from embertide.context import RunContext
from embertide.steps.base import Step
from embertide.steps.execution import Execution
from embertide.steps.run import Run


class LayerWork:
    """Counts every layer once: its edges with the last step over them, its rows at its end.

    The ranks that share a partition's edges, each with some columns, count a share each.
    """

    def __init__(self, ctx: RunContext, execution: Execution, runs: list[Run]) -> None:
        self._ctx, self._execution = ctx, execution
        self._ends = {run.steps[-1].layer: run.out for run in runs}
        over_edges = [run for run in runs if run.steps[0].edges is not None]
        self._over_edges = {run.steps[-1].layer: run.out for run in over_edges}

    def begins(self, run: Run, done: float, until: float) -> None:
        """A run of steps begins: say where the layers stand, and what it will go over.

        Collective: every rank must call.

        Args:
            done, until: fraction of all layers before and after it.
        """
        # First, since a sample is made here, which is a stage of its own.
        edges = self._edges(run.steps[0])
        ctx, layers = self._ctx, self._execution.program.layers
        ctx.progress("infer", done, run.steps[-1].layer + 1, layers)
        if edges:
            ctx.ahead(until, edges)

    def _edges(self, step: Step) -> int:
        """Edges that this rank goes over in a step. Collective: every rank must call."""
        if step.edges is None:
            return 0
        execution = self._execution
        indptr, rank = execution.graphs(step.layer).csr.indptr, execution.grid.rank
        alone = execution.grid.world == 1
        edges = int(indptr[-1]) if step.tiles or (step.pairs and alone) else 0
        if step.pairs and not alone:
            first, last = execution.ranges.within(rank)
            edges += int(indptr[last] - indptr[first])
        return edges

    def done(self, run: Run) -> None:
        """A run of steps is over."""
        execution, layer = self._execution, run.steps[-1].layer
        grid, work = execution.grid, self._ctx.work
        if self._over_edges.get(layer) == run.out:
            # Columns may be gone by now, row ends are not.
            edges = int(execution.graphs(layer).csr.indptr[-1])
            work.add("infer", edges=(edges + grid.m) // grid.feature)
        if self._ends[layer] == run.out:
            start, stop = execution.ranges.worker(grid.rank)
            work.add("infer", rows=stop - start)
