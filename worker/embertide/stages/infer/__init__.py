"""The layers: a program's steps, in order, lowered to the distributed primitives.

Tensors are converted to the layout that a step needs and are changed in place where no later
step reads them (:mod:`embertide.primitives.tensors`). The features are read on the ranks that
loaded them.
"""

from __future__ import annotations

import torch

from embertide.context import RunContext
from embertide.grid import RowRanges
from embertide.layouts import Loaded, Shard
from embertide.models.fuse import Run, runs
from embertide.models.program import EdgeStep, Program
from embertide.primitives.tensors import Tensors
from embertide.stages.infer.aggregate import run_aggregate
from embertide.stages.infer.edges import run_edge_step
from embertide.stages.infer.execution import Execution, Graphs
from embertide.stages.infer.nodes import run_linear, run_node_step
from embertide.stages.infer.work import LayerWork
from embertide.telemetry.clock import Clock

__all__ = ["Graphs", "infer"]


def infer(
    ctx: RunContext,
    program: Program,
    ranges: RowRanges,
    graphs: Graphs,
    loaded: Loaded,
    locations: torch.Tensor,
    clock: Clock,
) -> torch.Tensor:
    """Compute the embeddings of our sub-range. Collective: every rank must call.

    Args:
        loaded: the feature rows we read.
        locations: [N/(P*M), 2] rank that loaded the features of each node of our sub-range, and
            the row there.
        clock: told when a layer begins and ends.

    Returns:
        [N/(P*M), D'] float32 in the ``rows`` layout.
    """
    batch_bytes = ctx.job.spec.inference.group_bytes
    execution = Execution(
        ctx=ctx,
        program=program,
        ranges=ranges,
        graphs=graphs,
        tensors=Tensors(ctx.exchange, program, ranges, loaded, batch_bytes=batch_bytes),
        locations=locations,
    )
    with torch.inference_mode():
        return _run(execution, clock)


def _run(execution: Execution, clock: Clock) -> torch.Tensor:
    """Every run of steps in order, then the output in the ``rows`` layout."""
    ctx, program, tensors = execution.ctx, execution.program, execution.tensors
    done, planned, steps = 0, runs(program), len(program.steps)
    work = LayerWork(execution, planned)
    for run in planned:
        before, done = done, done + len(run.steps)
        with clock.layer(run.steps[-1].layer):
            work.begins(run, before / steps, done / steps)
            tensors.advance(done - 1)
            tensors.keep(run.out, _run_steps(execution, run))
        work.done(run)
    ctx.progress("infer", 1.0, program.layers, program.layers)
    with clock.layer(program.layers):
        tensors.advance(steps)
        last = ctx.exchange.channel("feature", "gemm", program.layers - 1)
        return tensors.get(program.output, "rows", last).data


def _run_steps(execution: Execution, run: Run) -> Shard:
    if run.aggregate is not None:
        return run_aggregate(execution, run, run.aggregate)
    if run.linear is not None:
        return run_linear(execution, run, run.linear)
    (step,) = run.steps
    if isinstance(step, EdgeStep):
        return run_edge_step(execution, step)
    return run_node_step(execution, step)
