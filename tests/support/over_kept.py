"""What one rank does for the tests of rows that are computed over kept ones; light to import."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from embertide.engine.pipeline.compute import layer_graphs
from embertide.engine.pipeline.prepare import target_of
from embertide.engine.pipeline.typed_graph import Located, TypedGraph
from embertide.engine.stages.changes import count_degrees, keep_degrees, read_degrees
from embertide.engine.stages.features import (
    LoadedNodes,
    RawFeatures,
    loaded_features,
    locate_features,
)
from embertide.engine.stages.infer import (
    Engine,
    Keeping,
    KeptRows,
    OverKept,
    arrange,
    check_over_kept,
    infer_over_kept,
)
from embertide.errors import InputError
from embertide.facts.telemetry.kept import KeptFacts
from embertide.graph.exchange import Exchange
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.store import LayerStore
from embertide.program.plans.flow import kinds_read, why_whole
from embertide.program.steps import Program
from tests.support.plans import as_given
from tests.support.world import NODES, Graph, NoClock, Rank, make_features, make_job

RECORD = "0" * 32
NEW = ((5, 97), (2, 97), (90, 97), (97, 98), (7, 98), (98, 98))
"""Edges into two new nodes, of which the second reads the first."""
ALONE = ((81, 97), (83, 97), (97, 98), (85, 98), (98, 98))
"""The same from nodes that have no in-edges."""
ASKED = 98


@dataclass(frozen=True)
class Answer:
    """The row of a new node.

    Attributes:
        row, expected: [D'] over kept rows; and of a run of all rows over the old edges and those
            of the new nodes.
        why: why it cannot be computed over kept rows; "": it can.
        exact: rows have the same bits among other rows.
        computed: nodes of which rows were computed.
    """

    row: np.ndarray | None
    expected: np.ndarray
    why: str = ""
    exact: bool = False
    computed: int = 0
    edges: int = 0


def _with_edges(graph: Graph, edges: tuple[tuple[int, int], ...], nodes: int) -> Graph:
    src, dst = np.array(edges).T
    more, weight, features = len(edges), graph.weight, graph.features
    if weight is not None:
        weight = np.concatenate([weight, np.linspace(0.5, 1.5, more, dtype=np.float32)])
    if features is not None:
        features = np.concatenate([features, np.ones((more, features.shape[1]), np.float32)])
    ends = np.concatenate([graph.src, src]), np.concatenate([graph.dst, dst])
    return Graph(*ends, weight, nodes, features)


def _only(graph: Graph, keep: np.ndarray) -> Graph:
    weight, features = (None if x is None else x[keep] for x in (graph.weight, graph.features))
    return replace(
        graph, src=graph.src[keep], dst=graph.dst[keep], weight=weight, features=features
    )


def _with_old_degrees(graph: Graph) -> Graph:
    """Without an edge of each old source of new edges, of which no row that is compared is made."""
    keep = np.ones(len(graph.src), bool)
    for source in {source for source, _ in ALONE if source < NODES}:
        keep[np.flatnonzero(graph.src == source)[0]] = False
    return _only(graph, keep)


def over_kept_cases(
    exchange: Exchange, cases: Mapping[str, tuple[Program, bool, Graph]], uri: str
) -> dict[str, Answer]:
    """The row of a new node by each program. Collective: the only rank calls."""
    return {
        name: over_kept(exchange, program, graph, f"{uri}/{number}", weighted=weighted)
        for number, (name, (program, weighted, graph)) in enumerate(cases.items())
    }


def over_kept(
    exchange: Exchange, program: Program, graph: Graph, uri: str, *, weighted: bool
) -> Answer:
    """Keep the rows of a graph, add nodes to it, change others of its edges, and compute a row."""
    job = make_job(weighted=weighted)
    features = make_features(program.input_width, NODES + 2)
    key = hashlib.sha256(uri.encode()).hexdigest()[:32]
    store = LayerStore(open_storage(None), uri, key, "20261127T180000Z-3fa9c1")
    before = Rank(exchange, graph, job)
    before.ctx.graph_facts.kept = KeptFacts()
    before.embed(program, features[:NODES], Keeping(store, range(99), results=True))
    relation = program.relations[0] if program.relations else ""
    kinds = kinds_read(program, {relation: graph.weight is not None})
    ranges = {"": before.ranges}
    degrees = count_degrees(exchange, ranges, {relation: before.sub_range}, kinds)  # type: ignore[dict-item]
    assert not keep_degrees(exchange, store, RECORD, degrees, ranges)

    out = any(kind.end == "out" for kind in kinds)
    hybrid = _with_edges(graph, ALONE if out else NEW, NODES + 2)
    compared = _with_old_degrees(hybrid) if out else hybrid
    expected = Rank(exchange, compared, job).embed(program, features)[ASKED]
    # Edges of other nodes have changed, too: two are gone, and there are two more.
    now = _with_edges(
        _only(hybrid, np.arange(len(hybrid.src)) > 1), ((31, 60), (88, 61)), NODES + 2
    )
    wanted = torch.zeros(NODES + 2, dtype=torch.bool)
    wanted[NODES:] = True
    own = wanted.numpy()
    rank = Rank(exchange, _only(now, own[now.src] | own[now.dst]), job)
    try:
        over = _compute(rank, program, features, store, kinds, wanted)
    except InputError as error:
        return Answer(None, expected, str(error))
    plan = as_given(program, target_of(rank.ctx))
    exact = not why_whole(plan, sampled=False)
    computed = int(over.computed[""].sum())
    return Answer(over.rows[""][0].numpy(), expected, "", exact, computed, over.edges)


def _compute(
    rank: Rank,
    program: Program,
    features: torch.Tensor,
    store: LayerStore,
    kinds: list,  # type: ignore[type-arg]
    wanted: torch.Tensor,
) -> OverKept:
    ctx, every = rank.ctx, np.arange(len(features))
    (node,), raw = ctx.job.spec.input.nodes, RawFeatures([], features, placed=False)
    nodes = LoadedNodes(node, rank.ids, raw, every)
    locations = locate_features(ctx, nodes, rank.ranges)
    located = Located(rank.ranges, locations, rank.names, rank.keys)
    graph = TypedGraph({node.name: located}, {rank.relation: rank.sub_range})
    layers = arrange(ctx, as_given(program, target_of(ctx)), {"": rank.ranges})
    check_over_kept(layers.plan, sampled=False)
    graphs = layer_graphs(ctx, layers, graph, NoClock())
    before = torch.arange(len(features))
    before[wanted] = -1
    then = read_degrees(store, RECORD, kinds, {"": before})
    kept = KeptRows(store=store, basis="", before={"": before}, degrees=then)
    chosen = torch.zeros(len(features), dtype=torch.bool)
    chosen[ASKED] = True
    loaded = {"": loaded_features(ctx, nodes)}
    engine = Engine.of(ctx, layers, graphs, loaded, {"": locations}, NoClock())
    return infer_over_kept(engine, lambda _of, rows: features[rows], kept, {"": chosen})
