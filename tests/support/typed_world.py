"""A graph of several node types in memory, through the pipeline's own stages.

Ranks import this module, so it stays light.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import yaml

from embertide.context import RunContext
from embertide.engine.pipeline.compute import layer_graphs
from embertide.engine.pipeline.prepare import target_of
from embertide.engine.pipeline.typed_graph import TypedGraph, build_types, drop_unread
from embertide.engine.planning.matching import match_relations, narrow
from embertide.engine.stages.features import LoadedNodes, RawFeatures, loaded_features
from embertide.engine.stages.infer import (
    Chosen,
    Engine,
    Keeping,
    Request,
    arrange,
    infer,
)
from embertide.engine.stages.ingest import reverse
from embertide.facts.telemetry.self_check import SelfCheck
from embertide.graph.edge_log import EdgeChunk, EdgeLog
from embertide.graph.exchange import Exchange
from embertide.graph.node_ids import DenseIds
from embertide.graph.shuffle import Edges
from embertide.grid import RowRanges, even_bounds
from embertide.kernels.scratch import Scratch
from embertide.models.reference import LayerGraph, run_typed_reference
from embertide.program.steps import Program
from embertide.spec.manifest import EmbeddingJob, load_manifest
from embertide.spec.relations import Relation
from tests.support.plans import as_given
from tests.support.tasks import GroupRecorder
from tests.support.world import GROUP_BYTES, NoClock, make_checker

COUNTS = {"user": 61, "item": 40, "tag": 3, "lone": 5}
"""Sizes differ, one type has fewer nodes than a grid has workers; ``lone`` has no edges."""
WIDTHS = {"user": 7, "item": 5, "tag": 4}
"""Of the features; ``lone`` has none."""
EDGE_FEATURES = 2
"""Of each edge of ``buys``."""

JOB = """
apiVersion: embertide.dev/v1alpha1
kind: EmbeddingJob
metadata: {name: test}
spec:
  input:
    edges:
      - {name: buys, sourceType: user, destinationType: item, uri: file:///in/buys, format: parquet,
         columns: {weight: w}, reverse: bought_by}
      - {name: follows, sourceType: user, destinationType: user, uri: file:///in/follows,
         format: parquet}
      - {name: has, sourceType: item, destinationType: tag, uri: file:///in/has, format: parquet,
         reverse: of}
      - {name: never, sourceType: tag, destinationType: user, uri: file:///in/never,
         format: parquet}
    nodes:
      - {name: user, count: 61, features: {uri: file:///in/user, format: npy}}
      - {name: item, count: 40, features: {uri: file:///in/item, format: npy}}
      - {name: tag, count: 3, features: {uri: file:///in/tag, format: npy}}
      - {name: lone, count: 5}
  model: {uri: file:///in/model}
  output: {uri: file:///out}
"""


@dataclass(frozen=True)
class Bipartite:
    """The edges of one file: sources and destinations [E] int64, what they carry in float32.

    Weights [E] and features [E, K], or None.
    """

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray | None = None
    features: np.ndarray | None = None


def make_edges() -> dict[str, Bipartite]:
    """Edge type -> its edges: hubs, self-loops, duplicates, nodes without edges, and no edges."""
    g = np.random.default_rng(11)
    buys = g.integers(0, 55, 150), (38 * g.random(150) ** 2).astype(np.int64)
    follows = g.integers(0, 61, 120), g.integers(0, 50, 120)
    has = g.integers(0, 40, 50), g.integers(0, 2, 50)
    nothing = np.empty(0, np.int64)
    carried = np.random.default_rng(12).standard_normal((150, EDGE_FEATURES)).astype(np.float32)
    return {
        "buys": Bipartite(*buys, g.random(150).astype(np.float32) + np.float32(0.5), carried),
        "follows": Bipartite(
            np.concatenate([follows[0], [4, 4, 9]]), np.concatenate([follows[1], [4, 4, 9]])
        ),
        "has": Bipartite(*has),
        "never": Bipartite(nothing, nothing),
    }


def make_typed_job(rows: str = "float32", edges: dict[str, Any] | None = None) -> EmbeddingJob:
    """Its files are never opened.

    Args:
        edges: name of an edge type -> what the job says of it beside what it has.
    """
    manifest = yaml.safe_load(JOB)
    for edge in manifest["spec"]["input"]["edges"]:
        edge |= (edges or {}).get(edge["name"], {})
    job = load_manifest(yaml.safe_dump(manifest))
    changed = {"group_bytes": GROUP_BYTES, "rows": rows}
    inference = job.spec.inference.model_copy(update=changed)
    return job.model_copy(update={"spec": job.spec.model_copy(update={"inference": inference})})


def make_typed_features() -> dict[str, torch.Tensor]:
    """Node type -> [N, width] float32."""
    g = torch.Generator().manual_seed(3)
    return {name: torch.randn(COUNTS[name], width, generator=g) for name, width in WIDTHS.items()}


def layer_of(edges: dict[str, Bipartite]) -> dict[str, LayerGraph]:
    """As the reference takes them, with the reverses."""
    found: dict[str, LayerGraph] = {}
    for edge in make_typed_job().spec.input.edges:
        given = edges[edge.name]
        ends = torch.from_numpy(given.src), torch.from_numpy(given.dst)
        weight = None if given.weight is None else torch.from_numpy(given.weight)
        features = None if given.features is None else torch.from_numpy(given.features)
        found[str(edge.relation)] = (*ends, weight, features)
        for turned in edge.relations[1:]:
            found[str(turned)] = (ends[1], ends[0], weight, features)
    return found


def expected_of(
    program: Program, features: dict[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Node type -> [N, D'] float64; of the graph's own features, unless others are given."""
    layers = [layer_of(make_edges())] * program.layers
    return run_typed_reference(program, layers, features or make_typed_features(), COUNTS)


def embed_types(
    exchange: Exchange, programs: list[Program], rows: str = "float32"
) -> list[dict[str, np.ndarray]]:
    """Our rows of every program's embeddings. Collective: every rank must call."""
    rank = TypedRank(exchange, rows)
    return [rank.embed(program) for program in programs]


Sent = dict[tuple[str, int, str], int]
"""Primitive, layer and relation -> bytes."""


def count_types(
    exchange: Exchange, program: Program, rows: str = "float32"
) -> tuple[dict[str, RowRanges], Sent]:
    """Row ranges of each type, and what this rank received."""
    (found,) = count_each(exchange, [program], rows)
    return found


def count_each(
    exchange: Exchange, programs: list[Program], rows: str = "float32"
) -> list[tuple[dict[str, RowRanges], Sent]]:
    """As :func:`count_types`, of several programs, as on several hosts."""
    exchange.near = [[] for _ in exchange.near]
    exchange.recorder = recorder = GroupRecorder()
    rank = TypedRank(exchange, rows)
    return [_count(rank, recorder, program) for program in programs]


def _count(
    rank: TypedRank, recorder: GroupRecorder, program: Program
) -> tuple[dict[str, RowRanges], Sent]:
    recorder.totals = {}
    rank.embed(program)
    found: Sent = {}
    for label, (_, received) in recorder.totals.items():
        key = label.primitive, label.layer, label.relation
        found[key] = found.get(key, 0) + received
    return {name: of_type.ranges for name, of_type in rank.graph.located.items()}, found


class TypedRank:
    """One rank after the CSR stage. Collective: every rank must call."""

    def __init__(
        self, exchange: Exchange, rows: str = "float32", edges: dict[str, Any] | None = None
    ) -> None:
        job = make_typed_job(rows, edges)
        self.ctx = ctx = RunContext(job, exchange, None, lambda _progress: None)  # type: ignore[arg-type]
        given, features = ctx.job.spec.input, make_typed_features()
        rank, world = exchange.grid.rank, exchange.grid.world
        self.nodes = {}
        for node in given.nodes:
            count = COUNTS[node.name]
            mine = _loaded_rows(rank, world, count) if node.features else np.arange(0)
            values = features[node.name][mine] if node.features else torch.empty(0, 0)
            raw = RawFeatures([], values, placed=False)
            self.nodes[node.name] = LoadedNodes(node, DenseIds(count, rank), raw, mine)
        self.graph = self.build()

    def build(self, program: Program | None = None) -> TypedGraph:
        """The graph of our rows, on disk where the context has it there.

        Collective: every rank must call.

        Args:
            program: whose relations alone are built, without features of edges that it does not
                read; None: all are.
        """
        rank, world = self.ctx.grid.rank, self.ctx.grid.world
        edges: dict[Relation, Edges] = {}
        job = self.ctx.job if program is None else narrow(self.ctx.job, program)
        for edge in job.spec.input.edges:
            given = make_edges()[edge.name]
            if edge.name != "buys" or not reads_features(program):
                given = replace(given, features=None)
            own = _share(given, rank, world, COUNTS[edge.destination_type], self.ctx.disk)
            edges[edge.relation] = own
            for turned in edge.relations[1:]:
                edges[turned] = reverse(own, COUNTS[edge.source_type])
        if program is not None:
            drop_unread(edges, match_relations(self.ctx.job, program))
        return build_types(self.ctx, self.nodes, edges)

    def embed(self, program: Program, keeping: Keeping | None = None) -> dict[str, np.ndarray]:
        """Node type -> [our rows, D'], from layer graphs of its own.

        Collective: every rank must call.
        """
        return self.checked(program, None, keeping)[0]

    def checked(
        self,
        program: Program,
        rows: int | None,
        keeping: Keeping | None = None,
        chosen: Chosen | None = None,
    ) -> tuple[dict[str, np.ndarray], SelfCheck | None]:
        """As :meth:`embed`, with what computing rows of each layer again gives; None: none are.

        Collective: every rank must call.
        """
        names = {name: name for name in dict.fromkeys(program.types.values())}
        ranges, locations = self.graph.of_types(names)
        loaded = {name: loaded_features(self.ctx, self.nodes[name]) for name in program.inputs}
        if (scratch := self.ctx.scratch) is not None:
            for own in loaded.values():
                own.data = scratch.empty(*own.data.shape).data.copy_(own.data)
        clock: Any = NoClock()
        layers = arrange(self.ctx, as_given(program, target_of(self.ctx)), ranges)
        checker = None if rows is None else make_checker(self.ctx, layers, rows)
        graphs = layer_graphs(self.ctx, layers, self.graph, clock, checker)
        engine = Engine.of(self.ctx, layers, graphs, loaded, locations, clock, checker)
        found = infer(engine, Request(chosen=chosen, keeping=keeping))
        checked = None if checker is None else checker.finish()
        return {name: values.numpy() for name, values in found.items()}, checked


def reads_features(program: Program | None) -> bool:
    """Whether edges of ``buys`` have features in a graph that is built for a program."""
    steps = () if program is None else program.steps
    return program is None or any(step.edge_columns for step in steps)


def loaded_by(rank: int, world: int, of_type: str) -> set[int]:
    """The nodes of a type whose features a rank has read."""
    return set(_loaded_rows(rank, world, COUNTS[of_type]).tolist())


def _loaded_rows(rank: int, world: int, nodes: int) -> np.ndarray:
    bounds = even_bounds(nodes, world)
    return np.random.default_rng(8).permutation(nodes)[bounds[rank] : bounds[rank + 1]]


def _share(given: Bipartite, rank: int, world: int, nodes: int, scratch: Scratch | None) -> Edges:
    mine = np.random.default_rng(9).permutation(len(given.src))[rank::world]
    chunks = [
        EdgeChunk(
            given.src[part].astype(np.int32),
            given.dst[part].astype(np.int32),
            None if given.weight is None else given.weight[part],
            None if given.features is None else given.features[part],
        )
        for part in np.array_split(mine, rank + 1)
    ]
    histogram = np.bincount(given.dst[mine], minlength=nodes).astype(np.int64)
    width = 0 if given.features is None else given.features.shape[1]
    edges = Edges([], histogram, 0, given.weight is not None, features=width)
    if scratch is not None:
        kind = np.dtype(np.int32)
        edges.log = EdgeLog(scratch, kind, weighted=edges.weighted, features=width)
    for chunk in chunks:
        edges.add(chunk)
    edges.complete()
    return edges
