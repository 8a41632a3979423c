"""Additive attention (GAT)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from embertide.footprint import FLOAT_BYTES, Size
from embertide.graph import attention
from embertide.layouts import Shard
from embertide.program.steps import head_groups
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Read
from embertide.program.steps.costs import Costs
from embertide.program.steps.execution import Execution
from embertide.program.steps.moves import HeadScores, TileRows
from embertide.program.steps.op import Input, Op
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes
from embertide.program.steps.together import TogetherStep


@dataclass(frozen=True, kw_only=True)
class Attend(TogetherStep, kind="attend"):
    """Additive attention (GAT): out[i,h] = sum_j a_ijh * x[j,h], where
    a_ij. = softmax over j in N(i) of leaky_relu(source[j] + target[i]).

    ``source`` and ``target`` are [N, H] scores. With ``edge_weight`` a_ijh is multiplied by the
    stored weight after the softmax (DGL).
    """

    source: Read
    target: Read
    heads: int
    negative_slope: float = 0.2

    at_destination: ClassVar[tuple[str, ...]] = ("target",)
    reads_rows: ClassVar[tuple[str, ...]] = ("source", "target")
    exact: ClassVar[bool] = True
    by_parts: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """The width of ``x``."""
        shapes.per_head(self.x, self.heads)
        shapes.heads_of([self.source, self.target], self.heads)
        return shapes.width(self.x)

    def reference(self, run: ReferenceRun) -> Tensor:
        """Scores of every edge, softmax, weighted sum."""
        edges = run.edges(self.edges)
        scores = run.tensors[self.source][edges.src] + run.tensors[self.target][edges.dst]
        lit = functional.leaky_relu(scores, self.negative_slope)
        return edges.weigh(lit, run.heads(self.x, self.heads))

    def place(self, op: Op, at: Alive) -> Op:
        """Scores of both ends of each relation, then the values; the result is as of a sum."""
        steps = self._alike(at.group_of(self, travel=at.grid.graph > 1))
        ends = [name for step in steps for name in (step.source, step.target)]
        scores = [Input(name, "rows", "scalars") for name in ends]
        return op.placed([*scores, Input(self.x, "tile")], "tile", brings=steps)

    def lower_all(self, execution: Execution, steps: Sequence[Attend]) -> list[Shard]:
        """Scores travel as numbers, rows as in a sum. Collective: every rank must call."""
        relations = [step.relation for step in steps]
        graphs = [execution.graph(step.edges) for step in steps]
        ends = [step._scores(execution) for step in steps]
        tile = execution.gathered(self.x, "tile", self.layer)
        width = execution.program.widths[self.x]
        grid = execution.grid
        sources = graphs[0].tiles_with(graphs[1:])
        scalars = attention.fetch_scalars(
            execution.channel(self.layer, "graph", "scalars", *relations),
            sources[0],
            [source for source, _ in ends],
            execution.depth,
        )
        outputs = attention.attend(
            execution.channel(self.layer, "graph", "spmm", *relations),
            tile,
            [
                attention.Additive(
                    sources=sources[at],
                    scalars=scalars[at],
                    target=ends[at][1],
                    heads=attention.head_columns(grid, step.heads, width, grid.m),
                    slope=step.negative_slope,
                    weighted=step.edge_weight,
                )
                for at, step in enumerate(steps)
            ],
            depth=execution.depth,
        )
        return [Shard("tile", out, width) for out in outputs]

    def _scores(self, execution: Execution) -> tuple[Tensor, Tensor]:
        """[N/P, H'] of sources and of targets, for the heads of our columns. Collective."""
        whole, width = execution.channel(self.layer, "feature", "scalars"), execution.program.widths
        ends = [execution.tensors.get(n, "rows", whole).data for n in (self.source, self.target)]
        scalars = execution.channel(self.layer, "feature", "scalars", self.relation)
        source, target = (attention.scatter_heads(scalars, end, width[self.x]) for end in ends)
        return source, target

    def cost_all(self, costs: Costs, steps: Sequence[Attend]) -> None:
        """Scores of both ends, then a sum."""
        costs.build(*(step.edges for step in steps))
        for step in steps:
            costs.moves.append(HeadScores(step.edges, step.heads, "scalars", of="source"))
            costs.moves.append(HeadScores(step.edges, step.heads, "scalars", of="target"))
        names, width = tuple(step.relation for step in steps), costs.width(self.x)
        union = costs.size.of_relations(names)
        heads = sum(union.heads(step.heads) for step in steps)
        costs.moves.append(TileRows(self.edges, heads, names, "scalars"))
        costs.moves.append(TileRows(self.edges, width / union.feature, names))
        results = sum(costs.whole(step.out) for step in steps)
        results += sum(_score_bytes(step.heads, costs.over(step.edges)) for step in steps)
        fetched = FLOAT_BYTES * heads * _fetched(union, len(steps))
        costs.need(costs.sent(self.x) + results + fetched + union.in_flight(width))

    def columns_together(self, widths: Mapping[str, int], slices: int) -> int:
        """Those of a head; one where there is one head, since scores are there before its rows."""
        if self.heads == 1:
            return 1
        return head_groups.columns_together(widths[self.out], self.heads, slices)

    def columns_of(self, name: str, columns: slice, widths: Mapping[str, int]) -> slice:
        """Those of the same heads."""
        return head_groups.columns_of(name, self.out, self.heads, columns, widths)

    def of_columns(self, count: int, widths: Mapping[str, int]) -> Attend:
        """The step for some heads, or for some columns of the only one."""
        return replace(self, heads=head_groups.heads_in(count, self.out, self.heads, widths))

    def values_per_edge(self, widths: dict[str, int]) -> float:
        """The scores and the softmax cost as much as the sum."""
        return 2.0 * widths[self.x]


def _score_bytes(heads: int, size: Size) -> float:
    """Bytes of scores of both ends, and of a softmax over several blocks, without the result."""
    values = 0.0
    if size.feature > 1:
        # Scores of both ends, which slices exchange, and of one end while it is sent.
        values += (size.nodes + size.columns + max(size.nodes, size.columns)) / size.graph
    if size.graph > 1:
        # Maxima and sums, where groups follow each other.
        values += 2 * size.nodes / size.graph
    return FLOAT_BYTES * size.heads(heads) * values


def _fetched(union: Size, steps: int) -> float:
    """Scores of remote rows; for several steps also those of our rows, joined and cut again."""
    own = 2 * union.columns / union.graph if steps > 1 else 0.0
    return own + (union.unique() if union.graph > 1 else 0.0)
