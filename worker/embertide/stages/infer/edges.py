"""Steps over edges that weigh each edge by attention.

Results are in the ``tile`` layout. The functions here exchange tensors; each is collective: every
rank must call.
"""

from __future__ import annotations

import torch

from embertide.kernels.attention import row_softmax_
from embertide.kernels.heads import PairScore
from embertide.layouts import Shard
from embertide.models.program import Attend, EdgeStep, PairAttend
from embertide.primitives import attention
from embertide.primitives.graph import LayerGraph
from embertide.stages.infer.execution import Execution


def run_edge_step(execution: Execution, step: EdgeStep) -> Shard:
    """Our shard of the result of a step over edges. Collective: every rank must call."""
    graph = execution.graphs(step.layer).variant(step)
    match step:
        case Attend():
            return _attend(execution, step, graph)
        case PairAttend():
            return _pair_attend(execution, step, graph)
        case _:
            raise AssertionError(f"no such step: {step}")


def _attend(execution: Execution, step: Attend, graph: LayerGraph) -> Shard:
    width = execution.program.widths[step.x]
    scalars = execution.channel(step, "feature", "scalars")
    ends = [execution.tensors.get(n, "rows", scalars).data for n in (step.source, step.target)]
    source, target = (attention.scatter_heads(scalars, end, width) for end in ends)
    x = execution.tensors.get(step.x, "tile", execution.channel(step))
    fetched = attention.fetch_scalars(
        execution.channel(step, "graph", "scalars"), graph.tiles(), source, execution.depth
    )
    out = attention.attend(
        execution.channel(step, "graph", "spmm"),
        graph.tiles(),
        x.data,
        fetched,
        target,
        heads=attention.head_columns(execution.grid, step.heads, width, execution.grid.m),
        slope=step.negative_slope,
        depth=execution.depth,
        weighted=step.edge_weight,
    )
    return Shard("tile", out, width)


def _pair_attend(execution: Execution, step: PairAttend, graph: LayerGraph) -> Shard:
    width = execution.program.widths[step.x]
    key, query = execution.rows(step.key, step), execution.rows(step.query, step)
    score = _pair_score(execution, step)
    if execution.grid.world == 1:
        x = execution.rows(step.x, step)
        sources, weighted = graph.tiles(), step.edge_weight
        out = attention.attend_pairs(sources, x, key, query, score, weighted=weighted)
        return Shard("tile", out, width)
    shares = _pair_shares(execution, step, graph, key, query, score)
    shares = attention.scatter_heads(execution.channel(step, "feature", "sddmm"), shares, width)
    x = execution.tensors.get(step.x, "tile", execution.channel(step)).data
    out = attention.weigh(
        execution.channel(step, "graph", "spmm"),
        graph.tiles(),
        x,
        shares,
        heads=attention.head_columns(execution.grid, step.heads, width, execution.grid.m),
        depth=execution.depth,
        weighted=step.edge_weight,
    )
    return Shard("tile", out, width)


def _pair_shares(
    execution: Execution,
    step: PairAttend,
    graph: LayerGraph,
    key: torch.Tensor,
    query: torch.Tensor,
    score: PairScore,
) -> torch.Tensor:
    """[nnz of our sub-range, H] softmax of the pair scores over each row's non-zeros."""
    channel = execution.channel(step, "world", "sddmm")
    scores = attention.sddmm(channel, graph.pairs(), key, query, score, depth=execution.depth)
    return row_softmax_(scores, graph.sub_range().indptr)


def _pair_score(execution: Execution, step: PairAttend) -> PairScore:
    """How a step's scores follow from keys and queries."""
    vector = None
    if step.vector is not None:
        vector = execution.param(step.vector).reshape(step.heads, -1)
    return PairScore(
        kind=step.kind,
        heads=step.heads,
        vector=vector,
        slope=step.negative_slope,
        scale=step.scale,
    )
