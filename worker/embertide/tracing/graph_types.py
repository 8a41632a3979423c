"""The node types and relations of a user's graph: from a job, or as they are written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from embertide.errors import ModelError
from embertide.readers.feature_schema import feature_schema
from embertide.spec.manifest import EmbeddingJob, load_manifest
from embertide.spec.relations import Relation
from embertide.storage.protocol import Storage
from embertide.tracing.graphs import GraphTypes

_SHAPE = (
    'write {"nodes": {"user": 64, "item": 0}, "edges": ["user:buys:item"]}: columns of each type\'s'
    " features, 0 without any, and source:name:destination of each relation"
)


def named_types(
    given: str | PathLike[str] | EmbeddingJob | Mapping[str, Any], storage: Storage
) -> GraphTypes:
    """The types of a graph.

    Args:
        given: a job or its file, whose features tell their columns; or ``nodes`` (type -> columns)
            and ``edges`` (relations as text or as triples), as a mapping or as JSON.

    Raises:
        ModelError: it is neither, or a relation is of a node type that is not named.
        ManifestError, StorageError, InputError: of the job, or of its features.
    """
    if isinstance(given, str) and given.lstrip().startswith("{"):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise ModelError(f"the graph is no JSON: {error}; {_SHAPE}") from None
    if isinstance(given, Mapping):
        return _written(given)
    job = given if isinstance(given, EmbeddingJob) else load_manifest(Path(given))
    nodes = {
        node.name: 0
        if node.features is None
        else feature_schema(storage, node.features, f"spec.input.nodes[{at}].features").width
        for at, node in enumerate(job.spec.input.nodes)
    }
    return GraphTypes(nodes, tuple(str(relation) for relation in job.spec.input.relations))


def _written(given: Mapping[str, Any]) -> GraphTypes:
    nodes, edges = given.get("nodes"), given.get("edges")
    if (
        set(given) != {"nodes", "edges"}
        or not isinstance(nodes, Mapping)
        or not isinstance(edges, Sequence)
        or not nodes
        or not all(type(width) is int and width >= 0 for width in nodes.values())
    ):
        raise ModelError(f"the graph is {given!r}; {_SHAPE}")
    types = GraphTypes(
        {str(name): width for name, width in nodes.items()},
        tuple(_relation(edge, nodes) for edge in edges),
    )
    if len(set(types.relations)) < len(types.relations) or not types.relations:
        raise ModelError(f"the graph's relations are {list(edges)!r}; name each once, and one")
    return types


def _relation(edge: Any, nodes: Mapping[str, Any]) -> str:
    text = edge if isinstance(edge, str) else ":".join(map(str, edge))
    try:
        found = Relation.parse(text)
    except ValueError:
        raise ModelError(f"the graph's edges have {edge!r}; {_SHAPE}") from None
    unknown = [name for name in (found.source, found.destination) if name not in nodes]
    if unknown:
        raise ModelError(
            f"the relation {text} is of a node type {unknown[0]!r}, which is not among the graph's"
            f" nodes: {', '.join(nodes)}"
        )
    return text
