"""Steps over edges: sums and maxima of neighbours, and attention.

Results are in the ``tile`` layout. The functions here exchange tensors; each is collective: every
rank must call.
"""

from __future__ import annotations

import torch

from embertide.grid import ColumnSlices
from embertide.kernels import nodewise
from embertide.layouts import Shard
from embertide.models.program import Aggregate, Attend, EdgeStep, PairAttend
from embertide.primitives import attention
from embertide.primitives.directory import look_up
from embertide.primitives.gemm import gather_rows
from embertide.primitives.graph import LayerGraph
from embertide.primitives.landing import loaded_operand
from embertide.primitives.sources import LoadedHolders
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
    holders = LoadedHolders(
        channel.axis, lambda nodes: look_up(channel, ranges, execution.locations, nodes)
    )
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
    scalars = execution.channel(step, "feature", "scalars")
    ends = [execution.tensors.get(n, "rows", scalars).data for n in (step.source, step.target)]
    source, target = (gather_rows(scalars, end) for end in ends)
    x = execution.tensors.get(step.x, "tile", execution.channel(step))
    sources = graph.tiles()
    fetched = attention.fetch_scalars(
        execution.channel(step, "graph", "scalars"), sources, source, execution.depth
    )
    scores = attention.AdditiveScores(sources, fetched, target, step.negative_slope)
    out = _weigh(execution, step, graph, x, scores)
    bounds = ColumnSlices(x.width, execution.grid.feature).bounds(execution.grid.m)
    spans = attention.head_spans(step.heads, x.width, *bounds)
    attention.divide_heads(out, scores.total, spans)
    return Shard("tile", out, x.width)


def _pair_attend(execution: Execution, step: PairAttend, graph: LayerGraph) -> Shard:
    shares = _pair_shares(execution, step, graph)
    shares = gather_rows(execution.channel(step, "feature", "sddmm"), shares)
    x = execution.tensors.get(step.x, "tile", execution.channel(step))
    out = _weigh(execution, step, graph, x, lambda chunk: shares[chunk.edges])
    return Shard("tile", out, x.width)


def _weigh(
    execution: Execution,
    step: Attend | PairAttend,
    graph: LayerGraph,
    x: Shard,
    scores: attention.ChunkScores,
) -> torch.Tensor:
    """[N/P, H*F/M] sum over in-edges of scores times values."""
    return attention.attend(
        execution.channel(step, "graph", "spmm"),
        graph.tiles(),
        x.data,
        scores,
        heads=step.heads,
        width=x.width,
        depth=execution.depth,
        weighted=step.edge_weight,
    )


def _pair_shares(execution: Execution, step: PairAttend, graph: LayerGraph) -> torch.Tensor:
    """[nnz of our sub-range, H] softmax of the pair scores over each row's non-zeros."""
    key, query = execution.rows(step.key, step), execution.rows(step.query, step)
    scores = attention.sddmm(
        execution.channel(step, "world", "sddmm"),
        graph.pairs(),
        key,
        query,
        _pair_score(execution, step),
        heads=step.heads,
        depth=execution.depth,
    )
    lengths = graph.sub_range().indptr.diff().to(execution.ctx.device)
    return attention.row_softmax(scores, lengths)


def _pair_score(execution: Execution, step: PairAttend) -> attention.PairScore:
    """[e, H*F] keys and queries -> [e, H] scores."""
    if step.kind == "dot":
        return lambda key, query: nodewise.pair_dot(key, query, step.heads).mul_(step.scale)
    assert step.vector is not None
    vector = execution.param(step.vector).reshape(step.heads, -1)

    def score(key: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        both = torch.nn.functional.leaky_relu_(key.add_(query), step.negative_slope)
        return nodewise.head_dot(both, vector)

    return score
