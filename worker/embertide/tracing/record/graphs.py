"""The random graphs that a module is traced and proved on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from embertide.spec.relations import Relation

Ends = tuple[str, str]
"""The node types at both ends of a relation: of the sources, of the destinations."""


Categories = Mapping[int, int]
"""Column -> how many categories it has."""


@dataclass(frozen=True)
class GraphTypes:
    """What kinds of nodes and edges a graph has.

    A graph of one node type and one edge type names neither: both are "".

    Attributes:
        nodes: node type -> columns of its features; 0 for a type without.
        relations: each as ``source:name:destination``.
        edge_features: relation -> features of each of its edges, of those that have some.
        reached: whether every node has in-edges along every relation, as a module demands.
        categories: node type -> column of its features -> how many categories it has, whole
            numbers from 0.
        edge_categories: relation -> the same of its edges' features.
        weighted: the relations whose edges have weights; None where nothing states it: all.
    """

    nodes: dict[str, int]
    relations: tuple[str, ...] = ("",)
    edge_features: Mapping[str, int] = field(default_factory=dict)
    reached: bool = False
    categories: Mapping[str, Categories] = field(default_factory=dict)
    edge_categories: Mapping[str, Categories] = field(default_factory=dict)
    weighted: frozenset[str] | None = None

    @property
    def typed(self) -> bool:
        """Whether types have names."""
        return "" not in self.nodes

    def ends(self, relation: str) -> Ends:
        """The node types that a relation leads from and to."""
        if not self.typed:
            return "", ""
        parsed = Relation.parse(relation)
        return parsed.source, parsed.destination

    def weighs(self, relation: str) -> bool:
        """Whether a relation's edges have weights."""
        return self.weighted is None or relation in self.weighted

    def triple(self, relation: str) -> tuple[str, str, str]:
        """A relation as PyG and DGL have it."""
        parsed = Relation.parse(relation)
        return parsed.source, parsed.name, parsed.destination

    def __str__(self) -> str:
        nodes = ", ".join(f"{name} ({width or 'no'} columns)" for name, width in self.nodes.items())
        relations = ", ".join(map(self._shown, self.relations))
        return f"node types {nodes} and relations {relations}"

    def _shown(self, relation: str) -> str:
        columns = self.edge_features.get(relation)
        return f"{relation} ({columns} columns)" if columns else relation


@dataclass(frozen=True)
class RandomEdges:
    """The edges of a relation.

    Attributes:
        src, dst: [E] the ends of each edge.
        weight: [E] positive, float64.
        features: [E, K] float64, or None.
    """

    src: Tensor
    dst: Tensor
    weight: Tensor
    features: Tensor | None = None

    @property
    def edge_index(self) -> Tensor:
        """[2, E], as PyG has it."""
        return torch.stack([self.src, self.dst])

    def single(self) -> RandomEdges:
        """The same with weights and features in float32."""
        features = None if self.features is None else self.features.float()
        return replace(self, weight=self.weight.float(), features=features)


@dataclass(frozen=True)
class RandomGraph:
    """A small graph with what real ones have: hubs, loops, duplicates, nodes without edges.

    Attributes:
        counts: node type -> N; no two are equal where a module is recorded.
        x: node type -> [N, D] features, float64, of those that have some.
        edges: relation -> its edges.
    """

    types: GraphTypes
    counts: dict[str, int]
    x: dict[str, Tensor]
    edges: dict[str, RandomEdges]

    def shape(self, relation: str) -> tuple[int, int]:
        """Nodes that a relation leads to, and nodes that it leads from."""
        source, destination = self.types.ends(relation)
        return self.counts[destination], self.counts[source]

    def numbers(self, node_type: str) -> Tensor:
        """[N] the number of each node of a type."""
        return torch.arange(self.counts[node_type])

    def single(self) -> RandomGraph:
        """The same graph with all numbers in float32."""
        x = {name: features.float() for name, features in self.x.items()}
        edges = {relation: own.single() for relation, own in self.edges.items()}
        return replace(self, x=x, edges=edges)

    @property
    def dtype(self) -> torch.dtype:
        """The type of all numbers."""
        return next(iter(self.edges.values())).weight.dtype

    @property
    def edge_count(self) -> int:
        """The number of edges of all relations."""
        return sum(len(edges.src) for edges in self.edges.values())

    @property
    def merged(self) -> dict[str, Tensor]:
        """What all nodes have, type after type, and all edges, relation after relation.

        Returns:
            Role -> [2, E] the ends of edges, [E] their weights, [E] the number of each one's
            relation, [E, 1] one divided by the in-edges of its end along it (``norm``), [N] the
            number of each node's type; with several node types [N, D] the features, where all
            have as many.
        """
        first = dict(zip(self.counts, accumulate(self.counts.values(), initial=0), strict=False))
        by_role: dict[str, list[Tensor]] = {}
        for at, (relation, edges) in enumerate(self.edges.items()):
            source, destination = self.types.ends(relation)
            ends = edges.src + first[source], edges.dst + first[destination]
            by_role.setdefault("edge_index", []).append(torch.stack(ends))
            by_role.setdefault("edge_weight", []).append(edges.weight)
            by_role.setdefault("edge_type", []).append(torch.full_like(edges.src, at))
            share = 1.0 / torch.bincount(edges.dst).to(edges.weight.dtype)[edges.dst]
            by_role.setdefault("norm", []).append(share.unsqueeze(1))
        kinds = [torch.full((count,), at) for at, count in enumerate(self.counts.values())]
        merged = {
            role: torch.cat(parts, dim=-1 if role == "edge_index" else 0)
            for role, parts in by_role.items()
        }
        merged["node_type"] = torch.cat(kinds)
        if len(self.x) > 1 and len({x.shape[1] for x in self.x.values()}) == 1:
            merged["x"] = torch.cat(list(self.x.values()))
        return merged


EndsOfEdges = tuple[Tensor, Tensor]
"""[E] sources and [E] destinations."""
EdgeMaker = Callable[[torch.Generator, int, int, bool], EndsOfEdges]
"""Edges of nodes in numbers, of sources and destinations; only within a type some are loops."""


def random_edges(g: torch.Generator, sources: int, destinations: int, within: bool) -> EndsOfEdges:
    """Hubs, duplicates and loops; the last nodes have no edges, some others no in-edges."""
    ends, others = sources - sources // 8, destinations - destinations // 4
    src = torch.randint(0, ends, (4 * sources,), generator=g)
    dst = torch.randint(0, others, (4 * sources,), generator=g)
    plain = src != dst if within else torch.ones_like(src, dtype=torch.bool)
    hub = torch.arange(1, min(sources, destinations) // 2)
    loops = torch.arange(0, others, 3) if within else hub[:0]
    src = torch.cat([src[plain], hub, torch.zeros_like(hub), src[plain][:9], loops])
    dst = torch.cat([dst[plain], torch.zeros_like(hub), hub, dst[plain][:9], loops])
    return src, dst


def random_graph(
    types: GraphTypes, nodes: int, seed: int, maker: EdgeMaker = random_edges, step: int = 3
) -> RandomGraph:
    """A graph with random features, edge weights and features of edges.

    Args:
        nodes: of the first node type.
        maker: makes the edges of each relation.
        step: how many more nodes each other type has than the one before.
    """
    g = torch.Generator().manual_seed(seed)
    counts = {name: nodes + step * at for at, name in enumerate(types.nodes)}
    edges = {}
    for relation in types.relations:
        source, destination = types.ends(relation)
        ends = maker(g, counts[source], counts[destination], source == destination)
        drawn = RandomEdges(
            *ends, torch.rand(len(ends[0]), generator=g, dtype=torch.float64) + 0.25
        )
        if types.reached and len(drawn.src):
            drawn = _reaching(drawn, counts[source], counts[destination])
        columns = types.edge_features.get(relation)
        if columns:
            shape = len(drawn.src), columns
            values = torch.randn(shape, generator=g, dtype=torch.float64)
            values = with_categories(values, types.edge_categories.get(relation, {}), g)
            drawn = replace(drawn, features=values)
        edges[relation] = drawn
    x = {
        name: with_categories(
            torch.randn(counts[name], width, generator=g, dtype=torch.float64),
            types.categories.get(name, {}),
            g,
        )
        for name, width in types.nodes.items()
        if width
    }
    return RandomGraph(types, counts, x, edges)


def with_categories(values: Tensor, categories: Categories, g: torch.Generator) -> Tensor:
    """The same with categories in some columns, each of them if there are as many rows."""
    for column, count in categories.items():
        order = torch.randperm(len(values), generator=g)
        values[:, column] = (order % count).to(values.dtype)
    return values


def as_passed(features: Tensor, categories: Categories) -> Tensor:
    """Features as ``forward`` gets them: whole numbers where all columns are categories."""
    return features.long() if categories and features.shape[1] == len(categories) else features


def _reaching(edges: RandomEdges, sources: int, destinations: int) -> RandomEdges:
    """The same with an edge to every node that has none."""
    left = torch.ones(destinations, dtype=torch.bool)
    left[edges.dst] = False
    new = left.nonzero().flatten()
    src, dst = torch.cat([edges.src, (new + 1) % sources]), torch.cat([edges.dst, new])
    places = torch.arange(len(new)) % len(edges.weight)
    return RandomEdges(src, dst, torch.cat([edges.weight, edges.weight[places]]))
