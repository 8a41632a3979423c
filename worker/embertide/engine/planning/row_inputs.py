"""What rows are made of: the objects of a node type's features and of a relation's edges.

The graph of an edge type is made of its edges' objects, and of which nodes there are.

Two runs with the same ones have the same features of each node, and the same edges between the same
nodes, so that these need not be compared row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        beside: a digest of what is no part: the release, the job, the model's objects.
        parts: digest of each split that is read, with its object's URI, size and ETag -> the URIs
            of its objects.
        more: URIs of objects that are no part.
    """

    beside: str
    parts: Mapping[str, list[str]]
    more: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of everything."""
        return digest_of((self.beside, list(self.parts)))

    @property
    def uris(self) -> list[str]:
        """The URIs of all objects."""
        return [*sorted({uri for uris in self.parts.values() for uri in uris}), *self.more]

    def as_one(self) -> RowInputs:
        """The same in one part, which changes where any object does."""
        uris = {uri for uris in self.parts.values() for uri in uris}
        return replace(self, parts={digest_of(list(self.parts)): sorted(uris)})


def part_of(split: Split) -> str:
    """The digest of a split."""
    return digest_of(split)


def wherever(split: Split) -> Split:
    """A split of edges, however many rows are in the objects before it."""
    return replace(split, base=0)


def ids_of(job: EmbeddingJob, inputs: Inputs, node_type: str) -> RowInputs:
    """What says which nodes of a type there are, and so the dense id of each."""
    (node,) = (node for node in job.spec.input.nodes if node.name == node_type)
    nodes = inputs.by_nodes[node_type]
    dense = node.ids == "dense"
    splits = () if dense else nodes.table if node.table is not None else nodes.features
    facts = (job_digest(job), nodes.count(node) if dense else None, nodes.new_rows)
    return RowInputs(digest_of((__version__, facts)), _parts(splits))


def features_of(job: EmbeddingJob, inputs: Inputs, node_type: str) -> RowInputs:
    """What the features of a node type are made of; objects of the features are its parts."""
    nodes = inputs.by_nodes[node_type]
    tables = [table.split for table in nodes.tables]
    scaling = nodes.schema.scaling if nodes.schema is not None else None
    source = None if scaling is None else scaling.source
    more = [] if source is None else [source.uri]
    # What results are compared with is no part of any row.
    own = replace(nodes, references={}, features=[])
    facts = (own, inputs.model_tables.get(node_type), inputs.unread_tables.get(node_type))
    more += _uris([*nodes.table, *tables])
    (node,) = (node for node in job.spec.input.nodes if node.name == node_type)
    made = _inputs(job, inputs, facts, nodes.features, more)
    history = node.features is not None and node.features.latest_by is not None
    # Then a row may be of one object, or another, by what others have.
    return made.as_one() if history or nodes.new_rows else made


def edges_of(job: EmbeddingJob, inputs: Inputs, relation: str) -> RowInputs:
    """What the edges of a relation, or of the one that it is the reverse of, are made of."""
    (own,) = (
        str(edge.relation) for edge in job.spec.input.edges if relation in map(str, edge.relations)
    )
    facts = (inputs.edge_features.get(own), inputs.edge_categories.get(own))
    return _inputs(job, inputs, facts, map(wherever, inputs.by_edges[own]), [])


def graph_of(inputs: Inputs, edge: EdgeInput, nodes: Mapping[str, object]) -> RowInputs:
    """What the graph of an edge type is made of: neither the model nor features of nodes.

    Args:
        edge: as it is read: its features are there only where the model reads them.
        nodes: node type -> what says which nodes there are, and the dense id of each.
    """
    own = str(edge.relation)
    facts = {
        "release": __version__,
        # Whether the model reads the reverse too is nothing to the graph of either.
        "edges": edge_fields(edge.model_copy(update={"reverse": None})),
        "nodes": {name: nodes[name] for name in (edge.source_type, edge.destination_type)},
        "features": None if edge.features is None else inputs.edge_features.get(own),
        # Edges with other ones are refused as they are read.
        "categories": inputs.edge_categories.get(own),
    }
    return RowInputs(digest_of(facts), _parts(map(wherever, inputs.by_edges[own])))


def keeps_read(edge: EdgeInput, splits: Sequence[Split]) -> bool:
    """Whether edges are kept as they were read: where there are several objects, and the graph has
    just the edges that are read, so that those of one can be taken out again.

    Args:
        edge: as it is read.
    """
    treated = edge.duplicates == "remove" or edge.adds_loops or edge.unknown_nodes is not None
    several = len({split.uri for split in splits}) > 1
    return several and not treated and edge.features is None


def _parts(splits: Iterable[Split]) -> dict[str, list[str]]:
    return {part_of(split): _uris([split]) for split in splits}


def _uris(splits: Iterable[Split]) -> list[str]:
    splits = list(splits)
    return sorted(
        {split.uri for split in splits} | {split.ids_uri or split.uri for split in splits}
    )


def _inputs(
    job: EmbeddingJob, inputs: Inputs, facts: object, splits: Iterable[Split], more: list[str]
) -> RowInputs:
    beside = digest_of((__version__, job_digest(job), inputs.model, facts))
    return RowInputs(beside, _parts(splits), (*more, *(info.uri for info in inputs.model)))
