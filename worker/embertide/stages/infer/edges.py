"""Steps over edges: sums and maxima of neighbours, and attention.

Results are in the ``tile`` layout. The functions here exchange tensors; each is collective: every
rank must call.
"""

from __future__ import annotations

import torch

from embertide.kernels.attention import row_softmax_
from embertide.kernels.heads import PairScore
from embertide.layouts import Shard
from embertide.models.program import Aggregate, Attend, EdgeStep, PairAttend
from embertide.primitives import attention
from embertide.primitives.directory import look_up
from embertide.primitives.graph import LayerGraph
from embertide.primitives.landing import LoadedHolders, loaded_operand
from embertide.primitives.spmm import spmm, tile_operand
from embertide.stages.infer.execution import Execution


def run_edge_step(execution: Execution, step: EdgeStep) -> Shard:
    """Our shard of the result of a step over edges. Collective: every rank must call."""
    graph = execution.graphs(step.layer).variant(step)
    match step:
        case Aggregate():
            return _aggregate(execution, step, graph)
        case Attend():
            return _attend(execution, step, graph)
        case PairAttend():
            return _pair_attend(execution, step, graph)
        case _:
            raise AssertionError(f"no such step: {step}")


def _aggregate(execution: Execution, step: Aggregate, graph: LayerGraph) -> Shard:
    weighted = step.edge_weight and graph.csr.weights is not None
    source, target = _norms(step, graph, weighted)
    if execution.tensors.is_loaded(step.x):
        out = _aggregate_loaded(execution, step, graph, source, weighted=weighted)
    else:
        x = execution.tensors.get(step.x, "tile", execution.channel(step))
        out = spmm(
            execution.channel(step, "graph", "spmm"),
            graph.tiles(),
            tile_operand(x.data, source),
            depth=execution.depth,
            reduce=step.reduce,
            weighted=weighted,
        )
    if target is not None:
        out *= target.unsqueeze(1)
    return Shard("tile", out, execution.program.widths[step.x])


def _aggregate_loaded(
    execution: Execution,
    step: Aggregate,
    graph: LayerGraph,
    source: torch.Tensor | None,
    *,
    weighted: bool,
) -> torch.Tensor:
    """Aggregate features from the ranks that loaded them. Collective: every rank must call.

    Args:
        source: [N/P] factors of our rows as sources, or None.
    """
    channel, ranges = execution.channel(step, "world", "features"), execution.ranges
    loaded = execution.tensors.loaded
    scale = None
    if source is not None:
        mine = source[slice(*ranges.within(execution.grid.rank))].cpu()
        scale = look_up(channel, ranges, mine, loaded.ids).to(channel.device)
    needed = torch.unique(graph.csr.cols).to(torch.int64)
    locations = look_up(channel, ranges, execution.locations, needed)
    holders = LoadedHolders(channel.axis, needed, rank=locations[:, 0], row=locations[:, 1])
    return spmm(
        channel,
        graph.loaded(holders),
        loaded_operand(execution.grid, loaded, scale),
        depth=execution.depth,
        reduce=step.reduce,
        weighted=weighted,
    )


def _norms(
    step: Aggregate, graph: LayerGraph, weighted: bool
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Factors of our rows as sources and as targets, [N/P] each.

    Collective where the norm needs out-degrees: every rank of the graph axis must call.
    """
    if step.norm == "none":
        return None, None
    if step.norm == "sym_in_weighted":
        degree = graph.weighted_in_degree() if weighted else graph.in_degree()
        factor = degree.rsqrt()
        factor.masked_fill_(torch.isinf(factor), 0.0)
        return factor, factor
    if step.norm == "sym_in":
        factor = graph.in_degree().clamp_(min=1).rsqrt_()
        return factor, factor
    if step.norm == "in":
        return None, graph.in_degree().clamp_(min=1).reciprocal_()
    out_degree = graph.out_degree().clamp(min=1)
    if step.norm == "out":
        return out_degree.reciprocal(), None
    return out_degree.rsqrt(), graph.in_degree().clamp_(min=1).rsqrt_()


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
