"""The layers: a program's steps, in order, lowered to the distributed primitives.

Tensors are converted to the layout that a step needs and are changed in place where no later
step reads them (:mod:`embertide.program.steps.tensors`). The features are read on the ranks that
loaded them.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial

import torch

from embertide.context import RunContext
from embertide.engine.stages.infer.arrangement import Arrangement, arrange
from embertide.engine.stages.infer.chosen import Chosen, choose_rows, infer_chosen, why_all_rows
from embertide.engine.stages.infer.doubt import Doubt
from embertide.engine.stages.infer.executing import executing
from embertide.engine.stages.infer.keeping import Keeping, LayerKeeper
from embertide.engine.stages.infer.kept_rows import KeptRows
from embertide.engine.stages.infer.over_kept import (
    OverKept,
    check_over_kept,
    infer_over_kept,
    sealed_end,
)
from embertide.engine.stages.infer.refreshing import refresh
from embertide.engine.stages.infer.running import results_in_rows, run_op
from embertide.engine.stages.infer.spilled import SpilledLayers
from embertide.engine.stages.infer.taking_over import Refreshing
from embertide.engine.stages.infer.work import LayerWork
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.refresh import FULL_RUN
from embertide.layouts import Loaded, Shard
from embertide.program.plans.plan import Plan
from embertide.program.selfcheck.checker import Checker
from embertide.program.steps.execution import Execution, Graphs

__all__ = [
    "Arrangement",
    "Chosen",
    "Graphs",
    "Keeping",
    "KeptRows",
    "OverKept",
    "Refreshing",
    "arrange",
    "check_over_kept",
    "infer",
    "infer_over_kept",
    "sealed_end",
]


def infer(
    ctx: RunContext,
    layers: Arrangement,
    graphs: Graphs,
    loaded: dict[str, Loaded],
    locations: dict[str, torch.Tensor],
    clock: Clock,
    checker: Checker | None = None,
    keeping: Keeping | None = None,
    refreshing: Refreshing | None = None,
    chosen: Chosen | None = None,
) -> dict[str, torch.Tensor]:
    """Compute the embeddings of our sub-ranges. Collective: every rank must call.

    Args:
        layers: the node types of its program are the keys of what follows.
        graphs: of its grid.
        loaded: the feature rows we read.
        locations: [N/(P*M), 2] rank that loaded the features of each node of our sub-range, and
            the row there.
        clock: times the layers.
        checker: computes some rows again, if any does.
        keeping: where layers are kept; None: none is, nor is one read.
        refreshing: rows that an earlier run has kept, where they need not be computed.
        chosen: the rows that are wanted, of a run that keeps none; None: all.

    Returns:
        key of a result -> [N/(P*M), D'] float32 in the ``rows`` layout; only the chosen ones of
        these rows, in their order, where some are chosen.
    """
    execution, plan = executing(ctx, layers, graphs, loaded, locations)
    if checker:
        execution = replace(execution, on_hop=partial(checker.hop, execution))
    with torch.inference_mode():
        if chosen is not None:
            return _chosen(ctx, execution, plan, loaded, chosen, clock, checker, keeping)
        if keeping is None:
            return _run(ctx, execution, plan, clock, checker)
        basis = "" if refreshing is None else refreshing.next_basis
        with closing(LayerKeeper(ctx, execution, plan, keeping, checker, basis)) as keeper:
            first = keeper.resume()
            if first and refreshing is not None:
                ctx.graph_facts.refresh.resumed()
            elif refreshing is not None:
                refreshed = _refresh(
                    ctx, execution, plan, loaded, refreshing, clock, checker, keeper
                )
                if refreshed is not None:
                    return refreshed
            return _run(ctx, execution, plan, clock, checker, keeper, first)


def _chosen(
    ctx: RunContext,
    execution: Execution,
    plan: Plan,
    loaded: dict[str, Loaded],
    chosen: Chosen,
    clock: Clock,
    checker: Checker | None,
    keeping: Keeping | None,
) -> dict[str, torch.Tensor]:
    """The chosen rows of the results; after a layer that an earlier attempt has kept, if any."""
    facts = ctx.graph_facts.chosen
    facts.rows = sum(int(rows.sum()) for rows in chosen.values())
    facts.all_rows = sum(len(rows) for rows in chosen.values())
    facts.why = why_all_rows(ctx)
    if facts.why:
        return choose_rows(execution, chosen, _run(ctx, execution, plan, clock, checker))
    if keeping is None:
        return infer_chosen(ctx, execution, plan, loaded, chosen, clock, checker)
    with closing(LayerKeeper(ctx, execution, plan, keeping, checker)) as keeper:
        first = keeper.resume()
    return infer_chosen(ctx, execution, plan, loaded, chosen, clock, checker, first)


def _refresh(
    ctx: RunContext,
    execution: Execution,
    plan: Plan,
    loaded: dict[str, Loaded],
    refreshing: Refreshing,
    clock: Clock,
    checker: Checker | None,
    keeper: LayerKeeper,
) -> dict[str, torch.Tensor] | None:
    """The results, of which only rows that changed are computed; None: all must be computed."""
    try:
        results = refresh(ctx, execution, plan, loaded, refreshing, clock, checker, keeper)
    except Doubt as doubt:
        ctx.graph_facts.refresh.whole(str(doubt))
        if ctx.grid.rank == 0:
            ctx.graph_facts.kept.warn(FULL_RUN.format(why=doubt))
        if checker:
            checker.parts.clear()
        keeper.start_again()
        execution.tensors.forget(plan.program.inputs.values())
        return None
    _keep_results(keeper, plan, results)
    return results


def _keep_results(keeper: LayerKeeper, plan: Plan, results: dict[str, torch.Tensor]) -> None:
    """Collective: every rank must call."""
    names, widths = plan.program.results, plan.program.widths
    keeper.keep_results(
        {names[key]: Shard("rows", rows, widths[names[key]]) for key, rows in results.items()}
    )


def _run(
    ctx: RunContext,
    execution: Execution,
    plan: Plan,
    clock: Clock,
    checker: Checker | None,
    keeper: LayerKeeper | None = None,
    first: int = 0,
) -> dict[str, torch.Tensor]:
    """Every operation from one on in order, then the results in the ``rows`` layout."""
    program, ops = execution.program, plan.ops
    done, steps = sum(len(run.steps) for run in ops[:first]), len(program.steps)
    work = LayerWork(ctx, execution, ops)
    spilled = None
    if ctx.scratch is not None:
        spilled = SpilledLayers(execution, plan, ctx.scratch, ctx.graph_facts.kept.warn)
    for at, run in enumerate(ops[first:], first):
        before, done = done, done + len(run.steps)
        if keeper is not None:
            keeper.before(at)
        with clock.layer(run.steps[-1].layer):
            work.begins(run, before / steps, done / steps)
            run_op(execution, run, at, checker, spilled)
            if keeper is not None:
                keeper.after()
        work.done(run)
    ctx.progress("infer", 1.0, program.layers, program.layers)
    with clock.layer(program.layers):
        results = results_in_rows(execution) if spilled is None else spilled.results()
        if checker:
            checker.results(execution, results)
    if keeper is not None:
        _keep_results(keeper, plan, results)
    return results
