"""Operations of a plan that are run for some nodes alone, in an excerpt of the graphs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from embertide.context import RunContext
from embertide.engine.stages.infer.beside import Beside
from embertide.engine.stages.infer.excerpt import Excerpt, excerpt_of
from embertide.engine.stages.infer.running import results_in_rows, run_op
from embertide.engine.stages.infer.work import LayerWork
from embertide.graph.graph import LayerGraph
from embertide.graph.node_sets import any_rank
from embertide.kernels.csr import Csr
from embertide.kernels.some_rows import sources_of as sources_in
from embertide.kernels.some_rows import targets_of
from embertide.kernels.spilled_csr import in_memory
from embertide.kernels.torch_threads import on_one_thread
from embertide.layouts import Loaded, Shard
from embertide.program.plans.boundaries import boundaries
from embertide.program.plans.dirty import ends_of
from embertide.program.plans.layouts import with_placed
from embertide.program.plans.plan import Plan
from embertide.program.plans.wanted import GraphRows, Rows, wanted_in
from embertide.program.selfcheck.checker import Checker
from embertide.program.selfcheck.part import check_some
from embertide.program.steps.execution import Execution
from embertide.program.steps.run import Run
from embertide.program.steps.tensors import Tensors

PRIMITIVE = "refresh"
"""Under which the transfers are counted."""


def placed_plan(plan: Plan, kept: Collection[str] = ()) -> Plan:
    """A plan for an excerpt, whose features are in order; factors are applied where the whole plan
    applies them.

    Args:
        kept: node types whose features stay as they were loaded.
    """
    names = [name for name in plan.program.inputs if name not in kept]
    placed = with_placed(plan, [*names, *(plan.target.placed & set(kept))])
    same = [replace(op, scales=of.scales) for op, of in zip(placed.ops, plan.ops, strict=True)]
    return replace(placed, ops=tuple(same))


class ExcerptRun:
    """What operations that are run for some nodes read: graphs, features and kept tensors.

    Args:
        whole: holds the tensors of all nodes that operations begin with; it runs nothing.
        loaded: the features, which stay as they are.
    """

    def __init__(
        self,
        ctx: RunContext,
        whole: Execution,
        loaded: Mapping[str, Loaded],
        checker: Checker | None,
    ) -> None:
        self._ctx, self._whole = ctx, whole
        self._loaded, self._checker = loaded, checker
        self._nodes = {name: ranges.nodes for name, ranges in whole.ranges.items()}
        self._graphs: dict[tuple[int, str], LayerGraph] = {}
        self._csrs: dict[int, tuple[LayerGraph, Csr]] = {}
        self._exact: Mapping[str, Beside] = {}

    def corrects(self, exact: Mapping[str, Beside]) -> None:
        """Operations begin with these rows of some tensors, in place of those of the whole ones."""
        self._exact = exact

    def open(self, ops: Sequence[Run]) -> None:
        """Take the whole layer graphs of some operations, with their columns, which may be dropped.

        Collective: every rank must call.
        """
        steps = [step for op in ops for step in (*op.steps, *([op.reader] if op.reader else []))]
        views = [view for step in steps if (view := step.own_edges) is not None]
        keys = sorted({(view.layer, view.relation) for view in views})
        self._graphs = {key: self._whole.graphs(*key) for key in keys}
        self._csrs = {
            id(graph): self._csrs.get(id(graph), (graph, in_memory(graph.csr)))
            for graph in self._graphs.values()
        }

    def edges_of(self, layer: int, relation: str) -> Csr:
        """The in-edges of our partition's rows, as they are stored."""
        return self._csrs[id(self._graphs[layer, relation])][1]

    def sources(self, relation: str, rows: Rows) -> Rows:
        """The sources of all edges of some rows. Collective: every rank must call."""
        source, _ = ends_of(relation)
        found = torch.zeros(self._nodes[source], dtype=torch.bool)
        for (_, name), graph in self._graphs.items():
            if name == relation:
                first, last = graph.targets.partition(self._whole.grid.p)
                csr = self._csrs[id(graph)][1]
                found |= sources_in(csr, rows[first:last], len(found))
        return any_rank(self._whole.exchange, found, PRIMITIVE)

    def targets(self, relation: str, rows: Rows) -> Rows:
        """The rows that have an edge from some sources. Collective: every rank must call."""
        found = torch.zeros(self._nodes[ends_of(relation)[1]], dtype=torch.bool)
        for (_, name), graph in self._graphs.items():
            if name == relation:
                first, last = graph.targets.partition(self._whole.grid.p)
                found[first:last] |= targets_of(self._csrs[id(graph)][1], rows)
        return any_rank(self._whole.exchange, found, PRIMITIVE)

    def wanted(
        self, plan: Plan, ops: Sequence[Run], results: Mapping[str, Rows]
    ) -> tuple[GraphRows, dict[str, Rows]]:
        """See :func:`wanted_in`. Collective: every rank must call."""
        return wanted_in(plan, ops, results, self._nodes, self.sources)

    def count_edges(self, wanted: GraphRows | None = None) -> dict[tuple[int, str], int]:
        """Layer and relation -> edges of the rows that are wanted, or of all; of all ranks.

        Collective: every rank must call.
        """
        ours = {key: self._own_edges(key, wanted) for key in self._graphs}
        gathered = self._whole.exchange.all_objects(list(ours.values()))
        return dict(zip(ours, map(sum, zip(*gathered, strict=True)), strict=True))

    def _own_edges(self, key: tuple[int, str], wanted: GraphRows | None) -> int:
        graph = self._graphs[key]
        first, last = graph.targets.within(self._whole.grid.rank)
        indptr = graph.csr.indptr[first : last + 1]
        if wanted is None:
            return int(indptr[-1] - indptr[0])
        if key not in wanted:
            return 0
        start, stop = graph.targets.worker(self._whole.grid.rank)
        return int(indptr.diff()[wanted[key][start:stop]].sum())

    def begin(
        self,
        plan: Plan,
        first: int,
        excerpt: Excerpt,
        wanted: GraphRows,
        kept: Collection[str] = (),
    ) -> tuple[Execution, Checker | None]:
        """Runs the operations from ``first`` on for some nodes. Collective: every rank must call.

        Args:
            plan: of the excerpt, see :func:`placed_plan`.
            wanted: rows whose edges are read, by the numbers of the whole graph.
            kept: node types all of whose nodes are taken, with their features as they were loaded,
                which are used up.
        """
        whole = self._whole
        tensors = Tensors(
            whole.exchange,
            plan.program,
            excerpt.ranges,
            {
                of: self._loaded[of] if of in kept else self._features(plan, first, excerpt, of)
                for of in plan.program.inputs
            },
            {of: whole.locations[of] for of in kept},
            batch_bytes=self._ctx.job.spec.inference.group_bytes,
            row_type=whole.row_type,
        )
        starts = next((b.tensors for b in boundaries(plan) if b.at == first), ())
        tensors.restore({name: self.shard(excerpt, name) for name in starts}, ())
        none = {of: torch.zeros(count, dtype=torch.bool) for of, count in self._nodes.items()}
        graphs = {
            key: self.graph(excerpt, graph, wanted.get(key, none[ends_of(key[1])[1]]))
            for key, graph in self._graphs.items()
        }
        checker = self._checking(plan, excerpt, wanted, graphs)
        execution = replace(
            whole,
            ranges=excerpt.ranges,
            graphs=lambda layer, name: graphs[layer, name],
            tensors=tensors,
            locations={of: whole.locations[of] for of in kept},
            scaled=set(whole.scaled),
        )
        if checker is not None:
            execution = replace(execution, on_hop=partial(checker.hop, execution))
        return execution, checker

    def run(
        self,
        plan: Plan,
        first: int,
        last: int,
        results: Mapping[str, Rows],
        *,
        counted: bool = True,
    ) -> tuple[Excerpt, Execution]:
        """Run operations ``first`` to ``last``, whose graphs are open, for some rows of what they
        make. Where they end the plan, results are left in ``rows``.

        Collective: every rank must call.

        Args:
            results: tensor -> [N] bool.
            counted: as progress of the run.
        """
        with on_one_thread():
            wanted, rows = self.wanted(plan, plan.ops[first:last], results)
            excerpt = excerpt_of(rows, self._nodes, self._whole.ranges)
            execution, checker = self.begin(plan, first, excerpt, wanted)
        work = LayerWork(self._ctx, execution, plan.ops) if counted else None
        for at, op in enumerate(plan.ops[first:last], first):
            if work is not None:
                work.begins(op, at / len(plan.ops), (at + 1) / len(plan.ops))
            run_op(execution, op, at, checker)
            if work is not None:
                work.done(op)
        if last == len(plan.ops):
            made = results_in_rows(execution)
            if checker:
                checker.results(execution, made)
        return excerpt, execution

    def shard(self, excerpt: Excerpt, name: str) -> Shard:
        """Our rows of an excerpt of a tensor that operations begin with."""
        shard = excerpt.shard(self._whole, name)
        if name in self._exact:
            of_type = self._whole.program.types[name]
            picked = excerpt.of_ours(self._whole, of_type, shard.layout)
            self._exact[name].put_into(shard.data, picked)
        return shard

    def graph(self, excerpt: Excerpt, graph: LayerGraph, wanted: Rows) -> LayerGraph:
        """A layer graph with the edges of some rows. Collective: every rank must call."""
        return excerpt.graph(self._whole, graph, self._csrs[id(graph)][1], wanted)

    def _features(self, plan: Plan, first: int, excerpt: Excerpt, node_type: str) -> Loaded:
        """The features of some nodes, if an operation from ``first`` on reads them."""
        name, given = plan.program.inputs[node_type], self._loaded[node_type]
        if plan.last_reads.get(name, -1) < first:
            return Loaded(given.ids[:0], given.data[:0], placed=True)
        channel = self._whole.exchange.channel("world", "features")
        return excerpt.features(self._whole, channel, node_type, given)

    def _checking(
        self,
        plan: Plan,
        excerpt: Excerpt,
        wanted: GraphRows,
        graphs: Mapping[tuple[int, str], LayerGraph],
    ) -> Checker | None:
        """Checks rows of an excerpt that have their edges."""
        if self._checker is None:
            return None
        names = {of: rows.nonzero().squeeze(1) for of, rows in excerpt.rows.items()}
        complete = {key: rows[names[ends_of(key[1])[1]]] for key, rows in wanted.items()}
        checker = check_some(self._checker, plan, excerpt.ranges, complete, names)
        for (layer, name), graph in graphs.items():
            checker.take_edges(layer, name, replace(graph.sub_range(), features=graph.features))
        return checker
