"""Attention whose scores need both ends' features (GATv2, dot product)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch.nn import functional

from embertide.errors import ModelError
from embertide.graph import attention
from embertide.graph.edge_values import AnyEdgeValues
from embertide.graph.gemm import tile_to_rows
from embertide.kernels.attention import row_softmax_
from embertide.kernels.heads import HeadColumns, PairScore, RowSums, scaled
from embertide.kernels.memory import as_type, empty_as
from embertide.kernels.staging import Staging
from embertide.layouts import Shard
from embertide.program.steps import head_groups
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Param, Read, TogetherStep
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Input, Op
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class PairAttend(TogetherStep, kind="pair_attend"):
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
    reads_rows: ClassVar[tuple[str, ...]] = ("key", "query", "before")

    def width(self, shapes: Shapes) -> int:
        """The width of ``x``, and one column for each head's logarithm."""
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
            out = scaled(out, (logs - both).exp()) + scaled(old, (old_logs - both).exp())
            logs = both
        return torch.cat([out, logs], 1) if self.log_sum else out

    # -- how it runs -------------------------------------------------------------------------

    @property
    def gathered(self) -> tuple[str, ...]:
        """Keys and values."""
        return (self.key, self.x)

    def place(self, op: Op, at: Alive) -> Op:
        """Targets' ends of each relation, keys and values; the result is as of a sum.

        It is rows where the softmax has parts.
        """
        steps = self._alike(at.group_of(self, travel=at.grid.workers > 1))
        ends = [name for step in steps for name in (step.query, step.before) if name is not None]
        keys = Input(self.key, "tile" if at.reads_all else "rows")
        inputs = [*(Input(name, "rows") for name in ends), keys, Input(self.x, "tile")]
        return op.placed(inputs, "rows" if self.in_parts else "tile", brings=steps)

    def lower_all(self, execution: Execution, steps: Sequence[PairAttend]) -> list[Shard]:
        """Scores, their softmax, sums. Collective: every rank must call."""
        if execution.reads_all:
            return self._in_one_pass(execution, steps)
        scores = self._scores(execution, steps)
        each = [_Softmax.of(step, execution) for step in steps]
        sums = self._weigh(execution, steps, scores, each)
        ends = zip(steps, each, strict=True)
        return [step._finish(execution, sums.pop(0), own.logs) for step, own in ends]

    def _in_one_pass(self, execution: Execution, steps: Sequence[PairAttend]) -> list[Shard]:
        """Where we read every row, a softmax continues the one before.

        Collective: every rank must call.
        """
        x, key = (execution.gathered(name, "tile", self.layer) for name in (self.x, self.key))
        graphs = [execution.graph(step.edges) for step in steps]
        data = [step._room(execution, x) for step in steps]
        parts = [
            attention.Pairs(
                sources=own,
                query=execution.rows(step.query, self.layer),
                score=step._score(execution),
                sums=step._sums_in(room, x.shape[1]),
                weighted=step.edge_weight,
            )
            for step, own, room in zip(steps, graphs[0].tiles_with(graphs[1:]), data, strict=True)
        ]
        relations = [step.relation for step in steps]
        channel = execution.channel(self.layer, "graph", "spmm", *relations)
        attention.attend_pairs(channel, x, key, parts)
        ends = zip(steps, data, parts, strict=True)
        return [step._ended(room, part.sums) for step, room, part in ends]

    def _room(self, execution: Execution, x: torch.Tensor) -> torch.Tensor:
        """[rows, D] for our sums and their logarithms; those of the step before, if any."""
        if self.before is not None:
            return execution.owned(self.before, "rows", self.layer).data
        rows = execution.rows(self.query, self.layer).shape[0]
        return empty_as(x, rows, execution.program.widths[self.out], dtype=torch.float32)

    def _sums_in(self, room: torch.Tensor, width: int) -> RowSums:
        columns = HeadColumns(self.heads, width, 0, width)
        if self.before is not None:
            return RowSums.resume(room[:, :width], room[:, width:], columns)
        return RowSums.begin_in(room[:, :width], columns, softmax_blocks=2 if self.log_sum else 1)

    def _ended(self, room: torch.Tensor, sums: RowSums) -> Shard:
        """The result, from sums that are in place."""
        width = sums.heads.width
        if self.log_sum:
            room[:, width:] = sums.logs()
        data = room if self.log_sum else sums.out.contiguous()
        return Shard("rows" if self.in_parts else "tile", data, data.shape[1])

    def _finished(self, out: torch.Tensor, logs: torch.Tensor) -> Shard:
        """[rows, H*F'] sums of our rows, with their logarithms where a later step continues."""
        data = torch.cat([out, logs], 1) if self.log_sum else out.contiguous()
        return Shard("rows", data, data.shape[1])

    def _scores(self, execution: Execution, steps: Sequence[PairAttend]) -> list[AnyEdgeValues]:
        """[nnz of our sub-range, H] pair scores of each step. Collective: every rank must call."""
        key = execution.gathered(self.key, "rows", self.layer)
        graphs = [execution.graph(step.edges) for step in steps]
        sources = graphs[0].pairs_with(graphs[1:])
        parts = [
            attention.Scoring(
                sources=own,
                queries=execution.rows(step.query, self.layer),
                score=step._score(execution),
            )
            for step, own in zip(steps, sources, strict=True)
        ]
        relations = [step.relation for step in steps]
        channel = execution.channel(self.layer, "world", "sddmm", *relations)
        return attention.sddmm(channel, key, parts, depth=execution.depth)

    def _weigh(
        self,
        execution: Execution,
        steps: Sequence[PairAttend],
        scores: list[AnyEdgeValues],
        softmaxes: Sequence[_Softmax],
    ) -> list[torch.Tensor]:
        """[N/P, H*F'/M] the sums that shares weigh, of scores [nnz of our sub-range, H], which are
        used up.

        Collective: every rank must call.
        """
        width = execution.program.widths[self.x]
        graphs = [execution.graph(step.edges) for step in steps]
        sources, parts = graphs[0].tiles_with(graphs[1:]), []
        for step, graph, own, softmax in zip(steps, graphs, sources, softmaxes, strict=True):
            channel = execution.channel(self.layer, "feature", "sddmm", step.relation)
            part = attention.Weighing(
                shares=attention.shares_of(
                    channel, scores.pop(0), own, graph.targets, width, softmax
                ),
                heads=attention.own_heads(channel, step.heads, width),
                weighted=step.edge_weight,
            )
            parts.append(part)
        relations = [step.relation for step in steps]
        channel = execution.channel(self.layer, "graph", "spmm", *relations)
        tile = execution.gathered(self.x, "tile", self.layer)
        return attention.weigh(channel, tile, parts, depth=execution.depth)

    def _finish(self, execution: Execution, sums: torch.Tensor, logs: torch.Tensor | None) -> Shard:
        """The result of sums [N/P, H*F'/M]. Collective: every rank must call."""
        if logs is None:
            return Shard("tile", sums, execution.program.widths[self.x])
        out = self._as_rows(execution, sums)
        if self.before is None:
            return self._finished(out, logs)
        earlier = execution.rows(self.before, self.layer)
        old, old_logs = earlier[:, : -self.heads], earlier[:, -self.heads :]
        out += scaled(old, torch.sigmoid(old_logs - logs))
        return self._finished(out, torch.logaddexp(logs, old_logs))

    def _as_rows(self, execution: Execution, tile: torch.Tensor) -> torch.Tensor:
        """[N/(P*M), H*F'] of a tile. Collective: every rank must call."""
        if execution.grid.feature == 1:
            return tile
        channel, ranges = execution.channel(self.layer), execution.ranges_of(self.out)
        sent, width = as_type(tile, execution.row_type), execution.program.widths[self.x]
        return tile_to_rows(channel, ranges, sent, width, dtype=tile.dtype)

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

    def columns_together(self, widths: Mapping[str, int], slices: int) -> int:
        """Those of a head of dot products, where a softmax has one part."""
        if self.kind != "dot" or self.in_parts:
            return 0
        return head_groups.columns_together(widths[self.out], self.heads, slices)

    def columns_of(self, name: str, columns: slice, widths: Mapping[str, int]) -> slice:
        """Those of the same heads."""
        return head_groups.columns_of(name, self.out, self.heads, columns, widths)

    def of_columns(self, count: int, widths: Mapping[str, int]) -> PairAttend:
        """The step for some heads."""
        return replace(self, heads=head_groups.heads_in(count, self.out, self.heads, widths))

    def values_per_edge(self, widths: dict[str, int]) -> float:
        """Scores read a row of both ends, and the softmax costs as much as the sum."""
        return 4.0 * widths[self.x]


@dataclass(frozen=True)
class _Softmax:
    """What makes shares of the scores of some rows' edges, in place.

    Where the softmax has parts, shares are those of our edges and of the edges before together.

    Attributes:
        indptr: [rows + 1] of our sub-range, on the CPU.
        logs: [rows, H] where the softmax has parts: the logarithms of the sums of our own.
        earlier: [rows, H] the same of the edges before, if any.
        staging: brings lengths of rows to the device.
    """

    indptr: torch.Tensor
    logs: torch.Tensor | None
    earlier: torch.Tensor | None
    staging: Staging

    @classmethod
    def of(cls, step: PairAttend, execution: Execution) -> _Softmax:
        """Collective: every rank must call."""
        indptr, logs, earlier = execution.graph(step.edges).sub_range().indptr, None, None
        if step.in_parts:
            like = execution.rows(step.query, step.layer)
            logs = like.new_empty(indptr.shape[0] - 1, step.heads, dtype=torch.float32)
        if step.before is not None:
            earlier = execution.rows(step.before, step.layer)[:, -step.heads :]
        return cls(indptr, logs, earlier, execution.exchange.staging)

    def __call__(self, rows: slice, scores: torch.Tensor) -> None:
        """Takes the scores [e, H] of rows ``rows``."""
        ends = self.indptr[rows.start : rows.stop + 1]
        ends = ends - ends[0] if rows.start else ends
        if self.logs is None:
            row_softmax_(scores, ends)
            return
        logs = self.logs[rows]
        row_softmax_(scores, ends, logs)
        if self.earlier is not None:
            lengths = self.staging.upload(ends.diff())
            # In float64, whose rounding does not depend on which rows are computed together.
            part = torch.sigmoid((logs - self.earlier[rows]).double()).float()
            scores *= part.repeat_interleave(lengths, dim=0, output_size=scores.shape[0])
