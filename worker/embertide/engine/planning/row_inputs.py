"""What rows are made of: the objects of a node type's features and of a relation's edges.

The graph of an edge type is made of its edges' objects, and of which nodes there are.

Two runs with the same ones have the same features of each node, and the same edges between the same
nodes, so that these need not be compared row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from embertide._version import __version__
from embertide.engine.planning.inputs import Inputs
from embertide.io.readers.splits import Split
from embertide.spec.edges import EdgeInput
from embertide.spec.identity import digest_of
from embertide.spec.job_digest import edge_fields, job_digest
from embertide.spec.manifest import EmbeddingJob


@dataclass(frozen=True)
class RowInputs:
    """What some rows are made of.

    Attributes:
        digest: of the release, the job, the model's objects, and each object's URI, size, ETag and
            rows that are read.
        uris: of the objects.
    """

    digest: str
    uris: list[str]


def features_of(job: EmbeddingJob, inputs: Inputs, node_type: str) -> RowInputs:
    """What the features of a node type are made of."""
    nodes = inputs.by_nodes[node_type]
    tables = [table.split for table in nodes.tables]
    scaling = nodes.schema.scaling if nodes.schema is not None else None
    source = None if scaling is None else scaling.source
    more = [] if source is None else [source.uri]
    # What results are compared with is no part of any row.
    nodes = replace(nodes, references={})
    facts = (nodes, inputs.model_tables.get(node_type), inputs.unread_tables.get(node_type))
    return _inputs(job, inputs, facts, [*nodes.features, *nodes.table, *tables], more)


def edges_of(job: EmbeddingJob, inputs: Inputs, relation: str) -> RowInputs:
    """What the edges of a relation, or of the one that it is the reverse of, are made of."""
    (own,) = (
        str(edge.relation) for edge in job.spec.input.edges if relation in map(str, edge.relations)
    )
    splits = inputs.by_edges[own]
    facts = (splits, inputs.edge_features.get(own), inputs.edge_categories.get(own))
    return _inputs(job, inputs, facts, splits, [])


def graph_of(inputs: Inputs, edge: EdgeInput, nodes: Mapping[str, object]) -> RowInputs:
    """What the graph of an edge type is made of: neither the model nor features of nodes.

    Args:
        edge: as it is read: its features are there only where the model reads them.
        nodes: node type -> what says which nodes there are, and the dense id of each.
    """
    own = str(edge.relation)
    splits = inputs.by_edges[own]
    facts = {
        "release": __version__,
        # Whether the model reads the reverse too is nothing to the graph of either.
        "edges": edge_fields(edge.model_copy(update={"reverse": None})),
        "nodes": {name: nodes[name] for name in (edge.source_type, edge.destination_type)},
        "splits": splits,
        "features": None if edge.features is None else inputs.edge_features.get(own),
        # Edges with other ones are refused as they are read.
        "categories": inputs.edge_categories.get(own),
    }
    return RowInputs(digest_of(facts), _uris(splits))


def _uris(splits: Iterable[Split]) -> list[str]:
    splits = list(splits)
    return sorted(
        {split.uri for split in splits} | {split.ids_uri or split.uri for split in splits}
    )


def _inputs(
    job: EmbeddingJob, inputs: Inputs, facts: object, splits: Iterable[Split], more: list[str]
) -> RowInputs:
    digest = digest_of((__version__, job_digest(job), inputs.model, facts))
    objects = [*_uris(splits), *more, *(info.uri for info in inputs.model)]
    return RowInputs(digest, objects)
