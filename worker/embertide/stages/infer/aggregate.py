"""Sums and maxima of neighbours, with the product, bias and activation that follow them.

The functions here exchange tensors; each is collective: every rank must call.
"""

from __future__ import annotations

import torch

from embertide.kernels.spmm import NOTHING
from embertide.layouts import Shard
from embertide.models.fuse import Run
from embertide.models.program import Aggregate
from embertide.primitives.directory import look_up
from embertide.primitives.exchange import Channel
from embertide.primitives.gemm import linear, ring_gemm
from embertide.primitives.graph import LayerGraph
from embertide.primitives.landing import loaded_operand
from embertide.primitives.sources import LoadedHolders, Sources
from embertide.primitives.spmm import Operand, Reduction, spmm, spmm_linear, tile_operand
from embertide.stages.infer.execution import Execution
from embertide.stages.infer.norms import norms


def run_aggregate(execution: Execution, run: Run, step: Aggregate) -> Shard:
    """Our shard of the result of a run that starts with a sum or maximum over in-edges.

    A ``tile``; ``rows`` behind a product. Collective: every rank must call.
    """
    over, reduction = _over(execution, step)
    width, depth = execution.program.widths[run.out], execution.depth
    if run.linear is None:
        last = execution.scaling_epilogue(run, "tile")
        return Shard("tile", spmm(*over, reduction, last, depth=depth), width)
    last, weight = execution.scaling_epilogue(run, "rows"), execution.param(run.linear.weight)
    if execution.grid.world == 1:
        return Shard("rows", spmm_linear(*over, weight, reduction, last), width)
    sums = spmm(*over, reduction, NOTHING, depth=depth)
    # What was summed makes room for the product.
    del over
    execution.tensors.read(step.x)
    if execution.grid.feature == 1:
        return Shard("rows", linear(sums, weight, last), width)
    data = ring_gemm(execution.channel(run.linear), execution.ranges, sums, weight, last)
    return Shard("rows", data, width)


Over = tuple[Channel, Sources, Operand]
"""What a sum runs over."""


def _over(execution: Execution, step: Aggregate) -> tuple[Over, Reduction]:
    """What a step sums, and how. Collective: every rank must call."""
    graph = execution.graphs(step.layer).variant(step)
    weighted = step.edge_weight and graph.csr.weights is not None
    source, target = norms(step, graph)
    if step.x in execution.scaled:
        source = None
    reduction = Reduction(step.reduce, weighted, target)
    # One worker puts its rows in order instead: a pattern of its own would cost more than the copy.
    if execution.grid.world > 1 and execution.tensors.is_loaded(step.x):
        return _over_loaded(execution, step, graph, source), reduction
    x = execution.tensors.get(step.x, "tile", execution.channel(step)).data
    channel = execution.channel(step, "graph", "spmm")
    return (channel, graph.tiles(), tile_operand(x, source)), reduction


def _over_loaded(
    execution: Execution, step: Aggregate, graph: LayerGraph, source: torch.Tensor | None
) -> Over:
    """Features on the ranks that loaded them. Collective: every rank must call.

    Args:
        source: [N/P] factors of our rows as sources, or None.
    """
    channel, ranges = execution.channel(step, "world", "features"), execution.ranges
    loaded = execution.tensors.loaded
    scale = None
    if source is not None:
        mine = source[slice(*ranges.within(execution.grid.rank))].cpu()
        scale = look_up(channel, ranges, mine, loaded.ids).to(channel.device)
    holders = LoadedHolders(
        channel.axis, lambda nodes: look_up(channel, ranges, execution.locations, nodes).long()
    )
    operand = loaded_operand(execution.grid, loaded, scale)
    return channel, graph.loaded(holders), operand
