"""Attention whose scores need both ends' features (GATv2, dot product)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch.nn import functional

from embertide.errors import ModelError
from embertide.footprint import FLOAT_BYTES, Size
from embertide.kernels.attention import row_softmax_
from embertide.kernels.heads import PairScore
from embertide.layouts import Layout, Shard
from embertide.primitives import attention
from embertide.primitives.graph import LayerGraph
from embertide.steps.base import EdgeStep, Param, Read
from embertide.steps.execution import Execution
from embertide.steps.moves import HeadScores, TileRows, WholeRows
from embertide.steps.reference import ReferenceRun
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk


@dataclass(frozen=True, kw_only=True)
class PairAttend(EdgeStep, kind="pair_attend"):
    """Attention whose score needs both ends' features, softmax over N(i), then the weighted sum.

    - ``gatv2``: s_ijh = sum_f params[vector][h,f] * leaky_relu(key[j,h,f] + query[i,h,f])
    - ``dot``:   s_ijh = scale * sum_f key[j,h,f] * query[i,h,f]

    ``x`` holds the values [N, H*F'] of the sources.
    """

    key: Read
    query: Read
    heads: int
    kind: Literal["gatv2", "dot"]
    vector: Param | None = None
    negative_slope: float = 0.2
    scale: float = 1.0

    pairs: ClassVar[bool] = True
    at_destination: ClassVar[tuple[str, ...]] = ("query",)

    def width(self, shapes: Shapes) -> int:
        """That of ``x``."""
        shapes.per_head(self.x, self.heads)
        shapes.per_head(self.key, self.heads)
        both = shapes.same([self.key, self.query])
        if (self.kind == "gatv2") != (self.vector is not None):
            has = "needs a" if self.vector is None else "takes no"
            raise ModelError(f"{self.kind} {has} vector")
        shapes.values(self.vector, both)
        return shapes.width(self.x)

    def reference(self, run: ReferenceRun) -> torch.Tensor:
        """Scores of every edge, softmax, weighted sum."""
        edges, values = run.edges(self.edges), run.heads(self.x, self.heads)
        key = run.heads(self.key, self.heads)[edges.src]
        query = run.heads(self.query, self.heads)[edges.dst]
        if self.vector is None:
            return edges.weigh(self.scale * (key * query).sum(2), values)
        vector = run.params[self.vector].reshape(self.heads, -1)
        lit = functional.leaky_relu(key + query, self.negative_slope)
        return edges.weigh((lit * vector).sum(2), values)

    # -- how it runs -------------------------------------------------------------------------

    def lower(self, execution: Execution) -> Shard:
        """A ``tile``. Collective: every rank must call."""
        graph, width = execution.graph(self.edges), execution.program.widths[self.x]
        key, query = (execution.rows(name, self.layer) for name in (self.key, self.query))
        score = self._score(execution)
        if execution.grid.world == 1:
            x = execution.rows(self.x, self.layer)
            sources, weighted = graph.tiles(), self.edge_weight
            out = attention.attend_pairs(sources, x, key, query, score, weighted=weighted)
            return Shard("tile", out, width)
        shares = self._shares(execution, graph, key, query, score)
        channel = execution.channel(self.layer, "feature", "sddmm", self.relation)
        shares = attention.scatter_heads(channel, shares, width)
        x = execution.tile(self.x, self.layer)
        out = attention.weigh(
            execution.channel(self.layer, "graph", "spmm", self.relation),
            graph.tiles(),
            x,
            shares,
            heads=attention.head_columns(execution.grid, self.heads, width, execution.grid.m),
            depth=execution.depth,
            weighted=self.edge_weight,
        )
        return Shard("tile", out, width)

    def _shares(
        self,
        execution: Execution,
        graph: LayerGraph,
        key: torch.Tensor,
        query: torch.Tensor,
        score: PairScore,
    ) -> torch.Tensor:
        """[nnz of our sub-range, H] softmax of the pair scores over each row's non-zeros."""
        channel = execution.channel(self.layer, "world", "sddmm", self.relation)
        depth = execution.depth
        scores = attention.sddmm(channel, graph.pairs(), key, query, score, depth=depth)
        return row_softmax_(scores, graph.sub_range().indptr)

    def _score(self, execution: Execution) -> PairScore:
        """How scores follow from keys and queries."""
        vector = None
        if self.vector is not None:
            vector = execution.param(self.vector).reshape(self.heads, -1)
        return PairScore(
            kind=self.kind,
            heads=self.heads,
            vector=vector,
            slope=self.negative_slope,
            scale=self.scale,
        )

    def wants_rows(self, name: str) -> bool:
        """Of both ends of the scores."""
        return name in (self.key, self.query)

    # -- what it costs -----------------------------------------------------------------------

    def walk(self, walk: Walk) -> Layout:
        """Scores of a sub-range's edges, exchanged before the result is there; then a sum."""
        size, width = walk.over(self.edges), walk.width(self.x)
        for name in (self.key, self.query):
            walk.get(name, "rows")
        walk.get(self.x, "rows" if size.workers == 1 else "tile")
        walk.build(self.edges)
        walk.moves.append(WholeRows(self.edges, walk.width(self.key)))
        walk.moves.append(HeadScores(self.edges, self.heads, "sddmm", of="edge"))
        walk.moves.append(TileRows(self.edges, width / size.feature))
        scores = 0.0
        if size.workers > 1:
            walk.need(_shared_bytes(self.heads, size))
            scores = FLOAT_BYTES * size.heads(self.heads) * size.edges / size.graph
        walk.need(walk.tensor(self.out) + scores + size.in_flight(width))
        return "tile"

    def values_per_edge(self, widths: dict[str, int]) -> float:
        """Scores read a row of both ends, and the softmax costs as much as the sum."""
        return 4.0 * widths[self.x]


def _shared_bytes(heads: int, size: Size) -> float:
    """Bytes of our sub-range's scores; where slices exchange them, of what is sent and received."""
    own = FLOAT_BYTES * heads * size.edges / size.workers
    if size.feature == 1:
        return own
    received = FLOAT_BYTES * size.heads(heads) * size.edges / size.graph
    return 2 * own + 2 * received
