"""Layers of which only the rows that some results need are computed.

Backward from the rows that are chosen, over the in-edges of each layer, follows which nodes are
needed at all. These make an excerpt of the graphs (:mod:`embertide.engine.stages.infer.excerpt`),
in which each layer has the edges of the rows that are needed of it. Where the in-neighbours of some
rows would be about all nodes, all are taken, and none is counted any more (DGI, section 4.1).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from embertide.context import RunContext
from embertide.engine.stages.infer.excerpt import Excerpt, excerpt_of
from embertide.engine.stages.infer.excerpt_run import ExcerptRun, placed_plan
from embertide.engine.stages.infer.running import results_in_rows, run_op
from embertide.engine.stages.infer.work import LayerWork
from embertide.facts.telemetry.clock import Clock
from embertide.kernels.torch_threads import on_one_thread
from embertide.layouts import Loaded
from embertide.program.plans.dirty import ends_of
from embertide.program.plans.plan import Plan
from embertide.program.plans.wanted import GraphRows, Neighbours, Rows, wanted_in
from embertide.program.selfcheck.checker import Checker
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.execution import Execution

Chosen = Mapping[str, Rows]
"""Node type, by the program's name -> [N] bool, the rows of its results that are wanted."""


def why_all_rows(ctx: RunContext) -> str:
    """Why all rows are computed, whichever are wanted; "": only those that these need."""
    if ctx.device.type != "cpu":
        return "rows are computed alone on a CPU only"
    if ctx.scratch is not None:
        return "tensors of nodes are on disk, since they exceed the memory of a worker"
    return ""


def infer_chosen(
    ctx: RunContext,
    whole: Execution,
    plan: Plan,
    loaded: Mapping[str, Loaded],
    chosen: Chosen,
    clock: Clock,
    checker: Checker | None,
    first: int = 0,
) -> dict[str, torch.Tensor]:
    """Key of a result -> [k, D'] float32, its chosen rows of our sub-range, in their order.

    Collective: every rank must call.

    Args:
        whole: holds the tensors that operation ``first`` and those after it read; it runs nothing.
        loaded: the features; those of types all of whose nodes are needed are used up.
        first: the operation to begin with.
    """
    ops, program = plan.ops[first:], plan.program
    nodes = {name: ranges.nodes for name, ranges in whole.ranges.items()}
    with on_one_thread():
        excerpts = ExcerptRun(ctx, whole, loaded, checker)
        excerpts.open(ops)
        neighbours = _near_all(excerpts, nodes)
        results = {name: chosen[program.types[name]] for name in program.results.values()}
        wanted, rows = wanted_in(plan, ops, results, nodes, neighbours)
        _note(ctx, excerpts, plan, wanted)
        excerpt = excerpt_of(rows, nodes, whole.ranges)
        kept = {of for of in program.inputs if first == 0 and bool(excerpt.rows[of].all())}
        plan = placed_plan(plan, kept)
        execution, checker = excerpts.begin(plan, first, excerpt, wanted, kept)
    embeddings = _run(ctx, execution, plan, clock, checker, first)
    return {key: _ours(whole, excerpt, chosen, program.types[name], embeddings[key])
            for key, name in program.results.items()}  # fmt: skip


def _near_all(excerpts: ExcerptRun, nodes: Mapping[str, int]) -> Neighbours:
    """The in-neighbours of some rows, or all nodes where that is about as many.

    Collective, and so is the result: every rank must call.
    """
    edges: dict[str, int] = {}
    for (_, relation), count in excerpts.count_edges().items():
        edges[relation] = max(count, edges.get(relation, 0))

    def neighbours(relation: str, rows: Rows) -> Rows:
        source, destination = ends_of(relation)
        if int(rows.sum()) * edges[relation] >= nodes[source] * nodes[destination]:
            return torch.ones(nodes[source], dtype=torch.bool)
        return excerpts.sources(relation, rows)

    return neighbours


def _note(
    ctx: RunContext,
    excerpts: ExcerptRun,
    plan: Plan,
    wanted: GraphRows,
) -> None:
    """Note what is gone over. Collective: every rank must call."""
    facts = ctx.graph_facts.chosen
    facts.edges = sum(excerpts.count_edges(wanted).values())
    every = excerpts.count_edges()
    read = {
        (step.layer, step.relation) for step in plan.program.steps if isinstance(step, EdgeStep)
    }
    of_relation = {relation: count for (_, relation), count in every.items()}
    facts.all_edges = sum(every.get(key, of_relation.get(key[1], 0)) for key in read)


def _run(
    ctx: RunContext,
    execution: Execution,
    plan: Plan,
    clock: Clock,
    checker: Checker | None,
    first: int,
) -> dict[str, torch.Tensor]:
    """Run the operations; key of a result -> its rows of the excerpt. Collective."""
    work, count = LayerWork(ctx, execution, plan.ops), len(plan.ops)
    for at, op in enumerate(plan.ops[first:], first):
        with clock.layer(op.steps[-1].layer):
            work.begins(op, at / count, (at + 1) / count)
            run_op(execution, op, at, checker)
        work.done(op)
    layers = plan.program.layers
    ctx.progress("infer", 1.0, layers, layers)
    with clock.layer(layers):
        results = results_in_rows(execution)
        if checker:
            checker.results(execution, results)
    return results


def _ours(
    whole: Execution, excerpt: Excerpt, chosen: Chosen, node_type: str, rows: torch.Tensor
) -> torch.Tensor:
    """The chosen ones of our rows of an excerpt."""
    ours = _own(whole, chosen, node_type)[excerpt.of_ours(whole, node_type, "rows")]
    return rows[ours.to(rows.device)]


def choose_rows(
    whole: Execution, chosen: Chosen, embeddings: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """What :func:`infer_chosen` gives, of embeddings of which all rows were computed."""
    types, results = whole.program.types, whole.program.results
    own = {name: _own(whole, chosen, types[name]) for name in results.values()}
    return {
        key: embeddings[key][own[name].to(embeddings[key].device)] for key, name in results.items()
    }


def _own(whole: Execution, chosen: Chosen, node_type: str) -> Rows:
    """[N/(P*M)] bool, which rows of our sub-range are chosen."""
    first, last = whole.ranges[node_type].worker(whole.grid.rank)
    return chosen[node_type][first:last]
