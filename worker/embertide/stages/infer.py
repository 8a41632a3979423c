"""The layers: a program's steps lowered to the distributed primitives.

The executor walks the program once. Tensors come in the layout that a step needs and are changed
in place where nobody reads them any more (:mod:`embertide.primitives.tensors`). The features
are read where they were loaded.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from embertide.context import RunContext
from embertide.grid import ColumnSlices, RowRanges
from embertide.kernels import nodewise
from embertide.layouts import Layout, Loaded, Shard
from embertide.models import program as steps
from embertide.models.program import Program, Step
from embertide.primitives import attention
from embertide.primitives.directory import look_up
from embertide.primitives.gemm import gather_rows, linear, ring_gemm
from embertide.primitives.graph import LayerGraph
from embertide.primitives.landing import LoadedHolders, loaded_operand
from embertide.primitives.spmm import spmm, tile_operand
from embertide.primitives.tensors import Tensors
from embertide.telemetry.recorder import Label

Graphs = Callable[[int], LayerGraph]
"""Layer -> its graph; asked in ascending order by every worker."""


def infer(
    ctx: RunContext,
    program: Program,
    ranges: RowRanges,
    graphs: Graphs,
    loaded: Loaded,
    place: torch.Tensor,
) -> torch.Tensor:
    """Compute the embeddings of our sub-range. Every worker must call.

    Args:
        loaded: the feature rows we read.
        place: [N/(P*M), 2] loader and row of our sub-range's features.

    Returns:
        [N/(P*M), D'] float32 in the ``rows`` layout.
    """
    with torch.inference_mode():
        return _Executor(ctx, program, ranges, graphs, loaded, place).run()


class _Executor:
    """One walk over the program; each kind of step has a method of its name."""

    def __init__(
        self,
        ctx: RunContext,
        program: Program,
        ranges: RowRanges,
        graphs: Graphs,
        loaded: Loaded,
        place: torch.Tensor,
    ) -> None:
        self.ctx, self.program, self.ranges, self.graphs = ctx, program, ranges, graphs
        self.exchange, self.grid = ctx.exchange, ctx.grid
        inference = ctx.job.spec.inference
        self.depth = inference.depth
        self.tensors = Tensors(ctx.exchange, program, ranges, loaded, inference.group_bytes)
        self.place = place

    def run(self) -> torch.Tensor:
        """Every step in order, then the output in the ``rows`` layout."""
        for at, step in enumerate(self.program.steps):
            self.tensors.advance(at)
            self.tensors.keep(step.out, getattr(self, f"_{type(step).__name__.lower()}")(step))
            done = (at + 1) / len(self.program.steps)
            self.ctx.progress("infer", done, step.layer + 1, self.program.layers)
        self.tensors.advance(len(self.program.steps))
        last = Label("feature", "gemm", self.program.layers)
        return self.tensors.get(self.program.output, "rows", last).data

    def _label(self, step: Step, axis: str = "feature", primitive: str = "gemm") -> Label:
        return Label(axis, primitive, step.layer)

    # -- node-wise steps -----------------------------------------------------------------

    def _linear(self, step: steps.Linear) -> Shard:
        weight, bias = self._param(step.weight), self.tensors.param(step.bias)
        width = len(weight)
        if self.tensors.is_loaded(step.x):
            label = self._label(step, "world", "features")
            layout: Layout = "rows" if self.tensors.wants_rows(step.out) else "tile"
            return self.tensors.land(label, layout, width, lambda x: linear(x, weight, bias))
        label = self._label(step)
        if self.tensors.has(step.x, "rows") or self.grid.feature == 1:
            data = linear(self.tensors.get(step.x, "rows", label).data, weight, bias)
        else:
            tile = self.tensors.get(step.x, "tile", label).data
            data = ring_gemm(self.exchange, label, self.ranges, tile, weight, bias)
        return Shard("rows", data, width)

    def _param(self, name: str) -> torch.Tensor:
        param = self.tensors.param(name)
        assert param is not None
        return param

    def _headdot(self, step: steps.HeadDot) -> Shard:
        x = self.tensors.get(step.x, "rows", self._label(step))
        vector = self._param(step.vector).reshape(step.heads, -1)
        return Shard("rows", nodewise.head_dot(x.data, vector), step.heads)

    def _headmean(self, step: steps.HeadMean) -> Shard:
        x = self.tensors.get(step.x, "rows", self._label(step))
        data = x.data.reshape(len(x.data), step.heads, -1).mean(1)
        return Shard("rows", data, x.width // step.heads)

    def _layernorm(self, step: steps.LayerNorm) -> Shard:
        x = self.tensors.get(step.x, "rows", self._label(step))
        scale, shift = self.tensors.param(step.scale), self.tensors.param(step.shift)
        data = torch.nn.functional.layer_norm(x.data, (x.width,), scale, shift, step.eps)
        return Shard("rows", data, x.width)

    def _rownormalize(self, step: steps.RowNormalize) -> Shard:
        x = self.tensors.get(step.x, "rows", self._label(step))
        data = torch.nn.functional.normalize(x.data, dim=1, eps=step.eps)
        return Shard("rows", data, x.width)

    def _affine(self, step: steps.Affine) -> Shard:
        x = self.tensors.own(step.x, self._label(step))
        scale, shift = self.tensors.columns(step.scale, x), self.tensors.columns(step.shift, x)
        return Shard(x.layout, nodewise.affine_(x.data, scale, shift), x.width)

    def _activation(self, step: steps.Activation) -> Shard:
        x = self.tensors.own(step.x, self._label(step))
        weight = self.tensors.param(step.weight)
        if weight is not None and weight.numel() > 1:
            weight = self.tensors.columns(step.weight, x)
        return Shard(x.layout, nodewise.activate_(x.data, step.kind, step.slope, weight), x.width)

    def _combine(self, step: steps.Combine) -> Shard:
        """In tiles if both are tiles already; else in rows."""
        label = self._label(step)
        tiles = all(self.tensors.has(name, "tile") for name in (step.a, step.b))
        layout: Layout = "tile" if tiles or self.grid.feature == 1 else "rows"
        a = self.tensors.get(step.a, layout, label)
        b = self.tensors.get(step.b, layout, label)
        fresh = self.tensors.dies(step.b) and step.a != step.b
        data = b.data if fresh else b.data.clone()
        if step.beta != 1.0:
            data.mul_(step.beta)
        return Shard(layout, data.add_(a.data, alpha=step.alpha), a.width)

    def _concat(self, step: steps.Concat) -> Shard:
        """In rows: columns of a tile are cut by the width of the whole, not of its parts."""
        label = self._label(step)
        parts = [self.tensors.get(name, "rows", label).data for name in step.parts]
        return Shard("rows", torch.cat(parts, dim=1), self.program.widths[step.out])

    def _maximum(self, step: steps.Maximum) -> Shard:
        """In tiles if all are tiles already; else in rows."""
        label = self._label(step)
        tiles = all(self.tensors.has(name, "tile") for name in step.parts)
        layout: Layout = "tile" if tiles else "rows"
        first, *others = (self.tensors.get(name, layout, label).data for name in step.parts)
        out = first.clone()
        for other in others:
            torch.maximum(out, other, out=out)
        return Shard(layout, out, self.program.widths[step.out])

    def _dividebydegree(self, step: steps.DivideByDegree) -> Shard:
        x = self.tensors.own(step.x, self._label(step))
        degree = self.graphs(step.layer).in_degree()
        if x.layout == "rows":
            degree = degree[slice(*self.ranges.within(self.grid.rank))]
        divisor = (degree + step.add).clamp_(min=1).unsqueeze(1)
        return Shard(x.layout, x.data.div_(divisor), x.width)

    # -- steps over edges ----------------------------------------------------------------

    def _aggregate(self, step: steps.Aggregate) -> Shard:
        graph = self.graphs(step.layer)
        graph = graph.variant(step.loops, step.loop_weight, weighted=step.edge_weight)
        weighted = step.edge_weight and graph.csr.weights is not None
        source, target = _norms(step, graph, weighted)
        if self.tensors.is_loaded(step.x):
            out = self._aggregate_loaded(step, graph, source, weighted)
        else:
            x = self.tensors.get(step.x, "tile", self._label(step))
            out = spmm(
                self.exchange, self._label(step, "graph", "spmm"), graph.tiles(),
                tile_operand(x.data, source), depth=self.depth, reduce=step.reduce,
                weighted=weighted,
            )  # fmt: skip
        if target is not None:
            out *= target.unsqueeze(1)
        return Shard("tile", out, self.program.widths[step.x])

    def _aggregate_loaded(
        self,
        step: steps.Aggregate,
        graph: LayerGraph,
        source: torch.Tensor | None,
        weighted: bool,
    ) -> torch.Tensor:
        """Aggregate features from where they were loaded."""
        label = self._label(step, "world", "features")
        scale = None
        if source is not None:
            mine = source[slice(*self.ranges.within(self.grid.rank))].cpu()
            ids = self.tensors.loaded.ids
            scale = look_up(self.exchange, label, self.ranges, mine, ids).to(self.ctx.device)
        needed = torch.unique(graph.csr.cols).to(torch.int64)
        place = look_up(self.exchange, label, self.ranges, self.place, needed)
        holders = LoadedHolders(self.grid.world_axis, needed, place[:, 0], place[:, 1])
        operand = loaded_operand(self.exchange, self.tensors.loaded, scale)
        return spmm(
            self.exchange, label, graph.loaded(holders), operand, depth=self.depth,
            reduce=step.reduce, weighted=weighted,
        )  # fmt: skip

    def _attend(self, step: steps.Attend) -> Shard:
        graph = self.graphs(step.layer).variant(step.loops, 1.0, weighted=step.edge_weight)
        label = self._label(step, "feature", "scalars")
        ends = [self.tensors.get(n, "rows", label).data for n in (step.source, step.target)]
        source, target = (gather_rows(self.exchange, label, end) for end in ends)
        x = self.tensors.get(step.x, "tile", self._label(step))
        sources = graph.tiles()
        scalars = attention.fetch_scalars(
            self.exchange, self._label(step, "graph", "scalars"), sources, source, self.depth
        )
        scores = attention.AdditiveScores(sources, scalars, target, step.negative_slope)
        out = attention.attend(
            self.exchange, self._label(step, "graph", "spmm"), sources, x.data, scores,
            heads=step.heads, width=x.width, depth=self.depth, weighted=step.edge_weight,
        )  # fmt: skip
        attention.divide_heads(out, scores.total, self._spans(step.heads, x.width))
        return Shard("tile", out, x.width)

    def _spans(self, heads: int, width: int) -> list[tuple[int, slice]]:
        bounds = ColumnSlices(width, self.grid.feature).bounds(self.grid.m)
        return attention.head_spans(heads, width, *bounds)

    def _pairattend(self, step: steps.PairAttend) -> Shard:
        graph = self.graphs(step.layer).variant(step.loops, 1.0, weighted=step.edge_weight)
        label = self._label(step)
        key = self.tensors.get(step.key, "rows", label).data
        query = self.tensors.get(step.query, "rows", label).data
        scores = attention.sddmm(
            self.exchange, self._label(step, "world", "sddmm"), graph.pairs(), key, query,
            self._pair_score(step), heads=step.heads, depth=self.depth,
        )  # fmt: skip
        lengths = graph.sub_range().indptr.diff().to(self.ctx.device)
        shares = attention.row_softmax(scores, lengths)
        del key, query, scores
        shares = gather_rows(self.exchange, self._label(step, "feature", "sddmm"), shares)
        x = self.tensors.get(step.x, "tile", label)
        out = attention.attend(
            self.exchange, self._label(step, "graph", "spmm"), graph.tiles(), x.data,
            lambda chunk: shares[chunk.edges], heads=step.heads, width=x.width,
            depth=self.depth, weighted=step.edge_weight,
        )  # fmt: skip
        return Shard("tile", out, x.width)

    def _pair_score(self, step: steps.PairAttend) -> attention.PairScore:
        """[e, H*F] keys and queries -> [e, H] scores."""
        if step.kind == "dot":
            return lambda key, query: nodewise.pair_dot(key, query, step.heads).mul_(step.scale)
        assert step.vector is not None
        vector = self._param(step.vector).reshape(step.heads, -1)

        def score(key: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
            both = torch.nn.functional.leaky_relu_(key.add_(query), step.negative_slope)
            return nodewise.head_dot(both, vector)

        return score


def _norms(
    step: steps.Aggregate, graph: LayerGraph, weighted: bool
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Factors of our rows as sources and as targets, [N/P] each."""
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
