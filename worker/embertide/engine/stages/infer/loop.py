"""The only loop over a plan's operations, on all rows or on some: progress, clock, self-check,
checkpoints.

Tensors are converted to the layout that a step needs and are changed in place where no later
step reads them (:mod:`embertide.program.steps.tensors`). The features are read on the ranks that
loaded them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch

from embertide.context import RunContext
from embertide.facts.telemetry.clock import Clock
from embertide.graph.exchange import Exchange
from embertide.graph.merging import Merging
from embertide.grid import RowRanges
from embertide.io.versions.layers.store import Values
from embertide.kernels.memory import empty
from embertide.layouts import ROW_TYPES, Layout, Loaded, Shard
from embertide.program.plans.boundaries import Part
from embertide.program.plans.layouts import with_placed
from embertide.program.plans.places import Fill, as_array, place_of
from embertide.program.plans.plan import Plan
from embertide.program.plans.spilled_run import Spilled
from embertide.program.selfcheck.checker import Checker
from embertide.program.steps.base import Step
from embertide.program.steps.execution import Execution, Graphs, results_in_rows
from embertide.program.steps.op import Op
from embertide.program.steps.tensors import Tensors


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """A plan on the workers: which of them own what on the grid that computes the layers.

    Attributes:
        exchange: with the grid of the layers.
        ranges: node type -> which worker owns which nodes, by that grid.
    """

    plan: Plan
    exchange: Exchange
    ranges: dict[str, RowRanges]

    def spread(self, ranges: RowRanges) -> RowRanges:
        """Ranges by the job's grid, as the grid of the layers has them: a worker's stay its own."""
        return ranges.whole_rows() if self.plan.whole_rows else ranges


def arrange(ctx: RunContext, plan: Plan, ranges: dict[str, RowRanges]) -> Arrangement:
    """The workers of a run on the grid of a plan's layers.

    Args:
        ranges: node type -> which worker owns which nodes, by the job's grid.
    """
    if not plan.whole_rows:
        return Arrangement(plan=plan, exchange=ctx.exchange, ranges=ranges)
    whole = {name: of_type.whole_rows() for name, of_type in ranges.items()}
    return Arrangement(plan=plan, exchange=ctx.exchange.whole_rows(), ranges=whole)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What runs a plan's operations on this rank.

    Attributes:
        plan: with the features as they are.
        whole: holds the tensors of all rows.
        loaded: the feature rows we read.
        checker: computes some rows again, if any does.
    """

    ctx: RunContext
    plan: Plan
    whole: Execution
    loaded: Mapping[str, Loaded]
    clock: Clock
    checker: Checker | None = None

    @classmethod
    def of(
        cls,
        ctx: RunContext,
        layers: Arrangement,
        graphs: Graphs,
        loaded: dict[str, Loaded],
        locations: Mapping[str, torch.Tensor],
        clock: Clock,
        checker: Checker | None = None,
    ) -> Engine:
        """Before the first operation.

        Args:
            layers: the node types of its program are the keys of what follows.
            graphs: of its grid.
            locations: [N/(P*M), 2] rank that loaded the features of each node of our sub-range, and
                the row there.
            clock: times the layers.
        """
        options, plan = ctx.job.spec.inference, layers.plan
        if placed := [name for name, own in loaded.items() if own.placed or own.to_place]:
            plan = with_placed(plan, placed)
        # On a GPU a wait returns at once, so there is nothing to time.
        timed = ctx.device.type == "cpu"
        layers.exchange.merging = Merging(options.groups_per_message if timed else 1)
        row_type, places = ROW_TYPES[options.rows], dict(locations)
        tensors = Tensors(
            layers.exchange,
            plan.program,
            layers.ranges,
            loaded,
            places,
            batch_bytes=options.group_bytes,
            row_type=row_type,
        )
        whole = Execution(
            exchange=layers.exchange,
            program=plan.program,
            ranges=layers.ranges,
            graphs=graphs,
            tensors=tensors,
            locations=places,
            depth=options.depth,
            row_type=row_type,
            reads_all=plan.reads_all,
            scaled={op.out for op in plan.ops if op.scales},
        )
        if checker:
            whole = replace(whole, on_hop=partial(checker.hop, whole))
        return cls(ctx=ctx, plan=plan, whole=whole, loaded=loaded, clock=clock, checker=checker)

    def placement(self) -> Placement:
        """Where the tensors of all rows are."""
        if self.ctx.scratch is None:
            return InMemory(self.whole, self.plan)
        return Spilled(self.whole, self.plan, self.ctx.scratch, self.ctx.graph_facts.kept.warn)

    def run(
        self,
        part: Part,
        execution: Execution,
        checker: Checker | None,
        *,
        placement: Placement | None = None,
        after: Callable[[], None] | None = None,
        counted: bool = True,
    ) -> dict[str, torch.Tensor]:
        """Run the operations of a part. Collective: every rank must call.

        Args:
            part: of the execution's program.
            placement: where its tensors are; None: in memory.
            after: called when an operation is over.
            counted: as time and progress of the run.

        Returns:
            key of a result -> [n, D'] float32 in the ``rows`` layout, of the last part; of others
            none.
        """
        plan, tensors, layers = part.plan, execution.tensors, part.plan.program.layers
        placement = placement or InMemory(execution, plan)
        layer = self.clock.layer if counted else nullcontext
        work = _LayerWork(self.ctx, execution, plan.ops) if counted else None
        for at, op in enumerate(part.ops, part.first):
            with layer(op.steps[-1].layer):
                if work is not None:
                    work.begins(op, at)
                tensors.begin(op.inputs, op.frees)
                if checker:
                    checker.begins(execution, at)
                placement.run(at)
                if checker:
                    checker.ended(execution, at)
                if after is not None:
                    after()
            if work is not None:
                work.done(op)
        if part.end.at < len(plan.ops):
            return {}
        if counted:
            self.ctx.progress("infer", 1.0, layers, layers)
        with layer(layers):
            results = placement.results()
            if checker:
                checker.results(execution, results)
        return results


class Placement(Protocol):
    """Where the tensors of an execution are."""

    def run(self, at: int) -> None:
        """Make the result of operation ``at``, and free what no later one reads.

        Collective: every rank must call.
        """

    def results(self) -> dict[str, torch.Tensor]:
        """Key of a result -> [N/(P*M), D'] float32. Collective: every rank must call."""

    def to_keep(self, name: str) -> Shard:
        """Our shard of a tensor that was made, with all its columns where there is one."""

    def values(self, shard: Shard) -> Values:
        """What writes our shard takes of it."""

    def fill(self, name: str, layout: Layout, fill: Fill) -> Shard:
        """Our shard of a tensor, with values from elsewhere."""

    def let_go(self) -> None:
        """Shards that were filled since the last part are not needed."""

    def go_on(self, first: int, shards: Mapping[str, Shard]) -> None:
        """The operations before number ``first``, with which a part begins, have made these."""

    def made(self, part: Part, shards: Mapping[str, Shard]) -> None:
        """A part has made these. What it frees goes, but for features."""

    def start_again(self) -> None:
        """Let go of all but features, and begin with the first operation."""


@dataclass(frozen=True)
class InMemory:
    """Whole tensors, in the memory of the device."""

    execution: Execution
    plan: Plan

    def run(self, at: int) -> None:
        """See :class:`Placement`."""
        op = self.plan.ops[at]
        self.execution.tensors.keep(op.out, op.lower(self.execution))

    def results(self) -> dict[str, torch.Tensor]:
        """See :class:`Placement`."""
        return results_in_rows(self.execution)

    def to_keep(self, name: str) -> Shard:
        """See :class:`Placement`."""
        return self.execution.tensors.to_keep(name)

    def values(self, shard: Shard) -> Values:
        """See :class:`Placement`."""
        return as_array(self.execution.exchange.staging.download(shard.data))

    def fill(self, name: str, layout: Layout, fill: Fill) -> Shard:
        """See :class:`Placement`."""
        rows, columns = place_of(self.execution, name, layout)
        kind = self.execution.tensors.type_of(name)
        data = empty((rows[1] - rows[0], columns[1] - columns[0]), kind)
        fill(slice(*rows), slice(*columns), as_array(data))
        width = self.execution.program.widths[name]
        return Shard(layout, self.execution.exchange.staging.upload(data), width)

    def let_go(self) -> None:
        """See :class:`Placement`."""

    def go_on(self, first: int, shards: Mapping[str, Shard]) -> None:
        """See :class:`Placement`."""
        frees = {name for op in self.plan.ops[:first] for name in op.frees}
        self.execution.tensors.restore(shards, frees)

    def made(self, part: Part, shards: Mapping[str, Shard]) -> None:
        """See :class:`Placement`."""
        self.execution.tensors.restore(shards, part.freed - set(shards))

    def start_again(self) -> None:
        """See :class:`Placement`."""
        self.execution.tensors.forget(self.plan.program.inputs.values())


class _LayerWork:
    """The rows and edges of the layers, counted as they are done and announced ahead for progress.

    Every layer counts once: a relation's edges with the last step over them, a type's rows at its
    end. The ranks that share a partition's edges, each with some columns, count a share each.
    """

    def __init__(self, ctx: RunContext, execution: Execution, runs: Sequence[Op]) -> None:
        self._ctx, self._execution = ctx, execution
        types = execution.program.types
        self._ends = {(run.steps[-1].layer, types[run.out]): run.out for run in runs}
        views = [(run.steps[0].edges, run.out) for run in runs]
        self._over_edges = {(v.layer, v.relation): out for v, out in views if v is not None}
        self._steps = [0]
        for run in runs:
            self._steps.append(self._steps[-1] + len(run.steps))

    def begins(self, run: Op, at: int) -> None:
        """Operation ``at`` begins: say where the layers stand, and what it will go over.

        Collective: every rank must call.
        """
        # First, since a sample is made here, which is another stage.
        edges = self._edges(run.steps[0])
        ctx, layers, steps = self._ctx, self._execution.program.layers, self._steps
        ctx.progress("infer", steps[at] / steps[-1], run.steps[-1].layer + 1, layers)
        if edges:
            ctx.ahead(steps[at + 1] / steps[-1], edges)

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

    def done(self, run: Op) -> None:
        """An operation is over."""
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
