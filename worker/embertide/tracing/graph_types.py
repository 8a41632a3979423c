"""The node types and relations of a user's graph: from a job, or as they are written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from embertide.errors import ModelError
from embertide.io.readers.edges import edge_feature_width
from embertide.io.readers.feature_schema import feature_schema
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.relations import Relation
from embertide.submit.template import job_to_read
from embertide.tracing.record.graphs import GraphTypes

_SHAPE = (
    'write {"nodes": {"user": 64, "item": 0}, "edges": ["user:buys:item"]}: columns of each type\'s'
    " features, 0 without any, and source:name:destination of each relation; where edges have"
    ' features, {"user:buys:item": 3} gives their columns'
)


def named_types(
    graph: str | PathLike[str] | EmbeddingJob | Mapping[str, Any], storage: Storage
) -> GraphTypes:
    """The types of a graph.

    Args:
        graph: a job or its file, whose features show their columns; or ``nodes`` (type -> columns)
            and ``edges`` (relations as text or as triples, in a list or, where edges have
            features, as relation -> columns), as a mapping or as JSON.

    Raises:
        ModelError: it is neither, or a relation is of a node type that is not named.
        ManifestError, StorageError, InputError: of the job, or of its features.
    """
    if isinstance(graph, str) and graph.lstrip().startswith("{"):
        try:
            graph = json.loads(graph)
        except ValueError as error:
            raise ModelError(f"the graph is no JSON: {error}; {_SHAPE}") from None
    if isinstance(graph, Mapping):
        return written_types(graph)
    job = graph if isinstance(graph, EmbeddingJob) else job_to_read(Path(graph))
    nodes = {
        node.name: 0
        if node.features is None
        else feature_schema(storage, node.features, f"spec.input.nodes[{at}].features").width
        for at, node in enumerate(job.spec.input.nodes)
    }
    features = {
        str(relation): columns
        for edge in job.spec.input.edges
        if (columns := edge_feature_width(storage, edge))
        for relation in edge.relations
    }
    relations = tuple(str(relation) for relation in job.spec.input.relations)
    weighted = frozenset(
        str(relation)
        for edge in job.spec.input.edges
        if edge.columns.weight is not None
        for relation in edge.relations
    )
    return GraphTypes(nodes, relations, features, weighted=weighted or None)


def written_types(graph: Mapping[str, Any]) -> GraphTypes:
    """The types of a graph as they are written: ``nodes`` and ``edges``, as for `named_types`.

    Raises:
        ModelError: they are something else, or a relation is of a node type that is not named.
    """
    nodes, edges = graph.get("nodes"), graph.get("edges")
    if (
        set(graph) != {"nodes", "edges"}
        or not isinstance(nodes, Mapping)
        or not isinstance(edges, Sequence | Mapping)
        or not nodes
        or not all(map(_is_width, nodes.values()))
        or (isinstance(edges, Mapping) and not all(map(_is_width, edges.values())))
    ):
        raise ModelError(f"the graph is {graph!r}; {_SHAPE}")
    relations = tuple(_relation(edge, nodes) for edge in edges)
    columns = edges.values() if isinstance(edges, Mapping) else [0] * len(relations)
    types = GraphTypes(
        {str(name): width for name, width in nodes.items()},
        relations,
        {name: width for name, width in zip(relations, columns, strict=True) if width},
    )
    if len(set(types.relations)) < len(types.relations) or not types.relations:
        raise ModelError(f"the graph's relations are {list(edges)!r}; name each once, and one")
    return types


def _is_width(value: Any) -> bool:
    return type(value) is int and value >= 0


def _relation(edge: Any, nodes: Mapping[str, Any]) -> str:
    text = edge if isinstance(edge, str) else ":".join(map(str, edge))
    try:
        relation = Relation.parse(text)
    except ValueError:
        raise ModelError(f"the graph's edges have {edge!r}; {_SHAPE}") from None
    unknown = [name for name in (relation.source, relation.destination) if name not in nodes]
    if unknown:
        raise ModelError(
            f"the relation {text} is of a node type {unknown[0]!r}, which is not among the graph's"
            f" nodes: {', '.join(nodes)}"
        )
    return text
