"""Any message along an edge, written as a few lines of torch's operations, reduced by row.

The general way, for messages that no other step knows: both ends' whole rows come together at
every edge, as in pair attention, a bounded number of edges at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from embertide.errors import ModelError
from embertide.graph.arriving import arriving_rows, reduced
from embertide.graph.sources import Sources
from embertide.kernels.block import Block
from embertide.kernels.edge_features import LoopFill
from embertide.kernels.segments import Carried, EdgeRun, Reduce, Segments, carried_by_runs
from embertide.kernels.spilled_csr import AnyBlock, AnyFeatures
from embertide.kernels.staging import Staging
from embertide.layouts import Shard
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Param, Read, TogetherStep
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Input, Op
from embertide.program.steps.ops import RESULT, RowShapes, run, shapes_of, width_of
from embertide.program.steps.reference import ReferenceEdges, ReferenceRun
from embertide.program.steps.shapes import Shapes

CHUNK_VALUES = 1 << 21
"""Numbers that the lines hold at a time."""
SCORE = "score"
"""The line whose softmax weighs messages."""


@dataclass(frozen=True, kw_only=True)
class Message(TogetherStep, kind="message"):
    """out[i] = reduce over j in N(i) of what ``lines`` make of x[j] and target[i].

    Lines read the source's row as ``s``, the target's as ``t``, the edge's weight [E, 1] as ``w``,
    its ``edge_features`` features as ``e``, and the parameters as ``p0``, ``p1``, ..., and make
    ``out`` [E, width]; `ops` has the operations. A self-loop that ``loops`` adds has
    ``loop_features``: a number for all, or a reduction of those of the node's other in-edges.

    For ``softmax`` lines also make ``score`` [E, H], whose softmax over N(i) weighs ``out``
    [E, H*F]; with ``log_sum`` the result has H more columns, the logarithm of the row's sum of
    exp(score), by which softmaxes over several kinds of edges are merged. Rows without in-edges
    are zero; ``var`` and ``std`` divide by the count.
    """

    lines: tuple[str, ...]
    reduce: Reduce = "sum"
    target: Read | None = None
    params: tuple[Param, ...] = ()
    log_sum: bool = False
    edge_features: int = 0
    loop_features: LoopFill = "mean"

    pairs: ClassVar[bool] = True
    tiles: ClassVar[bool] = False
    whole: ClassVar[bool] = True
    at_destination: ClassVar[tuple[str, ...]] = ("target",)
    reads_rows: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """Columns of ``out``, and one for each head's logarithm."""
        shapes_of_lines = self._shapes(shapes)
        width = width_of(shapes_of_lines)
        if self.reduce != "softmax":
            if self.log_sum:
                raise ModelError("log_sum is only for softmax")
            return width
        heads = width_of(shapes_of_lines, SCORE)
        if width % max(1, heads):
            raise ModelError(f"out has {width} columns, which {heads} heads of score do not divide")
        return width + heads if self.log_sum else width

    @property
    def edge_columns(self) -> int:
        """Columns of ``e``."""
        return self.edge_features

    def _shapes(self, shapes: Shapes) -> RowShapes:
        rows = {"s": shapes.width(self.x), "w": 1}
        if self.edge_features < 0:
            raise ModelError(f"edge_features is {self.edge_features}; it counts columns")
        if self.edge_features:
            rows["e"] = self.edge_features
        if self.target is not None:
            rows["t"] = shapes.width(self.target)
        params = {f"p{at}": shapes.param(name) for at, name in enumerate(self.params)}
        return shapes_of(self.lines, rows, params)

    # -- what it means -----------------------------------------------------------------------

    def reference(self, run_: ReferenceRun) -> Tensor:
        """The lines on all edges at once, then plain scatters."""
        edges = run_.edges(self.edges, self.loop_features if self.edge_features else None)
        values = {"s": run_.tensors[self.x][edges.src], "w": edges.weight[:, None]}
        if edges.features is not None:
            values["e"] = edges.features
        if self.target is not None:
            values["t"] = run_.tensors[self.target][edges.dst]
        values |= {f"p{at}": run_.params[name] for at, name in enumerate(self.params)}
        computed = run(self.lines, values)
        if self.reduce != "softmax":
            return _reduced(edges, computed[RESULT], self.reduce)
        share, out = edges.softmax(computed[SCORE]), computed[RESULT]
        heads = share.shape[1]
        apart = out.reshape(len(out), heads, out.shape[1] // heads)
        weighed = share[:, :, None] * apart
        total = edges.sum_at(edges.dst, weighed.flatten(1))
        if not self.log_sum:
            return total
        return torch.cat([total, edges.log_sums(computed[SCORE])], 1)

    # -- how it runs -------------------------------------------------------------------------

    def place(self, op: Op, at: Alive) -> Op:
        """Both ends' rows for each relation, since all edges of a sub-range are in one place."""
        steps = at.group_of(self, travel=at.grid.workers > 1)
        ends = [Input(name, "rows") for step in steps for name in step.reads()]
        return op.placed(ends, "rows", brings=steps)

    def lower_all(self, execution: Execution, steps: Sequence[Message]) -> list[Shard]:
        """Every group of source rows, for the edges of each. Collective: every rank must call."""
        source = execution.gathered(self.x, "rows", self.layer)
        graphs = [execution.graph(step.edges) for step in steps]
        sources = graphs[0].pairs_with(graphs[1:])
        each = zip(steps, sources, strict=True)
        sums = [step._begin(execution, source, own) for step, own in each]
        relations = [step.relation for step in steps]
        channel = execution.channel(self.layer, "world", "sddmm", *relations)
        for arrived in arriving_rows(channel, sources[0], source, execution.depth):
            for reduction, own in zip(sums, sources, strict=True):
                reduction.add(own.non_zeros(arrived.number), arrived.source)
                reduced(channel, own, arrived.number, arrived.source)
        return [reduction.finish() for reduction in sums]

    def _begin(self, execution: Execution, source: Tensor, sources: Sources) -> _Reduction:
        """The reduction before any edge. Collective: every rank must call."""
        target = None if self.target is None else execution.rows(self.target, self.layer)
        graph, program = execution.graph(self.edges), execution.program
        shapes = self._shapes(Shapes(program.widths, program.params))
        first, last = graph.targets.worker(execution.grid.rank)
        features = None
        if self.edge_features:
            features = execution.edge_features(self.edges, self.loop_features, sources)
        heads = width_of(shapes, SCORE) if self.reduce == "softmax" else 1
        like = source.new_empty(0, dtype=torch.float32)
        return _Reduction(
            step=self,
            params={f"p{at}": execution.param(name) for at, name in enumerate(self.params)},
            target=target,
            features=features,
            segments=Segments(self.reduce, like, last - first, width_of(shapes), heads),
            values=shapes.values,
            staging=execution.exchange.staging,
        )

    def values_per_edge(self, widths: dict[str, int]) -> float:
        """Every line is a pass over memory."""
        ends = sum(widths[name] for name in self.reads())
        return float((1 + len(self.lines)) * (ends + widths[self.out]))


@dataclass(frozen=True, kw_only=True)
class _Reduction:
    """A message step over the edges of our sub-range, as sources arrive.

    Attributes:
        target: [rows, D] of the targets' ends, or None.
        features: [nnz of our sub-range, K] in the order of its CSR, on the CPU, or on disk in that
            of blocks; or None.
        values: numbers that the lines hold of an edge.
        staging: brings features to the device.
    """

    step: Message
    params: dict[str, Tensor]
    target: Tensor | None
    features: AnyFeatures | None
    segments: Segments
    values: int
    staging: Staging

    def add(self, block: AnyBlock, source: Tensor) -> None:
        """The edges of a block; ``source`` [s, D] is what its indices point into."""
        at = None
        if self.features is not None and isinstance(block, Block) and block.edges is not None:
            # Once for a block, since the device is waited for.
            at = self.staging.download(block.edges)
        limit = max(1, CHUNK_VALUES // self.values)
        for edges, carried in carried_by_runs(block, limit, self.features, at):
            values = run(self.step.lines, self._read(source, edges, carried) | self.params)
            self.segments.add(edges, values[RESULT], values.get(SCORE))

    def _read(self, source: Tensor, edges: EdgeRun, carried: Carried) -> dict[str, Tensor]:
        """The values that lines read for some edges."""
        rows = source.index_select(0, carried.indices).float()
        weight = rows.new_ones(len(rows), 1)
        if self.step.edge_weight and carried.weights is not None:
            weight = carried.weights.unsqueeze(1)
        values = {"s": rows, "w": weight}
        if carried.features is not None:
            values["e"] = self.staging.upload(carried.features)
        if self.target is not None:
            values["t"] = edges.spread(self.target.index_select(0, edges.rows))
        return values

    def finish(self) -> Shard:
        """The result, after the last block."""
        out = self.segments.finish()
        if self.step.log_sum:
            out = torch.cat([out, self.segments.log_sums()], 1)
        return Shard("rows", out, out.shape[1])


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
