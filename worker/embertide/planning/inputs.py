"""What a run will read, listed and cut once by one process before any worker starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from embertide.errors import ManifestError, ModelError
from embertide.grid import check_fits
from embertide.readers.edges import edge_feature_width, split_edges
from embertide.readers.feature_schema import FeatureSchema, feature_schema
from embertide.readers.features import split_features
from embertide.readers.nodes import split_nodes
from embertide.readers.reference import reference_uri, split_reference
from embertide.readers.splits import Split
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, NodeInput
from embertide.storage.protocol import Storage

if TYPE_CHECKING:
    # Importing it imports torch, which those who only list inputs need not wait for.
    from embertide.steps import Program


@dataclass(frozen=True)
class NodeSplits:
    """What is read of one node type.

    Attributes:
        schema: of the features, from the first object's metadata; None without features.
        reference: vectors that the type's embeddings are held against; none where the model has
            none.
    """

    features: list[Split]
    table: list[Split]
    schema: FeatureSchema | None
    reference: list[Split] = field(default_factory=list)

    @property
    def width(self) -> int:
        """Values in a row of the features; 0 without features."""
        return 0 if self.schema is None else self.schema.width

    @property
    def feature_rows(self) -> int:
        """Rows of all feature objects."""
        return rows_of(self.features)

    def count(self, node: NodeInput) -> int:
        """How many nodes there are, by the manifest, the node table, or the features."""
        if node.count is not None:
            return node.count
        return rows_of(self.table) if node.table is not None else self.feature_rows

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> NodeSplits:
        """What ``asdict`` described."""
        features, table, reference = (
            [Split.from_json(split) for split in data[name]]
            for name in ("features", "table", "reference")
        )
        schema = data["schema"]
        return cls(
            features, table, None if schema is None else FeatureSchema.from_json(schema), reference
        )


def rows_of(splits: list[Split]) -> int:
    """Rows of some splits; of text, bytes."""
    return sum(split.stop - split.start for split in splits)


@dataclass(frozen=True)
class Inputs:
    """Every input object cut into splits, in a fixed order.

    Attributes:
        by_edges: edge type, as the text of its relation -> its edges.
        by_nodes: node type -> what is read of it.
        edge_features: edge type -> features of each of its edges, where they have some.
    """

    by_edges: dict[str, list[Split]]
    by_nodes: dict[str, NodeSplits]
    edge_features: dict[str, int] = field(default_factory=dict)

    @property
    def edges(self) -> list[Split]:
        """Of all edge types."""
        return [split for splits in self.by_edges.values() for split in splits]

    @property
    def features(self) -> list[Split]:
        """Of all node types."""
        return [split for nodes in self.by_nodes.values() for split in nodes.features]

    @property
    def table(self) -> list[Split]:
        """Of all node types."""
        return [split for nodes in self.by_nodes.values() for split in nodes.table]

    @property
    def width(self) -> int:
        """Values in a row of the widest features."""
        return max(nodes.width for nodes in self.by_nodes.values())

    @property
    def feature_rows(self) -> int:
        """Feature rows of all node types."""
        return sum(nodes.feature_rows for nodes in self.by_nodes.values())

    def objects(self) -> list[dict[str, Any]]:
        """Each input object once: kind, uri, size in bytes, ETag."""
        nodes = self.by_nodes.values()
        found: dict[str, dict[str, Any]] = {}
        for kind, splits in (
            ("edges", self.edges),
            ("features", self.features),
            ("nodes", self.table),
            ("reference", [split for of_type in nodes for split in of_type.reference]),
        ):
            for split in splits:
                found[split.uri] = _entry(kind, split.uri, split.object_size, split.etag)
                if split.ids_uri is not None:
                    found[split.ids_uri] = _entry(
                        "ids", split.ids_uri, split.ids_size, split.ids_etag
                    )
        for scaling in (of_type.schema.scaling for of_type in nodes if of_type.schema is not None):
            if scaling is not None and scaling.source is not None:
                source = scaling.source
                found[source.uri] = _entry("scaling", source.uri, source.size, source.etag)
        return list(found.values())

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` is the way back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Inputs:
        """What :meth:`to_json` described."""
        edges = {
            name: [Split.from_json(split) for split in splits]
            for name, splits in data["by_edges"].items()
        }
        nodes = {name: NodeSplits.from_json(of_type) for name, of_type in data["by_nodes"].items()}
        return cls(edges, nodes, data["edge_features"])


def _entry(kind: str, uri: str, size: int, etag: str) -> dict[str, Any]:
    return {"kind": kind, "uri": uri, "size": size, "etag": etag}


def list_inputs(storage: Storage, job: EmbeddingJob) -> Inputs:
    """List and cut all inputs of a job.

    Raises:
        ManifestError: what runs do not take yet, or a scaling of another width.
        StorageError, InputError: an input is missing, refused or malformed.
    """
    refuse_several_types(job)
    return list_types(storage, job)


def refuse_several_types(job: EmbeddingJob) -> None:
    """Runs take one node type with features, and one edge type.

    Raises:
        ManifestError: says what to leave out.
    """
    given = job.spec.input
    edges = [relation.name for relation in given.relations]
    problems = [
        (
            f"spec.input.{name}",
            f"has {len(types)} {name[:-1]} types ({', '.join(types)}); runs"
            " take exactly one so far, leave the others out",
        )
        for name, types in (("edges", edges), ("nodes", [node.name for node in given.nodes]))
        if len(types) > 1
    ]
    problems += [
        (f"spec.input.nodes[{at}].features", "is required: runs take nodes with features so far")
        for at, node in enumerate(given.nodes)
        if node.features is None
    ]
    if problems:
        raise ManifestError(problems)


def list_types(storage: Storage, job: EmbeddingJob) -> Inputs:
    """List and cut what is read of each edge type and node type; see :func:`list_inputs`."""
    given = job.spec.input
    kinds = {node.name: node.ids for node in given.nodes}
    edges = {
        str(edge.relation): split_edges(
            storage, edge, ids=(kinds[edge.source_type], kinds[edge.destination_type])
        )
        for edge in given.edges
    }
    nodes = {node.name: _split_type(storage, job, at) for at, node in enumerate(given.nodes)}
    features = {
        str(edge.relation): edge_feature_width(storage, edge)
        for edge in given.edges
        if edge.features is not None
    }
    return Inputs(edges, nodes, features)


def _split_type(storage: Storage, job: EmbeddingJob, at: int) -> NodeSplits:
    """What is read of the node type at that place of the manifest."""
    node, schema = job.spec.input.nodes[at], None
    features: list[Split] = []
    if node.features is not None:
        schema = feature_schema(storage, node.features, f"spec.input.nodes[{at}].features")
        features = split_features(storage, node.features, ids=node.ids, schema=schema)
    table = split_nodes(storage, node.table, ids=node.ids) if node.table else []
    return NodeSplits(features, table, schema, _reference(storage, job, node))


def _reference(storage: Storage, job: EmbeddingJob, node: NodeInput) -> list[Split]:
    """The model's own reference for a node type, if it has one."""
    several = len(job.spec.input.nodes) > 1
    uri = reference_uri(job.spec.model.uri, node.name if several else None)
    if storage.stat(uri) is None:
        return []
    return split_reference(storage, uri, node.ids)


def check_model(
    job: EmbeddingJob, inputs: Inputs, program: Program, grid: GridShape, nodes: dict[str, int]
) -> dict[str, str]:
    """Refuse a model that does not fit the graph, the features, the fanout or the grid.

    Args:
        nodes: node type -> how many there are.

    Returns:
        The model's name of each node type -> the manifest's; they differ for a model of one type,
        which does not name it.

    Raises:
        ModelError: a node type or relation that is not there, another width of features, of nodes
            or of edges, or another number of layers than fanouts.
        GridError: more workers than nodes, or than a tensor of the model has columns.
    """
    model = job.spec.model.uri
    names = match_types(job, program)
    for node_type, tensor in program.inputs.items():
        _check_features(job, inputs, names[node_type], program.widths[tensor])
    for relation, columns in program.edge_columns().items():
        _check_edge_features(job, inputs, relation, columns)
    fanout = job.spec.inference.fanout
    if fanout != "full" and len(fanout) != program.layers:
        raise ModelError(
            f"spec.inference.fanout is {fanout}, which has {len(fanout)} entries, but the model"
            f" {model} has {program.layers} layers that read edges; give one number for each layer"
            " of these, or full"
        )
    check_fits(grid, max(nodes.values()), program.sliced_widths)
    return names


def match_types(job: EmbeddingJob, program: Program) -> dict[str, str]:
    """The model's name of each node type -> the manifest's.

    Raises:
        ModelError: the model knows a node type or relation that the manifest has not, or does not
            name its one type where the manifest has several.
    """
    given, model = job.spec.input, job.spec.model.uri
    there = [node.name for node in given.nodes]
    wanted = list(dict.fromkeys(program.types.values()))
    if wanted == [""]:
        if len(there) > 1 or len(given.relations) > 1:
            raise ModelError(
                f"{model} is a model of one node type and one edge type, but spec.input has the"
                f" node types {', '.join(there)} and the edge types"
                f" {', '.join(map(str, given.relations))}; leave out what the model does not read"
            )
        return {"": there[0]}
    unknown = [name for name in wanted if name not in there]
    if unknown:
        raise ModelError(
            f"the model {model} has a node type {unknown[0]!r}, but spec.input.nodes has"
            f" {', '.join(there)}; name the node types as the model does"
        )
    relations = [str(relation) for relation in given.relations]
    unknown = [name for name in program.relations if name not in relations]
    if unknown:
        raise ModelError(
            f"the model {model} reads the relation {unknown[0]}, but spec.input.edges has"
            f" {', '.join(relations)}; name source type, edge type and destination type as the"
            " model does, or add the edge type (reverse adds one)"
        )
    return {name: name for name in wanted}


def _check_features(job: EmbeddingJob, inputs: Inputs, name: str, width: int) -> None:
    """Refuse features that are not there, or of another width than the model takes."""
    features, model = job.spec.input.node(name).features, job.spec.model.uri
    if features is None:
        raise ModelError(
            f"the model {model} reads features of node type {name!r}, which has none in spec.input;"
            " give it features"
        )
    found = inputs.by_nodes[name].width
    if found != width:
        raise ModelError(
            f"{features.uri}: the features have {found} columns, but the model {model} takes"
            f" {width}; give the features or the model that belong together"
        )


def _check_edge_features(job: EmbeddingJob, inputs: Inputs, relation: str, columns: int) -> None:
    """Refuse features of edges that are not there, or too many or too few.

    Args:
        relation: as the model names it; "" for the only one.
    """
    model, edges = job.spec.model.uri, job.spec.input.edges
    of = [edge for edge in edges if not relation or relation in map(str, edge.relations)]
    edge, named = of[0], f" of {relation}" if relation else ""
    if edge.features is None:
        raise ModelError(
            f"the model {model} reads {columns} features of each edge{named}, but edge type"
            f" {edge.name!r} in spec.input.edges has none; name them in its features"
        )
    found = inputs.edge_features[str(edge.relation)]
    if found != columns:
        raise ModelError(
            f"{edge.uri}: each edge has {found} features, but the model {model} takes {columns};"
            " give the features or the model that belong together"
        )
