"""The graphs that a module is proved on: each has something that a real graph may have.

Where a module does something else on one of them, such as a branch on the number of nodes, it
differs from the program there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from embertide.tracing.record.graphs import (
    EdgeMaker,
    EndsOfEdges,
    GraphTypes,
    RandomEdges,
    RandomGraph,
    random_graph,
)

NODES, SEED = 41, 2
LARGE = 300
"""Nodes of the largest graph."""


@dataclass(frozen=True)
class Trial:
    """A graph to compare on.

    Attributes:
        name: what is special about it.
        usual: whether every module has to run on it; some fail on a graph without edges.
    """

    name: str
    graph: RandomGraph
    usual: bool = False


def trials(types: GraphTypes) -> Iterator[Trial]:
    """All graphs, the plain one first; graphs without edges only where a module allows them."""
    plain = random_graph(types, NODES, SEED)
    yield Trial("a random graph", plain, usual=True)
    yield Trial("the same graph with its edges in another order", _reordered(plain), usual=True)
    yield Trial(f"a graph of {LARGE} nodes", random_graph(types, LARGE, SEED + 1), usual=True)
    large, small = (random_graph(types, 23 + at, SEED + 2 + at) for at in range(2))
    yield Trial("a graph with features 5 times as large", _scaled(large, 5.0))
    yield Trial("a graph with features of zeros", _scaled(small, 0.0))
    yield Trial("a graph with edge weights of zero", _light(random_graph(types, 28, SEED + 9)))
    for at, (name, nodes, maker) in enumerate(_SHAPES):
        step = 0 if nodes == 1 else 3
        graph = random_graph(types, nodes, SEED + 4 + at, maker, step)
        if graph.edge_count or not types.reached:
            yield Trial(name, graph)


def _simple(g: torch.Generator, sources: int, destinations: int, within: bool) -> EndsOfEdges:
    """Every pair at most once, and no loops."""
    chosen = torch.rand(sources, destinations, generator=g) < 0.15
    if within:
        chosen.fill_diagonal_(False)
    src, dst = chosen.nonzero().T
    return src, dst


def _ring(_g: torch.Generator, sources: int, destinations: int, within: bool) -> EndsOfEdges:
    """Edges out of every node and into every node."""
    every = torch.arange(max(sources, destinations))
    return every % sources, (every + within) % destinations


def _loops(_g: torch.Generator, sources: int, destinations: int, _within: bool) -> EndsOfEdges:
    """Loops alone; between two types an edge for each pair of nodes with one number."""
    every = torch.arange(min(sources, destinations))
    return every, every.clone()


def _none(_g: torch.Generator, _s: int, _d: int, _within: bool) -> EndsOfEdges:
    nothing = torch.zeros(0, dtype=torch.int64)
    return nothing, nothing.clone()


_SHAPES: tuple[tuple[str, int, EdgeMaker], ...] = (
    ("a graph without self-loops and duplicate edges", 26, _simple),
    ("a graph in which every node has edges", 22, _ring),
    ("a graph whose only edges are self-loops", 12, _loops),
    ("a graph without edges", 9, _none),
    ("a graph of one node with a self-loop", 1, _loops),
    ("a graph of one node without edges", 1, _none),
)


def _reordered(graph: RandomGraph) -> RandomGraph:
    g = torch.Generator().manual_seed(SEED)

    def shuffled(edges: RandomEdges) -> RandomEdges:
        order = torch.randperm(len(edges.src), generator=g)
        features = None if edges.features is None else edges.features[order]
        return RandomEdges(edges.src[order], edges.dst[order], edges.weight[order], features)

    return replace(graph, edges={name: shuffled(edges) for name, edges in graph.edges.items()})


def _light(graph: RandomGraph) -> RandomGraph:
    """With weights of zero at every third edge, and at all edges into the first nodes."""

    def light(edges: RandomEdges) -> RandomEdges:
        zero = (torch.arange(len(edges.src)) % 3 == 0) | (edges.dst < 4)
        return replace(edges, weight=edges.weight.masked_fill(zero, 0.0))

    return replace(graph, edges={name: light(edges) for name, edges in graph.edges.items()})


def nudged(graph: RandomGraph) -> RandomGraph:
    """The same graph with features that differ by a rounding, of 1 where they are less."""
    g = torch.Generator().manual_seed(SEED)
    x = {}
    for name, features in graph.x.items():
        noise = torch.empty_like(features).uniform_(-1, 1, generator=g)
        noise[:, list(graph.types.categories.get(name, {}))] = 0.0
        x[name] = features + noise * features.abs().clamp(min=1.0) * torch.finfo(features.dtype).eps
    return replace(graph, x=x)


def _scaled(graph: RandomGraph, factor: float) -> RandomGraph:
    scaled = {}
    for name, x in graph.x.items():
        columns = list(graph.types.categories.get(name, {}))
        scaled[name] = x * factor
        scaled[name][:, columns] = x[:, columns]
    return replace(graph, x=scaled)
