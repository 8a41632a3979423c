"""The input of a step's reference: whole tensors in float64, edges as plain lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from embertide.graph.views import EdgeView
from embertide.kernels.edge_features import LoopFill
from embertide.kernels.heads import NO_SCORES
from embertide.spec.relations import Relation

End = Literal["in", "out"]
"""``in`` edges are counted at their destination, ``out`` edges at their source."""
Degrees = Mapping[tuple[End, bool], Tensor]
"""(end, whether weights are added up) -> [n] float64 of the nodes at that end."""

LayerGraph = (
    tuple[Tensor, Tensor, Tensor | None] | tuple[Tensor, Tensor, Tensor | None, Tensor | None]
)
"""Sources [E], destinations [E] (int64), weights [E] or None of one layer graph; and features
[E, K], where its edges have some."""

_SCATTERED = {"add": "sum", "mean": "mean", "min": "amin", "max": "amax", "mul": "prod"}
"""Reduction of the other in-edges' features for added self-loops -> its name in torch."""


@dataclass(frozen=True)
class ReferenceEdges:
    """A layer graph as one step sees it; ``weight`` is 1 where weights do not count.

    ``nodes`` counts the destination type, ``sources`` the source type; ``features`` are [E, K] of
    the edges, where the step reads them. ``known`` has degrees that do not follow from the edges,
    where these are not all edges of the nodes.
    """

    src: Tensor
    dst: Tensor
    weight: Tensor
    nodes: int
    sources: int
    features: Tensor | None = None
    known: Degrees = field(default_factory=dict)

    def sum_at(self, ends: Tensor, values: Tensor) -> Tensor:
        """Values [E, ...] added up at one of the ends, ``src`` or ``dst``: [N, ...]."""
        out = torch.zeros(self._nodes_at(ends), *values.shape[1:], dtype=torch.float64)
        return out.index_add_(0, ends, values)

    def degree(self, ends: Tensor) -> Tensor:
        """[N] float64 edges at one of the ends, ``src`` or ``dst``."""
        known = self.known.get((self._end(ends), False))
        if known is not None:
            return known
        return torch.bincount(ends, minlength=self._nodes_at(ends)).double()

    def weighted_degree(self, ends: Tensor) -> Tensor:
        """[N] float64 the sum of the weights of the edges at one of the ends."""
        known = self.known.get((self._end(ends), True))
        return self.sum_at(ends, self.weight) if known is None else known

    def _end(self, ends: Tensor) -> End:
        return "out" if ends is self.src else "in"

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
        degrees: a layer graph as a step sees it -> degrees that do not follow from the edges, where
            these are not all edges of the nodes.
    """

    params: dict[str, Tensor]
    tensors: dict[str, Tensor]
    graphs: Sequence[Mapping[str, LayerGraph]]
    nodes: Mapping[str, int]
    degrees: Mapping[EdgeView, Degrees] = field(default_factory=dict)

    def param(self, name: str | None) -> Tensor | None:
        """A parameter; None for no name."""
        return None if name is None else self.params[name]

    def heads(self, name: str, heads: int) -> Tensor:
        """A tensor [N, H*F] as [N, H, F]."""
        tensor = self.tensors[name]
        return tensor.reshape(len(tensor), heads, tensor.shape[1] // heads)

    def edges(self, view: EdgeView, loop_features: LoopFill | None = None) -> ReferenceEdges:
        """A layer graph as a step sees it.

        Args:
            loop_features: what an added self-loop has, where the step reads the edges' features.
        """
        seen = self._with_loops(view, loop_features)
        return replace(seen, known=self.degrees.get(view, {}))

    def _with_loops(self, view: EdgeView, loop_features: LoopFill | None) -> ReferenceEdges:
        src, dst, stored, *more = self.graphs[view.layer][view.relation]
        sources = nodes = self.nodes.get("", 0)
        if view.relation:
            relation = Relation.parse(view.relation)
            sources, nodes = self.nodes[relation.source], self.nodes[relation.destination]
        counts = view.edge_weight and stored is not None
        weight = torch.ones(len(src), dtype=torch.float64)
        if counts and stored is not None:
            weight = stored.double()
        of_edges = more[0] if more else None
        features = None if loop_features is None or of_edges is None else of_edges.double()
        every = ReferenceEdges(src, dst, weight, nodes, sources, features)
        if view.loops == "keep":
            return every
        others = every if view.loops == "more" else _others(every)
        if view.loops == "none":
            return others
        new = view.loop_weight if counts else 1.0
        loops = torch.full((nodes,), new, dtype=torch.float64)
        if view.loops == "single":
            heaviest = torch.full((nodes,), -torch.inf, dtype=torch.float64)
            heaviest = heaviest.scatter_reduce(0, src[src == dst], weight[src == dst], "amax")
            loops = torch.where(heaviest > -torch.inf, heaviest, loops)
        features = others.features
        if features is not None and loop_features is not None:
            features = torch.cat([features, _filled(others, features, loop_features)])
        own = torch.arange(nodes)
        return ReferenceEdges(
            torch.cat([others.src, own]),
            torch.cat([others.dst, own]),
            torch.cat([others.weight, loops]),
            nodes,
            sources,
            features,
        )


def _others(edges: ReferenceEdges) -> ReferenceEdges:
    """All but self-loops."""
    other = edges.src != edges.dst
    features = None if edges.features is None else edges.features[other]
    return replace(
        edges,
        src=edges.src[other],
        dst=edges.dst[other],
        weight=edges.weight[other],
        features=features,
    )


def _filled(others: ReferenceEdges, features: Tensor, fill: LoopFill) -> Tensor:
    """[N, K] features of new self-loops, by those [E, K] of the other in-edges."""
    out = torch.zeros(others.nodes, features.shape[1], dtype=torch.float64)
    if isinstance(fill, int | float):
        return out.fill_(fill)
    index = others.dst[:, None].expand_as(features)
    # Nodes without other in-edges stay zero, as include_self=False leaves them.
    return out.scatter_reduce(0, index, features, _SCATTERED[fill], include_self=False)
