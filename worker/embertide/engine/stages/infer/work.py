"""The rows and edges of the layers: counted as they are done, and announced ahead for progress."""

from __future__ import annotations

from collections.abc import Sequence

from embertide.context import RunContext
from embertide.program.steps.base import Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.run import Run


class LayerWork:
    """Counts every layer once: a relation's edges with the last step over them, a type's rows at
    its end.

    The ranks that share a partition's edges, each with some columns, count a share each.
    """

    def __init__(self, ctx: RunContext, execution: Execution, runs: Sequence[Run]) -> None:
        self._ctx, self._execution = ctx, execution
        types = execution.program.types
        self._ends = {(run.steps[-1].layer, types[run.out]): run.out for run in runs}
        views = [(run.steps[0].edges, run.out) for run in runs]
        self._over_edges = {(v.layer, v.relation): out for v, out in views if v is not None}

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
        graph = execution.graphs(step.edges.layer, step.edges.relation)
        indptr, rank = graph.csr.indptr, execution.grid.rank
        alone = execution.grid.world == 1
        edges = int(indptr[-1]) if step.tiles or (step.pairs and alone) else 0
        if step.pairs and not alone:
            first, last = graph.targets.within(rank)
            edges += int(indptr[last] - indptr[first])
        return edges

    def done(self, run: Run) -> None:
        """A run of steps is over."""
        execution, view = self._execution, run.steps[0].edges
        grid, work = execution.grid, self._ctx.work
        if view is not None and self._over_edges[view.layer, view.relation] == run.out:
            # Columns may be gone by now, row ends are not.
            edges = int(execution.graphs(view.layer, view.relation).csr.indptr[-1])
            work.add("infer", edges=(edges + grid.m) // grid.feature)
        node_type = execution.program.types[run.out]
        if self._ends[run.steps[-1].layer, node_type] == run.out:
            start, stop = execution.ranges[node_type].worker(grid.rank)
            work.add("infer", rows=stop - start)
