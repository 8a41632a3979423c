"""Additive attention (GAT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from embertide.footprint import FLOAT_BYTES, Size
from embertide.layouts import Layout, Shard
from embertide.primitives import attention
from embertide.steps.base import EdgeStep, Read
from embertide.steps.execution import Execution
from embertide.steps.moves import HeadScores, TileRows
from embertide.steps.reference import ReferenceRun
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk


@dataclass(frozen=True, kw_only=True)
class Attend(EdgeStep, kind="attend"):
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

    def width(self, shapes: Shapes) -> int:
        """That of ``x``."""
        shapes.per_head(self.x, self.heads)
        shapes.heads_of([self.source, self.target], self.heads)
        return shapes.width(self.x)

    def reference(self, run: ReferenceRun) -> Tensor:
        """Scores of every edge, softmax, weighted sum."""
        edges = run.edges(self.edges)
        scores = run.tensors[self.source][edges.src] + run.tensors[self.target][edges.dst]
        lit = functional.leaky_relu(scores, self.negative_slope)
        return edges.weigh(lit, run.heads(self.x, self.heads))

    def lower(self, execution: Execution) -> Shard:
        """A ``tile``: scores travel as numbers, rows as in a sum. Collective: all must call."""
        graph, width = execution.graph(self.edges), execution.program.widths[self.x]
        whole = execution.channel(self.layer, "feature", "scalars")
        ends = [execution.tensors.get(n, "rows", whole).data for n in (self.source, self.target)]
        scalars = execution.channel(self.layer, "feature", "scalars", self.relation)
        source, target = (attention.scatter_heads(scalars, end, width) for end in ends)
        x = execution.tile(self.x, self.layer)
        fetched = attention.fetch_scalars(
            execution.channel(self.layer, "graph", "scalars", self.relation),
            graph.tiles(),
            source,
            execution.depth,
        )
        out = attention.attend(
            execution.channel(self.layer, "graph", "spmm", self.relation),
            graph.tiles(),
            x,
            fetched,
            target,
            heads=attention.head_columns(execution.grid, self.heads, width, execution.grid.m),
            slope=self.negative_slope,
            depth=execution.depth,
            weighted=self.edge_weight,
        )
        return Shard("tile", out, width)

    def walk(self, walk: Walk) -> Layout:
        """Scores of both ends, then a sum."""
        for name in (self.source, self.target):
            walk.get(name, "rows", "scalars")
        walk.get(self.x, "tile")
        walk.build(self.edges)
        size, width = walk.over(self.edges), walk.width(self.x)
        walk.moves.append(HeadScores(self.edges, self.heads, "scalars", of="source"))
        walk.moves.append(HeadScores(self.edges, self.heads, "scalars", of="target"))
        walk.moves.append(TileRows(self.edges, size.heads(self.heads), "scalars"))
        walk.moves.append(TileRows(self.edges, width / size.feature))
        scores = _score_bytes(self.heads, size)
        walk.need(walk.tensor(self.out) + scores + size.in_flight(width))
        return "tile"

    def values_per_edge(self, widths: dict[str, int]) -> float:
        """The scores and the softmax cost as much as the sum."""
        return 2.0 * widths[self.x]


def _score_bytes(heads: int, size: Size) -> float:
    """Bytes of scores, and of a softmax over several blocks, beside the result."""
    values = 0.0
    if size.feature > 1:
        # Of both ends, which slices exchange, and of one while it is sent.
        values += (size.nodes + size.columns + max(size.nodes, size.columns)) / size.graph
    if size.graph > 1:
        # Maxima and sums, where groups follow each other.
        values += 2 * size.nodes / size.graph + size.unique()
    return FLOAT_BYTES * size.heads(heads) * values
