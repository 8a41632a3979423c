"""A job without files: graphs and features in memory, through the pipeline's own stages.

Ranks import this module, so it stays light.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from embertide.context import RunContext
from embertide.engine.pipeline.compute import layer_graphs
from embertide.engine.pipeline.prepare import target_of
from embertide.engine.pipeline.typed_graph import Located, TypedGraph
from embertide.engine.stages.csr import build_graph, choose_ranges
from embertide.engine.stages.features import (
    LoadedNodes,
    RawFeatures,
    loaded_features,
    locate_features,
)
from embertide.engine.stages.infer import (
    Arrangement,
    Chosen,
    Engine,
    Keeping,
    Request,
    arrange,
    infer,
)
from embertide.facts.telemetry.self_check import SelfCheck
from embertide.graph.edge_log import EdgeChunk
from embertide.graph.exchange import Exchange
from embertide.graph.node_ids import DenseIds
from embertide.graph.shuffle import Edges
from embertide.grid import even_bounds
from embertide.kernels.spilled_csr import AnyCsr
from embertide.layouts import ROW_TYPES
from embertide.program.selfcheck.checker import Checker
from embertide.program.selfcheck.judge import Limits
from embertide.program.steps import Program
from embertide.program.steps.reference import LayerGraph
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.plans import as_given
from tests.support.step_program import EDGE_FEATURES

NODES = 97
GROUP_BYTES = 512
"""Ten whole rows of 12 columns: every remote exchange takes many groups."""


@dataclass(frozen=True)
class Graph:
    """Sources and destinations [E] int64, weights [E] and features [E, K] float32 or None."""

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray | None = None
    nodes: int = NODES
    features: np.ndarray | None = None

    def layer(self) -> LayerGraph:
        """As the reference takes it."""
        weight, features = (
            None if given is None else torch.from_numpy(given)
            for given in (self.weight, self.features)
        )
        return torch.from_numpy(self.src), torch.from_numpy(self.dst), weight, features


def make_graph(
    *, directed: bool = True, weighted: bool = False, seed: int = 4, features: int = 0
) -> Graph:
    """Hubs of both kinds, self-loops (several on one node), duplicates, isolated nodes.

    The last four nodes are isolated; in the directed graph 80..92 have no in-edges.
    """
    g = np.random.default_rng(seed)
    src, dst = g.integers(0, 93, 420), (80 * g.random(420) ** 2).astype(np.int64)
    hub, loops = np.arange(60), np.array([3, 7, 7, 7, 50, 90])
    src = np.concatenate([src, hub, np.full_like(hub, 90), loops, src[:30]])
    dst = np.concatenate([dst, np.full_like(hub, 2), hub, loops, dst[:30]])
    weight = g.random(len(src)).astype(np.float32) + np.float32(0.25)
    if not directed:
        other = src != dst
        src, dst = np.concatenate([src, dst[other]]), np.concatenate([dst, src[other]])
        weight = np.concatenate([weight, weight[other]])
    carried = None
    if features:
        # The first column tells few apart, so that the others decide which of equal edges is first.
        carried = g.standard_normal((len(src), features)).astype(np.float32)
        carried[:, 0] = carried[:, 0].round()
    return Graph(src, dst, weight if weighted else None, features=carried)


GRAPHS = {
    (kind, weighted): make_graph(directed=kind == "directed", weighted=weighted)
    for kind in ("directed", "undirected")
    for weighted in (False, True)
} | {
    ("featured", weighted): make_graph(weighted=weighted, features=EDGE_FEATURES)
    for weighted in (False, True)
}


@dataclass(frozen=True)
class Case:
    """A program and the graph that it runs on: of a kind of :data:`GRAPHS`, or of ``types``."""

    program: Program
    kind: str
    weighted: bool

    @property
    def graph(self) -> Graph:
        return GRAPHS[self.kind, self.weighted]


def make_features(width: int, nodes: int = NODES) -> torch.Tensor:
    """[N, width] float32."""
    return torch.randn(nodes, width, generator=torch.Generator().manual_seed(6))


def make_job(
    *, weighted: bool = False, group_bytes: int = GROUP_BYTES, **more: Any
) -> EmbeddingJob:
    """A job whose files are never opened; ``more`` goes to ``inference``."""
    job = _loaded(weighted)
    # Copied without the check that groups are at least 4 KiB: these graphs are tiny.
    inference = job.spec.inference.model_copy(update={"group_bytes": group_bytes, **more})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"inference": inference})})


@functools.cache
def _loaded(weighted: bool) -> EmbeddingJob:
    """Read once, for all jobs of a process."""
    columns = "{source: s, destination: d, weight: w}" if weighted else "{}"
    return load_manifest(f"""
apiVersion: embertide.dev/v1alpha1
kind: EmbeddingJob
metadata: {{name: test}}
spec:
  input:
    edges: [{{uri: file:///in/edges, format: parquet, columns: {columns}}}]
    nodes: [{{count: {NODES}, features: {{uri: file:///in/x, format: npy}}}}]
  model: {{uri: file:///in/model}}
  output: {{uri: file:///out}}
""")


class NoClock:
    """Stands in for the clock of a run."""

    @staticmethod
    def stage(_name: str) -> nullcontext[None]:
        return nullcontext()

    @staticmethod
    def layer(_number: int) -> nullcontext[None]:
        return nullcontext()


class Rank:
    """One rank after the CSR stage. Collective: every rank must call.

    Attributes:
        placed: one rank loads all features in the order of their nodes, if they are in memory.
    """

    placed = False

    def __init__(self, exchange: Exchange, graph: Graph, job: EmbeddingJob) -> None:
        self.ctx = RunContext(job, exchange, None, lambda _progress: None)  # type: ignore[arg-type]
        self.graph = graph
        self.edges = _share_edges(graph, exchange.grid.rank, exchange.grid.world)
        self.ranges = choose_ranges(self.ctx, [self.edges], graph.nodes)
        self.sub_range = self.build()
        self.relation = job.spec.input.edges[0].relation
        self.ids = DenseIds(graph.nodes, exchange.grid.rank)
        self.names, self.keys = self.ids.original(self.ranges)

    def build(self) -> AnyCsr:
        """The graph of our rows, on disk where the context has it there.

        Collective: every rank must call.
        """
        edge, grid = self.ctx.job.spec.input.edges[0], self.ctx.grid
        edges = _share_edges(self.graph, grid.rank, grid.world)
        return build_graph(self.ctx, edge, edges, self.ranges, self.graph.nodes)

    def embed(
        self, program: Program, features: torch.Tensor, keeping: Keeping | None = None
    ) -> np.ndarray:
        """[our rows, D'], from layer graphs of its own. Collective: every rank must call."""
        return self.checked(program, features, None, keeping=keeping)[0]

    def checked(
        self,
        program: Program,
        features: torch.Tensor,
        rows: int | None,
        seed: int = 5,
        keeping: Keeping | None = None,
        chosen: Chosen | None = None,
    ) -> tuple[np.ndarray, SelfCheck | None]:
        """As :meth:`embed`, with what computing rows of each layer again gives; None: none are.

        Collective: every rank must call.
        """
        on_disk, mine = self.ctx.scratch is not None, np.arange(len(features))
        if not self.placed:
            mine = loaded_rows(self.ctx.grid.rank, self.ctx.grid.world, len(features))
        (node,), values = self.ctx.job.spec.input.nodes, features[mine]
        if self.ctx.scratch is not None:
            values = self.ctx.scratch.empty(*values.shape).data.copy_(values)
        placed, to_place = self.placed and not on_disk, self.placed and on_disk
        raw = RawFeatures([], values, placed=placed, to_place=to_place)
        nodes = LoadedNodes(node, self.ids, raw, mine)
        locations = locate_features(self.ctx, nodes, self.ranges)
        located = Located(self.ranges, locations, self.names, self.keys)
        graph = TypedGraph({node.name: located}, {self.relation: self.sub_range})
        clock = NoClock()
        layers = arrange(self.ctx, as_given(program, target_of(self.ctx)), {"": self.ranges})
        checker = None if rows is None else make_checker(self.ctx, layers, rows, seed)
        graphs = layer_graphs(self.ctx, layers, graph, clock, checker)
        loaded = loaded_features(self.ctx, nodes)
        at = {"": locations}
        engine = Engine.of(self.ctx, layers, graphs, {"": loaded}, at, clock, checker)
        embeddings = infer(engine, Request(chosen=chosen, keeping=keeping))
        found = None if checker is None else checker.finish()
        return embeddings[""].cpu().numpy(), found


def make_checker(ctx: RunContext, layers: Arrangement, rows: int, seed: int = 5) -> Checker:
    """Computes so many rows of each node type and phase again."""
    return Checker(
        exchange=layers.exchange,
        plan=layers.plan,
        ranges=layers.ranges,
        wanted=rows,
        seed=seed,
        limits=Limits(ROW_TYPES[ctx.job.spec.inference.rows]),
        name_of=lambda _node_type, node: str(node),
    )


def loaded_rows(rank: int, world: int, nodes: int) -> np.ndarray:
    """The nodes whose features a rank read: scattered, and the last of several read none."""
    order = np.random.default_rng(8).permutation(nodes)
    readers = max(1, world - 1)
    bounds = [*even_bounds(nodes, readers), nodes]
    return order[bounds[rank] : bounds[rank + 1]]


def read_edges_of(graph: Graph, rank: int, world: int) -> list[np.ndarray]:
    """The edges that a rank read, in ``rank + 1`` chunks: ranks differ in their rounds."""
    mine = np.random.default_rng(9).permutation(len(graph.src))[rank::world]
    return np.array_split(mine, rank + 1)


def _share_edges(graph: Graph, rank: int, world: int) -> Edges:
    batches = read_edges_of(graph, rank, world)
    chunks = [
        EdgeChunk(
            graph.src[batch].astype(np.int32),
            graph.dst[batch].astype(np.int32),
            None if graph.weight is None else graph.weight[batch],
            None if graph.features is None else graph.features[batch],
        )
        for batch in batches
    ]
    mine = np.concatenate(batches)
    histogram = np.bincount(graph.dst[mine], minlength=graph.nodes)
    width = 0 if graph.features is None else graph.features.shape[1]
    return Edges(chunks, histogram, 0, graph.weight is not None, len(mine), width)
