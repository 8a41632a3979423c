"""The graph that ranks build from a job's files; light to import, like all that ranks import."""

from __future__ import annotations

from typing import Any

import numpy as np

from embertide.context import RunContext
from embertide.engine.pipeline.typed_graph import Located, build_types, ingest_types, load_types
from embertide.engine.planning.inputs import list_inputs
from embertide.graph.exchange import Exchange
from embertide.io.storage.opening import open_storage
from embertide.kernels.csr import Csr
from embertide.spec.manifest import EmbeddingJob

Edge = tuple[Any, ...]
"""(source id, destination id, weight, features); weight 1 where edges have none."""
Built = dict[str, list[Edge]]
"""Relation -> the edges into a rank's rows."""


def build_graphs(exchange: Exchange, jobs: list[EmbeddingJob]) -> list[Built]:
    """Each job's edges into our rows. Collective: every rank must call."""
    return [_build(exchange, job) for job in jobs]


def all_edges(ranks: list[list[Built]], number: int) -> Built:
    """Relation -> all edges of one of the jobs, in order, from what its ranks built."""
    built = [rank[number] for rank in ranks]
    return {name: sorted(edge for rank in built for edge in rank[name]) for name in built[0]}


def _build(exchange: Exchange, job: EmbeddingJob) -> Built:
    storage = open_storage(None)
    ctx = RunContext(job, exchange, storage, lambda _progress: None)
    inputs = list_inputs(storage, job)
    nodes = load_types(ctx, inputs)
    graph = build_types(ctx, nodes, ingest_types(ctx, inputs, nodes))
    names = {name: _names(exchange, located) for name, located in graph.located.items()}
    return {
        str(relation): _edges(csr, names[relation.source], names[relation.destination])
        for relation, csr in graph.sub_ranges.items()
    }


def _names(exchange: Exchange, located: Located) -> list[Any]:
    """[N] the ids in the files of all nodes of a type, by dense id."""
    own = exchange.all_objects(np.asarray(located.names).tolist())
    assert [len(part) for part in own] == np.diff(located.ranges.workers).tolist()
    return [name for part in own for name in part]


def _edges(csr: Csr, sources: list[Any], destinations: list[Any]) -> list[Edge]:
    rows = (csr.row_ids() + csr.first).tolist()
    weights = [1.0] * csr.nnz if csr.weights is None else csr.weights.tolist()
    features = [[]] * csr.nnz if csr.features is None else csr.features.tolist()
    carried = zip(csr.cols.tolist(), rows, weights, features, strict=True)
    return [(sources[col], destinations[row], w, *own) for col, row, w, own in carried]
