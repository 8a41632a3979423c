"""The layers: a program's steps, in order, lowered to the distributed primitives.

Tensors are converted to the layout that a step needs and are changed in place where no later
step reads them (:mod:`embertide.steps.tensors`). The features are read on the ranks that
loaded them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from embertide.context import RunContext
from embertide.grid import RowRanges
from embertide.layouts import ROW_TYPES, Loaded
from embertide.models.whole_rows import in_order_of_one
from embertide.primitives.merging import Merging
from embertide.stages.infer.whole_rows import GridCount, graphs_by_rows, moves_of_grid
from embertide.stages.infer.work import LayerWork
from embertide.steps.execution import Execution, Graphs
from embertide.steps.fuse import runs
from embertide.steps.program import Program
from embertide.steps.tensors import Tensors
from embertide.telemetry.clock import Clock

__all__ = ["Graphs", "infer"]


def infer(
    ctx: RunContext,
    program: Program,
    ranges: dict[str, RowRanges],
    graphs: Graphs,
    loaded: dict[str, Loaded],
    locations: dict[str, torch.Tensor],
    clock: Clock,
    make_room: Callable[[], None] = lambda: None,
) -> dict[str, torch.Tensor]:
    """Compute the embeddings of our sub-ranges. Collective: every rank must call.

    Args:
        program: its node types are the keys of what follows.
        ranges: which worker owns which nodes.
        loaded: the feature rows we read.
        locations: [N/(P*M), 2] rank that loaded the features of each node of our sub-range, and
            the row there.
        clock: told when a layer begins and ends.
        make_room: gives back idle pages that the layers' tensors would not fill.

    Returns:
        node type -> [N/(P*M), D'] float32 in the ``rows`` layout.
    """
    options = ctx.job.spec.inference
    # On a GPU a wait returns at once, so there is nothing to time.
    timed = ctx.device.type == "cpu"
    ctx.exchange.merging = Merging(options.groups_per_message if timed else 1)
    exchange, sampled, row_type = ctx.exchange, options.fanout != "full", ROW_TYPES[options.rows]
    moves = None if sampled else moves_of_grid(exchange, program, ranges, row_type)
    if moves is not None:
        sliced, given = exchange, (program, ranges, graphs, loaded, locations)
        exchange = exchange.whole_rows()
        ranges = {name: of_type.whole_rows() for name, of_type in ranges.items()}
        graphs = graphs_by_rows(program, graphs, exchange)
        GridCount(sliced, *given, options.group_bytes, row_type.itemsize).count(moves)
        make_room()
        program = in_order_of_one(program)
    execution = Execution(
        exchange=exchange,
        program=program,
        ranges=ranges,
        graphs=graphs,
        tensors=Tensors(
            exchange,
            program,
            ranges,
            loaded,
            locations,
            batch_bytes=options.group_bytes,
            row_type=row_type,
        ),
        locations=locations,
        depth=options.depth,
        row_type=row_type,
        sampled=sampled,
    )
    with torch.inference_mode():
        return _run(ctx, execution, clock)


def _run(ctx: RunContext, execution: Execution, clock: Clock) -> dict[str, torch.Tensor]:
    """Every run of steps in order, then the results in the ``rows`` layout."""
    program, tensors = execution.program, execution.tensors
    done, planned, steps = 0, runs(program), len(program.steps)
    work = LayerWork(ctx, execution, planned)
    for run in planned:
        before, done = done, done + len(run.steps)
        with clock.layer(run.steps[-1].layer):
            work.begins(run, before / steps, done / steps)
            tensors.advance(done - 1)
            tensors.keep(run.out, run.lower(execution))
        work.done(run)
    ctx.progress("infer", 1.0, program.layers, program.layers)
    with clock.layer(program.layers):
        tensors.advance(steps)
        last = execution.channel(program.layers - 1)
        return {
            of_type: tensors.get(name, "rows", last).data
            for of_type, name in program.results.items()
        }
