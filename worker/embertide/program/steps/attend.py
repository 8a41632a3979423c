"""Additive attention (GAT)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from embertide.graph import attention
from embertide.layouts import Shard
from embertide.program.steps import head_groups
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Read, TogetherStep
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Input, Op
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes


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
        sources = graphs[0].tiles_with(graphs[1:])
        scalars = attention.fetch_scalars(
            execution.channel(self.layer, "graph", "scalars", *relations),
            sources[0],
            [source for source, _ in ends],
            execution.depth,
        )
        channel = execution.channel(self.layer, "graph", "spmm", *relations)
        outputs = attention.attend(
            channel,
            tile,
            [
                attention.Additive(
                    sources=sources[at],
                    scalars=scalars[at],
                    target=ends[at][1],
                    heads=attention.own_heads(channel, step.heads, width),
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
