"""What the reference of a step is given: whole tensors in float64, edges as plain lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embertide.kernels.heads import NO_SCORES
from embertide.primitives.graph import EdgeView
from embertide.spec.relations import Relation

LayerGraph = tuple[Tensor, Tensor, Tensor | None]
"""Sources [E], destinations [E] (int64) and weights [E] or None of one layer graph."""


@dataclass(frozen=True)
class ReferenceEdges:
    """A layer graph as one step sees it; ``weight`` is 1 where weights do not count.

    ``nodes`` counts the destination type, ``sources`` the source type.
    """

    src: Tensor
    dst: Tensor
    weight: Tensor
    nodes: int
    sources: int

    def sum_at(self, ends: Tensor, values: Tensor) -> Tensor:
        """Values [E, ...] added up at one of the ends, ``src`` or ``dst``: [N, ...]."""
        out = torch.zeros(self._nodes_at(ends), *values.shape[1:], dtype=torch.float64)
        return out.index_add_(0, ends, values)

    def degree(self, ends: Tensor) -> Tensor:
        """[N] float64 edges at one of the ends, ``src`` or ``dst``."""
        return torch.bincount(ends, minlength=self._nodes_at(ends)).double()

    def _nodes_at(self, ends: Tensor) -> int:
        return self.sources if ends is self.src else self.nodes

    def softmax(self, scores: Tensor) -> Tensor:
        """Scores [E, H] to weights that add up to 1 over the in-edges of each node."""
        top = torch.full((self.nodes, scores.shape[1]), -torch.inf, dtype=torch.float64)
        index = self.dst[:, None].expand_as(scores)
        top = top.scatter_reduce(0, index, scores, "amax")
        shifted = (scores - top[self.dst]).exp()
        return shifted / self.sum_at(self.dst, shifted)[self.dst]

    def log_sums(self, scores: Tensor) -> Tensor:
        """[N, H] log of the sum of exp(score) over each node's in-edges; finite where none."""
        top = torch.full((self.nodes, scores.shape[1]), -torch.inf, dtype=torch.float64)
        top = top.scatter_reduce(0, self.dst[:, None].expand_as(scores), scores, "amax")
        total = self.sum_at(self.dst, (scores - top[self.dst]).exp())
        return torch.where(total > 0, top + total.log(), NO_SCORES)

    def weigh(self, scores: Tensor, values: Tensor) -> Tensor:
        """The sum over in-edges of softmax(scores) [E, H], times the edge weight, times values.

        Args:
            values: [N, H, F] of the sources.
        """
        attention = self.softmax(scores) * self.weight[:, None]
        total = self.sum_at(self.dst, attention[:, :, None] * values[self.src])
        return total.reshape(self.nodes, -1)


@dataclass(frozen=True)
class ReferenceRun:
    """A program being executed slowly: every parameter, and every tensor made so far.

    Attributes:
        graphs: of each layer, by relation.
        nodes: node type -> N.
    """

    params: dict[str, Tensor]
    tensors: dict[str, Tensor]
    graphs: Sequence[Mapping[str, LayerGraph]]
    nodes: Mapping[str, int]

    def param(self, name: str | None) -> Tensor | None:
        """A parameter; None for no name."""
        return None if name is None else self.params[name]

    def heads(self, name: str, heads: int) -> Tensor:
        """A tensor [N, H*F] as [N, H, F]."""
        tensor = self.tensors[name]
        return tensor.reshape(len(tensor), heads, -1)

    def edges(self, view: EdgeView) -> ReferenceEdges:
        """A layer graph as a step sees it."""
        src, dst, stored = self.graphs[view.layer][view.relation]
        sources = nodes = self.nodes.get("", 0)
        if view.relation:
            relation = Relation.parse(view.relation)
            sources, nodes = self.nodes[relation.source], self.nodes[relation.destination]
        counts = view.edge_weight and stored is not None
        weight = torch.ones(len(src), dtype=torch.float64)
        if counts and stored is not None:
            weight = stored.double()
        if view.loops == "keep":
            return ReferenceEdges(src, dst, weight, nodes, sources)
        if view.loops == "none":
            other = src != dst
            return ReferenceEdges(src[other], dst[other], weight[other], nodes, sources)
        own, other, every = src == dst, src != dst, torch.arange(nodes)
        heaviest = torch.full((nodes,), -torch.inf, dtype=torch.float64)
        heaviest = heaviest.scatter_reduce(0, src[own], weight[own], "amax")
        new = view.loop_weight if counts else 1.0
        loops = torch.where(heaviest > -torch.inf, heaviest, new)
        return ReferenceEdges(
            torch.cat([src[other], every]),
            torch.cat([dst[other], every]),
            torch.cat([weight[other], loops]),
            nodes,
            sources,
        )
