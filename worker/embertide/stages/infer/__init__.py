"""The layers: a program's steps, in order, lowered to the distributed primitives.

Tensors are converted to the layout that a step needs and are changed in place where no later
step reads them (:mod:`embertide.steps.tensors`). The features are read on the ranks that
loaded them.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial

import torch

from embertide.context import RunContext
from embertide.layouts import ROW_TYPES, Loaded
from embertide.plans.layouts import with_placed
from embertide.plans.plan import Plan
from embertide.primitives.merging import Merging
from embertide.selfcheck.checker import Checker
from embertide.stages.infer.arrangement import Arrangement, arrange
from embertide.stages.infer.keeping import Keeping, LayerKeeper
from embertide.stages.infer.work import LayerWork
from embertide.steps.execution import Execution, Graphs
from embertide.steps.run import Input
from embertide.steps.tensors import Tensors
from embertide.telemetry.clock import Clock

__all__ = ["Arrangement", "Graphs", "Keeping", "arrange", "infer"]


def infer(
    ctx: RunContext,
    layers: Arrangement,
    graphs: Graphs,
    loaded: dict[str, Loaded],
    locations: dict[str, torch.Tensor],
    clock: Clock,
    checker: Checker | None = None,
    keeping: Keeping | None = None,
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

    Returns:
        key of a result -> [N/(P*M), D'] float32 in the ``rows`` layout.
    """
    options, plan = ctx.job.spec.inference, layers.plan
    if placed := [name for name, features in loaded.items() if features.placed]:
        plan = with_placed(plan, placed)
    # On a GPU a wait returns at once, so there is nothing to time.
    timed = ctx.device.type == "cpu"
    layers.exchange.merging = Merging(options.groups_per_message if timed else 1)
    row_type = ROW_TYPES[options.rows]
    tensors = Tensors(
        layers.exchange,
        plan.program,
        layers.ranges,
        loaded,
        locations,
        batch_bytes=options.group_bytes,
        row_type=row_type,
    )
    execution = Execution(
        exchange=layers.exchange,
        program=plan.program,
        ranges=layers.ranges,
        graphs=graphs,
        tensors=tensors,
        locations=locations,
        depth=options.depth,
        row_type=row_type,
        reads_all=plan.reads_all,
        scaled={run.out for run in plan.ops if run.scales},
    )
    if checker:
        execution = replace(execution, on_hop=partial(checker.hop, execution))
    with torch.inference_mode():
        if keeping is None:
            return _run(ctx, execution, plan, clock, checker)
        with closing(LayerKeeper(ctx, execution, plan, keeping, checker)) as keeper:
            return _run(ctx, execution, plan, clock, checker, keeper)


def _run(
    ctx: RunContext,
    execution: Execution,
    plan: Plan,
    clock: Clock,
    checker: Checker | None,
    keeper: LayerKeeper | None = None,
) -> dict[str, torch.Tensor]:
    """Every operation in order, then the results in the ``rows`` layout."""
    program, tensors, ops = execution.program, execution.tensors, plan.ops
    first = 0 if keeper is None else keeper.resume()
    done, steps = sum(len(run.steps) for run in ops[:first]), len(program.steps)
    work = LayerWork(ctx, execution, ops)
    for at, run in enumerate(ops[first:], first):
        before, done = done, done + len(run.steps)
        if keeper is not None:
            keeper.before(at)
        with clock.layer(run.steps[-1].layer):
            work.begins(run, before / steps, done / steps)
            tensors.begin(run.inputs, run.frees)
            if checker:
                checker.begins(execution, at)
            tensors.keep(run.out, run.lower(execution))
            if checker:
                checker.ended(execution, at)
            if keeper is not None:
                keeper.after()
        work.done(run)
    ctx.progress("infer", 1.0, program.layers, program.layers)
    with clock.layer(program.layers):
        names = program.results.values()
        tensors.begin([Input(name, "rows") for name in names], names)
        last = execution.channel(program.layers - 1)
        results = {
            key: tensors.get(name, "rows", last).data for key, name in program.results.items()
        }
        if checker:
            checker.results(execution, results)
    return results
