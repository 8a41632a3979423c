"""A plan ready to be executed on this rank: its tensors, and how groups of rows travel."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from embertide.context import RunContext
from embertide.engine.stages.infer.arrangement import Arrangement
from embertide.graph.merging import Merging
from embertide.layouts import ROW_TYPES, Loaded
from embertide.program.plans.layouts import with_placed
from embertide.program.plans.plan import Plan
from embertide.program.steps.execution import Execution, Graphs
from embertide.program.steps.tensors import Tensors


def executing(
    ctx: RunContext,
    layers: Arrangement,
    graphs: Graphs,
    loaded: dict[str, Loaded],
    locations: Mapping[str, torch.Tensor],
) -> tuple[Execution, Plan]:
    """The execution, before its first operation, and the plan with the features as they are.

    Args:
        loaded: the feature rows we read.
        locations: see :func:`embertide.engine.stages.infer.infer`.
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
    execution = Execution(
        exchange=layers.exchange,
        program=plan.program,
        ranges=layers.ranges,
        graphs=graphs,
        tensors=tensors,
        locations=places,
        depth=options.depth,
        row_type=row_type,
        reads_all=plan.reads_all,
        scaled={run.out for run in plan.ops if run.scales},
    )
    return execution, plan
