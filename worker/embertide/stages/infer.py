"""The layers: a plan's steps lowered to the distributed primitives.

The executor walks the plan once. A tensor is freed after its last use, converted between
``tile`` and ``rows`` when a step needs the other layout, and changed in place where nobody
needs it any more. The features are read where they were loaded.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from embertide.context import RunContext
from embertide.grid import ColumnSlices, RowRanges
from embertide.kernels import nodewise
from embertide.layouts import Layout, Loaded, Shard
from embertide.metrics import Label
from embertide.models import plan as steps
from embertide.models.plan import Plan, Step
from embertide.primitives import attention
from embertide.primitives.directory import look_up
from embertide.primitives.gemm import gather_rows, linear, ring_gemm, rows_to_tile, tile_to_rows
from embertide.primitives.graph import LayerGraph
from embertide.primitives.landing import LoadedHolders, land, loaded_operand
from embertide.primitives.spmm import spmm, tile_operand

ROWS_STEPS = (steps.Linear, steps.HeadDot, steps.LayerNorm, steps.RowNormalize, steps.HeadMean)
"""Steps that need all columns of a row."""

Graphs = Callable[[int], LayerGraph]
"""Layer -> its graph; asked in ascending order by every worker."""


def infer(
    ctx: RunContext,
    plan: Plan,
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
        return _Executor(ctx, plan, ranges, graphs, loaded, place).run()


class _Executor:
    """State of one walk over the plan: the tensors that are alive, by name and layout."""

    def __init__(
        self,
        ctx: RunContext,
        plan: Plan,
        ranges: RowRanges,
        graphs: Graphs,
        loaded: Loaded,
        place: torch.Tensor,
    ) -> None:
        self.ctx, self.plan, self.ranges, self.graphs = ctx, plan, ranges, graphs
        self.exchange, self.grid = ctx.exchange, ctx.grid
        self.depth = ctx.job.spec.inference.depth
        self.loaded = loaded
        self.place = place
        self.params = {name: value.to(ctx.device) for name, value in plan.params.items()}
        self.alive: dict[str, dict[Layout, Shard]] = {}
        self.last_use = {name: at for at, step in enumerate(plan.steps) for name in step.reads()}
        self.last_use[plan.output] = len(plan.steps)
        self.at = 0

    def run(self) -> torch.Tensor:
        """Every step in order, then the output in the ``rows`` layout."""
        for at, step in enumerate(self.plan.steps):
            self.at = at
            handler = getattr(self, f"_{type(step).__name__.lower()}")
            result = handler(step)
            self._free()
            self.alive[step.out] = {result.layout: result}
            del result
            done = (self.at + 1) / len(self.plan.steps)
            self.ctx.progress("infer", done, step.layer + 1, self.plan.layers)
        self.at = len(self.plan.steps)
        return self._get(self.plan.output, "rows", Label("feature", "gemm", self.plan.layers)).data

    def _label(self, step: Step, axis: str, primitive: str) -> Label:
        return Label(axis, primitive, step.layer)

    # -- tensors -------------------------------------------------------------------------

    def _free(self) -> None:
        """Drop what no later step reads."""
        for name in [n for n in self.alive if self.last_use.get(n, -1) <= self.at]:
            del self.alive[name]
        if self.last_use.get(self.plan.input, -1) <= self.at:
            self.loaded.release()

    def _dies(self, name: str) -> bool:
        """No step after this one reads the tensor."""
        return self.last_use[name] <= self.at

    def _get(self, name: str, layout: Layout, label: Label) -> Shard:
        """The tensor in a layout, converting once; the input lands where it is needed."""
        if name == self.plan.input and name not in self.alive:
            self.alive[name] = {layout: self._land(layout, label)}
            return self.alive[name][layout]
        shards = self.alive[name]
        if layout not in shards:
            (given,) = shards.values()
            if layout == "rows":
                data = tile_to_rows(self.exchange, label, self.ranges, given.data, given.width)
            else:
                data = rows_to_tile(self.exchange, label, self.ranges, given.data)
            if self._dies(name):
                shards.clear()
            shards[layout] = Shard(layout, data, given.width)
        return shards[layout]

    def _any(self, name: str, step: Step) -> Shard:
        """The tensor in the layout it has; the input lands as rows."""
        if name in self.alive:
            return next(iter(self.alive[name].values()))
        return self._get(name, "rows", self._label(step, "world", "features"))

    def _land(self, layout: Layout, label: Label) -> Shard:
        """The features as they are, in their place."""
        width = self.plan.input_width
        return land(
            self.exchange, Label("world", "features", label.layer), self.ranges, self.loaded,
            layout, width, lambda batch: batch, batch_rows=self._batch_rows(width),
        )  # fmt: skip

    def _batch_rows(self, width: int) -> int:
        """Loaded rows handled at a time, from the size of a group."""
        wide = max(width, self.plan.input_width)
        return max(1, self.ctx.job.spec.inference.group_bytes // (4 * wide))

    def _is_loaded(self, name: str) -> bool:
        return name == self.plan.input and name not in self.alive

    def _columns(self, param: str | None, shard: Shard) -> torch.Tensor | None:
        """A per-column parameter, cut to the shard's columns."""
        if param is None:
            return None
        if shard.layout == "rows":
            return self.params[param]
        start, stop = ColumnSlices(shard.width, self.grid.feature).bounds(self.grid.m)
        return self.params[param][start:stop]

    def _wants_rows(self, name: str) -> bool:
        """A step that reads the tensor needs whole rows (or it is the output)."""
        if name == self.plan.output:
            return True
        readers = [step for step in self.plan.steps if name in step.reads()]
        return any(
            isinstance(step, ROWS_STEPS)
            or (isinstance(step, steps.PairAttend) and name in (step.key, step.query))
            for step in readers
        )

    # -- node-wise steps -----------------------------------------------------------------

    def _linear(self, step: steps.Linear) -> Shard:
        weight = self.params[step.weight]
        bias = None if step.bias is None else self.params[step.bias]
        width = len(weight)
        if self._is_loaded(step.x):
            layout: Layout = "rows" if self._wants_rows(step.out) else "tile"
            return land(
                self.exchange, self._label(step, "world", "features"), self.ranges, self.loaded,
                layout, width, lambda batch: linear(batch, weight, bias),
                batch_rows=self._batch_rows(width),
            )  # fmt: skip
        shards = self.alive[step.x]
        label = self._label(step, "feature", "gemm")
        if "rows" in shards or self.grid.feature == 1:
            data = linear(self._get(step.x, "rows", label).data, weight, bias)
        else:
            tile = shards["tile"].data
            data = ring_gemm(self.exchange, label, self.ranges, tile, weight, bias)
        return Shard("rows", data, width)

    def _headdot(self, step: steps.HeadDot) -> Shard:
        x = self._get(step.x, "rows", self._label(step, "feature", "gemm"))
        vector = self.params[step.vector].reshape(step.heads, -1)
        return Shard("rows", nodewise.head_dot(x.data, vector), step.heads)

    def _headmean(self, step: steps.HeadMean) -> Shard:
        x = self._get(step.x, "rows", self._label(step, "feature", "gemm"))
        data = x.data.reshape(len(x.data), step.heads, -1).mean(1)
        return Shard("rows", data, x.width // step.heads)

    def _layernorm(self, step: steps.LayerNorm) -> Shard:
        x = self._get(step.x, "rows", self._label(step, "feature", "gemm"))
        scale, shift = self._columns(step.scale, x), self._columns(step.shift, x)
        data = torch.nn.functional.layer_norm(x.data, (x.width,), scale, shift, step.eps)
        return Shard("rows", data, x.width)

    def _rownormalize(self, step: steps.RowNormalize) -> Shard:
        x = self._get(step.x, "rows", self._label(step, "feature", "gemm"))
        data = torch.nn.functional.normalize(x.data, dim=1, eps=step.eps)
        return Shard("rows", data, x.width)

    def _affine(self, step: steps.Affine) -> Shard:
        x = self._any(step.x, step)
        data = x.data if self._dies(step.x) else x.data.clone()
        return Shard(
            x.layout,
            nodewise.affine_(data, self._columns(step.scale, x), self._columns(step.shift, x)),
            x.width,
        )

    def _activation(self, step: steps.Activation) -> Shard:
        x = self._any(step.x, step)
        data = x.data if self._dies(step.x) else x.data.clone()
        weight = self.params[step.weight] if step.weight is not None else None
        if weight is not None and weight.numel() > 1:
            weight = self._columns(step.weight, x)
        return Shard(x.layout, nodewise.activate_(data, step.kind, step.slope, weight), x.width)

    def _combine(self, step: steps.Combine) -> Shard:
        """In the layout of whichever is a tile already, if both are; else in rows."""
        label = self._label(step, "feature", "gemm")
        both = all(n in self.alive and "tile" in self.alive[n] for n in (step.a, step.b))
        layout: Layout = "tile" if both or self.grid.feature == 1 else "rows"
        a, b = self._get(step.a, layout, label), self._get(step.b, layout, label)
        fresh = self._dies(step.b) and step.a != step.b
        data = b.data if fresh else b.data.clone()
        if step.beta != 1.0:
            data.mul_(step.beta)
        return Shard(layout, data.add_(a.data, alpha=step.alpha), a.width)

    def _dividebydegree(self, step: steps.DivideByDegree) -> Shard:
        x = self._any(step.x, step)
        degree = self.graphs(step.layer).in_degree()
        if x.layout == "rows":
            degree = degree[slice(*self.ranges.within(self.grid.rank))]
        data = x.data if self._dies(step.x) else x.data.clone()
        return Shard(x.layout, data.div_((degree + step.add).clamp_(min=1).unsqueeze(1)), x.width)

    # -- steps over edges ----------------------------------------------------------------

    def _aggregate(self, step: steps.Aggregate) -> Shard:
        graph = self.graphs(step.layer)
        graph = graph.variant(step.loops, step.loop_weight, weighted=step.edge_weight)
        weighted = step.edge_weight and graph.csr.weights is not None
        source, target = _norms(step, graph, weighted)
        if self._is_loaded(step.x):
            out = self._aggregate_loaded(step, graph, source, weighted)
        else:
            x = self._get(step.x, "tile", self._label(step, "feature", "gemm"))
            out = spmm(
                self.exchange, self._label(step, "graph", "spmm"), graph.tiles(),
                tile_operand(x.data, source), depth=self.depth, reduce=step.reduce,
                weighted=weighted,
            )  # fmt: skip
        if target is not None:
            out *= target.unsqueeze(1)
        return Shard("tile", out, self.plan.widths[step.x])

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
            ids = self.loaded.ids
            scale = look_up(self.exchange, label, self.ranges, mine, ids).to(self.ctx.device)
        needed = torch.unique(graph.csr.cols).to(torch.int64)
        place = look_up(self.exchange, label, self.ranges, self.place, needed)
        holders = LoadedHolders(self.grid.world_axis, needed, place[:, 0], place[:, 1])
        operand = loaded_operand(self.exchange, self.loaded, scale)
        return spmm(
            self.exchange, label, graph.loaded(holders), operand, depth=self.depth,
            reduce=step.reduce, weighted=weighted,
        )  # fmt: skip

    def _attend(self, step: steps.Attend) -> Shard:
        graph = self.graphs(step.layer).variant(step.loops, 1.0, weighted=step.edge_weight)
        label = self._label(step, "feature", "scalars")
        ends = [self._get(n, "rows", label).data for n in (step.source, step.target)]
        source, target = (gather_rows(self.exchange, label, end) for end in ends)
        x = self._get(step.x, "tile", self._label(step, "feature", "gemm"))
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
        label = self._label(step, "feature", "gemm")
        key = self._get(step.key, "rows", label).data
        query = self._get(step.query, "rows", label).data
        scores = attention.sddmm(
            self.exchange, self._label(step, "world", "sddmm"), graph.pairs(), key, query,
            self._pair_score(step), heads=step.heads, depth=self.depth,
        )  # fmt: skip
        lengths = graph.sub_range().indptr.diff().to(self.ctx.device)
        shares = attention.row_softmax(scores, lengths)
        del key, query, scores
        shares = gather_rows(self.exchange, self._label(step, "feature", "sddmm"), shares)
        x = self._get(step.x, "tile", label)
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
        vector = self.params[step.vector].reshape(step.heads, -1)

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
    if step.norm == "in":
        return None, graph.in_degree().clamp_(min=1).reciprocal_()
    out_degree = graph.out_degree().clamp(min=1)
    if step.norm == "out":
        return out_degree.reciprocal(), None
    return out_degree.rsqrt(), graph.in_degree().clamp_(min=1).rsqrt_()
