"""Any message along an edge, said by a few lines of torch's operations, reduced by row.

The general way, for messages that no other step knows: both ends' whole rows come together at
every edge, as in pair attention, a bounded number of edges at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from embertide.errors import ModelError
from embertide.footprint import FLOAT_BYTES
from embertide.kernels.segments import NO_SCORES, EdgeRun, Reduce, Segments, edge_runs
from embertide.layouts import Layout, Shard
from embertide.primitives.spmm import Arrived, arriving, tile_operand
from embertide.steps.base import EdgeStep, Param, Read
from embertide.steps.execution import Execution
from embertide.steps.moves import WholeRows
from embertide.steps.ops import RESULT, RowShapes, run, shapes_of, width_of
from embertide.steps.reference import ReferenceEdges, ReferenceRun
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk

CHUNK_VALUES = 1 << 21
"""Numbers that the lines hold at a time."""
SCORE = "score"
"""The line whose softmax weighs messages."""


@dataclass(frozen=True, kw_only=True)
class Message(EdgeStep, kind="message"):
    """out[i] = reduce over j in N(i) of what ``lines`` make of x[j] and target[i].

    Lines read the source's row as ``s``, the target's as ``t``, the edge's weight [E, 1] as ``w``
    and the parameters as ``p0``, ``p1``, ..., and make ``out`` [E, width]; `ops` says what they
    may be. For ``softmax`` they also make ``score`` [E, H], whose softmax over N(i) weighs
    ``out`` [E, H*F]; with ``log_sum`` the result has H more columns, the logarithm of the row's
    sum of exp(score), by which softmaxes over several kinds of edges are merged. Rows without
    in-edges are zero; ``var`` and ``std`` divide by the count.
    """

    lines: tuple[str, ...]
    reduce: Reduce = "sum"
    target: Read | None = None
    params: tuple[Param, ...] = ()
    log_sum: bool = False

    pairs: ClassVar[bool] = True
    tiles: ClassVar[bool] = False
    at_destination: ClassVar[tuple[str, ...]] = ("target",)

    def width(self, shapes: Shapes) -> int:
        """Columns of ``out``, and one for each head's logarithm."""
        found = self._shapes(shapes)
        width = width_of(found)
        if self.reduce != "softmax":
            if self.log_sum:
                raise ModelError("log_sum is of softmax alone")
            return width
        heads = width_of(found, SCORE)
        if width % max(1, heads):
            raise ModelError(f"out has {width} columns, which {heads} heads of score do not divide")
        return width + heads if self.log_sum else width

    def _shapes(self, shapes: Shapes) -> RowShapes:
        rows = {"s": shapes.width(self.x), "w": 1}
        if self.target is not None:
            rows["t"] = shapes.width(self.target)
        params = {f"p{at}": shapes.param(name) for at, name in enumerate(self.params)}
        return shapes_of(self.lines, rows, params)

    # -- what it means -----------------------------------------------------------------------

    def reference(self, run_: ReferenceRun) -> Tensor:
        """The lines on all edges at once, then plain scatters."""
        edges = run_.edges(self.edges)
        values = {"s": run_.tensors[self.x][edges.src], "w": edges.weight[:, None]}
        if self.target is not None:
            values["t"] = run_.tensors[self.target][edges.dst]
        values |= {f"p{at}": run_.params[name] for at, name in enumerate(self.params)}
        made = run(self.lines, values)
        if self.reduce != "softmax":
            return _reduced(edges, made[RESULT], self.reduce)
        share, out = edges.softmax(made[SCORE]), made[RESULT]
        heads = share.shape[1]
        apart = out.reshape(len(out), heads, out.shape[1] // heads)
        weighed = share[:, :, None] * apart
        total = edges.sum_at(edges.dst, weighed.flatten(1))
        if not self.log_sum:
            return total
        return torch.cat([total, _log_sums(edges, made[SCORE])], 1)

    # -- how it runs -------------------------------------------------------------------------

    def lower(self, execution: Execution) -> Shard:
        """``rows``: of a sub-range all edges are here. Collective: every rank must call."""
        source = execution.rows(self.x, self.layer)
        target = None if self.target is None else execution.rows(self.target, self.layer)
        graph, program = execution.graph(self.edges), execution.program
        shapes = self._shapes(Shapes(program.widths, program.params))
        first, last = graph.targets.worker(execution.grid.rank)
        segments = self._segments(source, last - first, shapes)
        params = {f"p{at}": execution.param(name) for at, name in enumerate(self.params)}
        channel = execution.channel(self.layer, "world", "sddmm", self.relation)
        operand = tile_operand(source)
        groups = arriving(
            channel,
            graph.pairs(),
            source,
            operand.pick,
            width=source.shape[1],
            depth=execution.depth,
            reuse=True,
        )
        for arrived in groups:
            for edges in edge_runs(arrived.block, CHUNK_VALUES // shapes.values):
                values = self._ends(arrived, edges, target)
                made = run(self.lines, values | params)
                segments.add(edges, made[RESULT], made.get(SCORE))
            channel.reduced(arrived.block)
        out = segments.finish()
        if self.log_sum:
            out = torch.cat([out, segments.log_sums()], 1)
        return Shard("rows", out, out.shape[1])

    def _segments(self, source: Tensor, rows: int, shapes: RowShapes) -> Segments:
        """The reduction of so many rows of ours, before any edge."""
        heads = width_of(shapes, SCORE) if self.reduce == "softmax" else 1
        return Segments(self.reduce, source, rows, width_of(shapes), heads)

    def _ends(self, arrived: Arrived, edges: EdgeRun, target: Tensor | None) -> dict[str, Tensor]:
        """What lines read of some edges."""
        weights = arrived.block.weights if self.edge_weight else None
        source = arrived.source.index_select(0, arrived.block.indices[edges.span])
        if weights is None:
            weight = source.new_ones(len(source), 1)
        else:
            weight = weights[edges.span].unsqueeze(1)
        values = {"s": source, "w": weight}
        if target is not None:
            values["t"] = edges.spread(target.index_select(0, edges.rows))
        return values

    def wants_rows(self, _name: str) -> bool:
        """Of both ends."""
        return True

    # -- what it costs -----------------------------------------------------------------------

    def walk(self, walk: Walk) -> Layout:
        """The result, what merging takes, and a chunk's values; whole rows in groups."""
        for name in self.reads():
            walk.get(name, "rows")
        walk.build(self.edges)
        size, width = walk.over(self.edges), walk.width(self.x)
        walk.moves.append(WholeRows(self.edges, width))
        values = self._shapes(Shapes(walk.program.widths, walk.program.params)).values
        chunk = FLOAT_BYTES * min(float(CHUNK_VALUES), values * size.edges / size.workers)
        kept = walk.tensor(self.out) if self.reduce in ("var", "std", "softmax") else 0.0
        walk.need(walk.tensor(self.out) + kept + chunk + size.whole_in_flight(width))
        return "rows"

    def values_per_edge(self, widths: dict[str, int]) -> float:
        """Every line is a pass over memory."""
        ends = sum(widths[name] for name in self.reads())
        return float((1 + len(self.lines)) * (ends + widths[self.out]))


def _reduced(edges: ReferenceEdges, values: Tensor, reduce: Reduce) -> Tensor:
    """[N, width] of messages [E, width]."""
    if reduce in ("max", "min"):
        out = torch.zeros(edges.nodes, values.shape[1], dtype=torch.float64)
        index = edges.dst[:, None].expand_as(values)
        return out.scatter_reduce(0, index, values, f"a{reduce}", include_self=False)
    total = edges.sum_at(edges.dst, values)
    if reduce == "sum":
        return total
    count = edges.degree(edges.dst).clamp(min=1)[:, None]
    mean = total / count
    if reduce == "mean":
        return mean
    spread = edges.sum_at(edges.dst, (values - mean[edges.dst]).square()) / count
    return spread if reduce == "var" else spread.sqrt()


def _log_sums(edges: ReferenceEdges, scores: Tensor) -> Tensor:
    """[N, H] log of the sum of exp(score) over each node's in-edges."""
    top = torch.full((edges.nodes, scores.shape[1]), -torch.inf, dtype=torch.float64)
    top = top.scatter_reduce(0, edges.dst[:, None].expand_as(scores), scores, "amax")
    total = edges.sum_at(edges.dst, (scores - top[edges.dst]).exp())
    return torch.where(total > 0, top + total.log(), NO_SCORES)
