"""Attention whose scores need both ends' features (GATv2, dot product)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch.nn import functional

from embertide.errors import ModelError
from embertide.footprint import FLOAT_BYTES, Size
from embertide.kernels.attention import row_softmax_
from embertide.kernels.heads import HeadColumns, PairScore, RowSums
from embertide.layouts import Layout, Shard
from embertide.primitives import attention
from embertide.primitives.gemm import tile_to_rows
from embertide.steps.base import EdgeStep, Param, Read
from embertide.steps.execution import Execution
from embertide.steps.moves import Conversion, HeadScores, TileRows, WholeRows
from embertide.steps.reference import ReferenceRun
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk


@dataclass(frozen=True, kw_only=True)
class PairAttend(EdgeStep, kind="pair_attend"):
    """Attention whose score needs both ends' features, softmax over N(i), then the weighted sum.

    - ``gatv2``: s_ijh = sum_f params[vector][h,f] * leaky_relu(key[j,h,f] + query[i,h,f])
    - ``dot``:   s_ijh = scale * sum_f key[j,h,f] * query[i,h,f]

    ``x`` holds the values [N, H*F'] of the sources. With ``log_sum`` the result has H more
    columns, the logarithm of the row's sum of exp(score). ``before`` is such a result over other
    edges, with which these have one softmax together (HGT, Hu et al., eq. 3).
    """

    key: Read
    query: Read
    heads: int
    kind: Literal["gatv2", "dot"]
    vector: Param | None = None
    negative_slope: float = 0.2
    scale: float = 1.0
    before: Read | None = None
    log_sum: bool = False

    pairs: ClassVar[bool] = True
    at_destination: ClassVar[tuple[str, ...]] = ("query", "before")

    def width(self, shapes: Shapes) -> int:
        """That of ``x``, and one column for each head's logarithm."""
        shapes.per_head(self.x, self.heads)
        shapes.per_head(self.key, self.heads)
        both = shapes.same([self.key, self.query])
        if (self.kind == "gatv2") != (self.vector is not None):
            has = "needs a" if self.vector is None else "takes no"
            raise ModelError(f"{self.kind} {has} vector")
        shapes.values(self.vector, both)
        width = shapes.width(self.x)
        if self.before is not None and shapes.width(self.before) != width + self.heads:
            raise ModelError(
                f"before has {shapes.width(self.before)} columns, but the values have {width} and"
                f" {self.heads} heads: name the result of a step with log_sum over other edges"
            )
        return width + self.heads if self.log_sum else width

    def reference(self, run: ReferenceRun) -> torch.Tensor:
        """Scores of every edge, softmax, weighted sum."""
        edges, values = run.edges(self.edges), run.heads(self.x, self.heads)
        key = run.heads(self.key, self.heads)[edges.src]
        query = run.heads(self.query, self.heads)[edges.dst]
        if self.vector is None:
            scores = self.scale * (key * query).sum(2)
        else:
            vector = run.params[self.vector].reshape(self.heads, -1)
            scores = (functional.leaky_relu(key + query, self.negative_slope) * vector).sum(2)
        out, logs = edges.weigh(scores, values), edges.log_sums(scores)
        if self.before is not None:
            earlier = run.tensors[self.before]
            old, old_logs = earlier[:, : -self.heads], earlier[:, -self.heads :]
            both = torch.logaddexp(old_logs, logs)
            out = _scaled(out, (logs - both).exp()) + _scaled(old, (old_logs - both).exp())
            logs = both
        return torch.cat([out, logs], 1) if self.log_sum else out

    # -- how it runs -------------------------------------------------------------------------

    def lower(self, execution: Execution) -> Shard:
        """A ``tile``; ``rows`` where the softmax has parts. Collective: every rank must call."""
        if execution.grid.world == 1:
            return self._alone(execution)
        scores, indptr = self._scores(execution)
        if not self.in_parts:
            out = self._weigh(execution, row_softmax_(scores, indptr))
            return Shard("tile", out, execution.program.widths[self.x])
        logs = scores.new_empty(len(indptr) - 1, self.heads)
        shares = row_softmax_(scores, indptr, logs)
        if self.before is None:
            out = self._as_rows(execution, self._weigh(execution, shares))
            return self._finished(out, logs)
        earlier = execution.rows(self.before, self.layer)
        old, old_logs = earlier[:, : -self.heads], earlier[:, -self.heads :]
        part = torch.sigmoid(logs - old_logs)
        lengths = indptr.diff().to(scores.device)
        shares *= part.repeat_interleave(lengths, dim=0, output_size=len(shares))
        out = self._as_rows(execution, self._weigh(execution, shares))
        out += _scaled(old, 1 - part)
        return self._finished(out, torch.logaddexp(logs, old_logs))

    def _alone(self, execution: Execution) -> Shard:
        """With everything on one worker, a softmax goes on where the one before ended."""
        names = (self.x, self.key, self.query)
        x, key, query = (execution.rows(name, self.layer) for name in names)
        graph, width = execution.graph(self.edges), x.shape[1]
        columns = HeadColumns(self.heads, width, 0, width)
        if self.before is None:
            parts = 2 if self.log_sum else 1
            sums = RowSums.begin(x, len(query), columns, softmax_blocks=parts)
        else:
            channel = execution.channel(self.layer)
            earlier = execution.tensors.own(self.before, channel).data
            out, logs = earlier[:, :width], earlier[:, width:]
            sums = RowSums.resume(out, logs, columns)
        score = self._score(execution)
        attention.attend_pairs(graph.tiles(), x, key, query, score, sums, weighted=self.edge_weight)
        if not self.in_parts:
            return Shard("tile", sums.out, width)
        return self._finished(sums.out, sums.logs())

    def _finished(self, out: torch.Tensor, logs: torch.Tensor) -> Shard:
        """[rows, H*F'] sums of our rows, with their logarithms where a later step goes on."""
        data = torch.cat([out, logs], 1) if self.log_sum else out.contiguous()
        return Shard("rows", data, data.shape[1])

    def _scores(self, execution: Execution) -> tuple[torch.Tensor, torch.Tensor]:
        """[nnz of our sub-range, H] pair scores, and where its rows begin. Collective."""
        key, query = (execution.rows(name, self.layer) for name in (self.key, self.query))
        graph, score = execution.graph(self.edges), self._score(execution)
        channel, depth = (
            execution.channel(self.layer, "world", "sddmm", self.relation),
            execution.depth,
        )
        scores = attention.sddmm(channel, graph.pairs(), key, query, score, depth=depth)
        return scores, graph.sub_range().indptr

    def _weigh(self, execution: Execution, shares: torch.Tensor) -> torch.Tensor:
        """[N/P, H*F'/M] the sums that [nnz of our sub-range, H] shares weigh. Collective."""
        graph, width = execution.graph(self.edges), execution.program.widths[self.x]
        channel = execution.channel(self.layer, "feature", "sddmm", self.relation)
        shares = attention.scatter_heads(channel, shares, width)
        return attention.weigh(
            execution.channel(self.layer, "graph", "spmm", self.relation),
            graph.tiles(),
            execution.tile(self.x, self.layer),
            shares,
            heads=attention.head_columns(execution.grid, self.heads, width, execution.grid.m),
            depth=execution.depth,
            weighted=self.edge_weight,
        )

    def _as_rows(self, execution: Execution, tile: torch.Tensor) -> torch.Tensor:
        """[N/(P*M), H*F'] of a tile. Collective: every rank must call."""
        if execution.grid.feature == 1:
            return tile
        channel, ranges = execution.channel(self.layer), execution.ranges_of(self.out)
        return tile_to_rows(channel, ranges, tile, execution.program.widths[self.x])

    @property
    def in_parts(self) -> bool:
        """The softmax goes over edges of other steps, too."""
        return self.log_sum or self.before is not None

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
        return name in (self.key, self.query, self.before)

    # -- what it costs -----------------------------------------------------------------------

    def walk(self, walk: Walk) -> Layout:
        """Scores of a sub-range's edges, exchanged before the result is there; then a sum."""
        size, width = walk.over(self.edges), walk.width(self.x)
        for name in (self.key, self.query, self.before):
            if name is not None:
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
        made = size.tensor(width)
        walk.need(made + scores + size.in_flight(width))
        if not self.in_parts:
            return "tile"
        if walk.grid.feature > 1:
            walk.moves.append(Conversion(self.layer, self.out, width))
        walk.need(made + size.tensor(width + self.heads) + 2 * size.tensor(self.heads))
        return "rows"

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


def _scaled(values: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """[n, H*F] values times [n, H] factors of their heads."""
    n, heads = factors.shape
    return (values.reshape(n, heads, -1) * factors[:, :, None]).flatten(1)
