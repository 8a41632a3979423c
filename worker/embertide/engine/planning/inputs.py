"""What a run will read, listed and cut once by one process before any worker starts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from embertide._version import __version__
from embertide.engine.planning.listings import Listings, State
from embertide.engine.planning.model_tables import (
    TableSplit,
    categories_by_type,
    check_rows,
    edge_categories_of,
    first_tables,
    split_tables,
    table_input,
    tables_by_type,
    unread_tables,
)
from embertide.errors import InputError, ObjectMissing
from embertide.io.readers.drawn import COUNTED, IdsAlone, drawn_of, ids_alone
from embertide.io.readers.edges import edge_feature_width, split_edges
from embertide.io.readers.feature_schema import Drawn, FeatureSchema, feature_schema
from embertide.io.readers.features import split_features
from embertide.io.readers.nodes import split_nodes
from embertide.io.readers.places import expand, missing_days
from embertide.io.readers.reference import reference_uri, split_reference
from embertide.io.readers.sources import Sources, TableKey, table_key
from embertide.io.readers.splits import Shares, Split
from embertide.io.readers.table_formats import FoldersAbove
from embertide.io.readers.table_snapshot import TableRead
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.models.files import model_objects
from embertide.models.tables import ModelTable, ProgramText, TypeTables
from embertide.plain import Plain
from embertide.spec.features import FeatureInput
from embertide.spec.identity import digest_of
from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EmbeddingJob, Input, NodeInput
from embertide.spec.places import ObjectInput, is_pattern
from embertide.spec.result_names import UNNAMED
from embertide.spec.tables import TABLE_FORMATS

_KINDS = ("edges", "features", "ids", "nodes")


@dataclass(frozen=True)
class NodeSplits:
    """The splits and sizes of one node type.

    Attributes:
        schema: of the features, from the first object's metadata; None without features.
        references: name of a result, "" of one without a name -> vectors that it is compared with.
        new_rows: nodes that the model's table has no rows of, the last ones.
        tables: of the model, whose columns the rows have after those of their features.
        categories: columns of the features that are categories of the model, and how many each has.
    """

    features: list[Split]
    table: list[Split]
    schema: FeatureSchema | None
    references: dict[str, list[Split]] = field(default_factory=dict)
    new_rows: int = 0
    tables: list[TableSplit] = field(default_factory=list)
    categories: list[tuple[int, int]] = field(default_factory=list)

    @property
    def width(self) -> int:
        """Values in a loaded row: of the features and of the model's tables; 0 without features."""
        return self.feature_width + self.table_width

    @property
    def feature_width(self) -> int:
        """Values in a row of the features; 0 without features."""
        return 0 if self.schema is None else self.schema.width

    @property
    def table_width(self) -> int:
        """Values in a row of all tables beside the features."""
        return sum(table.columns for table in self.tables)

    @property
    def reference(self) -> list[Split]:
        """Splits of the references of all results."""
        return [split for splits in self.references.values() for split in splits]

    @property
    def feature_rows(self) -> int:
        """Rows of all feature objects."""
        return rows_of(self.features)

    @cached_property
    def shares(self) -> Shares:
        """What each worker reads of the features."""
        return Shares(self.features)

    @property
    def rows(self) -> int:
        """Rows in memory: those of the objects, and those of new nodes."""
        return self.feature_rows + self.new_rows

    def count(self, node: NodeInput) -> int:
        """How many nodes there are, by the manifest, the node table, or the features."""
        if node.count is not None:
            return node.count
        return rows_of(self.table) if node.table is not None else self.feature_rows


def rows_of(splits: list[Split]) -> int:
    """Rows of some splits; of text, bytes."""
    return sum(split.rows for split in splits)


@dataclass(frozen=True)
class Inputs(Plain):
    """Every input object cut into splits, in a fixed order.

    Attributes:
        by_edges: edge type, as the text of its relation -> its edges.
        by_nodes: node type -> what is read of it.
        model_tables: node type without features -> the model's own table in their place.
        edge_features: edge type -> features of each of its edges, where they have some.
        unread_tables: node type with features -> URI of the model's table, which they replace.
        absent: edge types without objects, which their input allows.
        missing_days: location of an input -> days of its window without objects.
        tables: inputs that are Delta or Iceberg tables, and the version of each that is read.
        listings: each folder that was listed -> its state by then.
        model: the model's objects, in its folder and elsewhere.
        fitted: place of an input that is a pattern -> URIs that fitted it by then.
        pairs: the pairs that get scores.
        targets: the table of the nodes whose embeddings alone are wanted.
        edge_categories: edge type -> features of its edges that are categories of the model, and
            how many each has.
    """

    by_edges: dict[str, list[Split]]
    by_nodes: dict[str, NodeSplits]
    model_tables: dict[str, ModelTable] = field(default_factory=dict)
    edge_features: dict[str, int] = field(default_factory=dict)
    unread_tables: dict[str, str] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    missing_days: dict[str, list[str]] = field(default_factory=dict)
    tables: list[TableRead] = field(default_factory=list)
    listings: dict[str, State] = field(default_factory=dict)
    fitted: dict[str, list[str]] = field(default_factory=dict)
    model: list[ObjectInfo] = field(default_factory=list)
    pairs: list[Split] = field(default_factory=list)
    edge_categories: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    targets: list[Split] = field(default_factory=list)

    @cached_property
    def edge_shares(self) -> dict[str, Shares]:
        """Edge type, as in ``by_edges`` -> what each worker reads."""
        return {name: Shares(splits) for name, splits in self.by_edges.items()}

    @property
    def edges(self) -> list[Split]:
        """Splits of all edge types."""
        return [split for splits in self.by_edges.values() for split in splits]

    @property
    def features(self) -> list[Split]:
        """Splits of features of all node types."""
        return [split for nodes in self.by_nodes.values() for split in nodes.features]

    @property
    def table(self) -> list[Split]:
        """Splits of node tables of all node types."""
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
        """Each object that the result depends on, once: kind, uri, size in bytes, ETag.

        The one list of them: whether anything has changed, what is compared after reading, keys of
        what is kept, plans and a version's manifest are made from it.
        """
        return list(self._objects)

    @cached_property
    def _objects(self) -> list[dict[str, Any]]:
        nodes = self.by_nodes.values()
        # A table or a reference in the model's folder has its own kind below.
        entries = {info.uri: _entry("model", info.uri, info.size, info.etag) for info in self.model}
        for kind, splits in (
            ("edges", self.edges),
            ("features", self.features),
            ("nodes", self.table),
            ("features", [table.split for of_type in nodes for table in of_type.tables]),
            ("reference", [split for of_type in nodes for split in of_type.reference]),
            ("pairs", self.pairs),
            ("targets", self.targets),
        ):
            for split in splits:
                if split.info == COUNTED:
                    continue
                entries[split.uri] = _entry(kind, split.uri, split.object_size, split.etag)
                if split.ids_uri is not None:
                    entries[split.ids_uri] = _entry(
                        "ids", split.ids_uri, split.ids_size, split.ids_etag
                    )
        for scaling in (of_type.schema.scaling for of_type in nodes if of_type.schema is not None):
            if scaling is not None and scaling.source is not None:
                source = scaling.source
                entries[source.uri] = _entry("scaling", source.uri, source.size, source.etag)
        return list(entries.values())

    def of_layers(self) -> list[dict[str, Any]]:
        """The objects that the rows of layers are made of, but for the steps and their weights,
        which are in the layers' names."""
        return [item for item in self.objects() if item["kind"] not in ("model", "reference")]

    def tables_of_model(self) -> list[dict[str, Any]]:
        """The objects of the model's own tables, which are features of nodes."""
        beside = {t.split.uri for of_type in self.by_nodes.values() for t in of_type.tables}
        first = {uri for t in self.model_tables.values() for uri in (t.uri, t.ids)}
        return [item for item in self.objects() if item["uri"] in beside | first]


def _entry(kind: str, uri: str, size: int, etag: str) -> dict[str, Any]:
    return {"kind": kind, "uri": uri, "size": size, "etag": etag}


def list_inputs(
    storage: Storage, job: EmbeddingJob, versions: Mapping[str, int] | None = None
) -> Inputs:
    """List and cut what is read of each edge type and node type of a job.

    Args:
        versions: of tables that were looked up before, by their fields in ``spec.input``.

    Raises:
        ManifestError: a scaling of another width.
        StorageError, InputError: an input is missing, refused or malformed.
    """
    pinned, noted = _pinned(job, versions or {}), Listings(storage)
    fitted = fitting_uris(noted.storage, job)
    noted.include(included_names(job, fitted))
    # A version of a table stays what it is, whatever is written to its folder.
    sources = Sources(noted.storage, tables=storage, versions=pinned)
    uri = job.spec.model.uri
    text = ProgramText("", {}) if uri is None else ProgramText.read(storage, uri)
    model = [] if uri is None else model_objects(storage, uri, text)
    storage = noted.storage
    above = FoldersAbove(storage)
    above.refuse_tables(uris_of(job, fitted))
    every = tables_by_type(text, job)
    tables = first_tables(job, every)
    read = with_tables(job, tables).spec.input
    kinds = {node.name: node.ids for node in read.nodes}
    edges = {
        str(edge.relation): split_edges(
            storage,
            edge,
            ids=(kinds[edge.source_type], kinds[edge.destination_type]),
            sources=sources,
        )
        for edge in read.edges
    }
    nodes = {
        node.name: replace(
            _split_type(storage, at, node, sources, drawn_of(job, job.spec.input.nodes[at])),
            references=references(storage, job, node, text.results),
        )
        for at, node in enumerate(read.nodes)
    }
    above.refuse_tables({split.uri for of_type in nodes.values() for split in of_type.reference})
    for name, table in tables.items():
        nodes[name] = _with_new_rows(read.node(name), nodes[name], table)
    for name, of_type in every.items():
        nodes[name] = _with_tables_beside(storage, read.node(name), nodes[name], of_type)
    for name, columns in categories_by_type(text, job).items():
        nodes[name] = replace(nodes[name], categories=columns)
    features = {
        str(edge.relation): edge_feature_width(storage, edge, sources)
        for edge in read.edges
        if edge.features is not None
    }
    return Inputs(
        edges,
        nodes,
        tables,
        features,
        unread_tables(job, every),
        _absent(sources, job, edges),
        _missing_days(storage, job),
        _tables_read(sources, job),
        noted.states,
        {place: uris for place, uris in fitted.items() if is_pattern(place)},
        model,
        split_pairs(storage, read, sources),
        edge_categories_of(text, job),
        split_chosen(storage, job, sources),
    )


def _pinned(job: EmbeddingJob, versions: Mapping[str, int]) -> dict[TableKey, int]:
    """The versions of tables, by their entries in the manifest."""
    tables = {field: table_key(item) for field, item in job.spec.tables}
    return {tables[field]: version for field, version in versions.items() if field in tables}


def _tables_read(sources: Sources, job: EmbeddingJob) -> list[TableRead]:
    """The version that is read of each input that is a Delta or Iceberg table."""
    return [TableRead.of(field, sources.snapshot(item)) for field, item in job.spec.tables]


def _absent(sources: Sources, job: EmbeddingJob, edges: Mapping[str, list[Split]]) -> list[str]:
    """The optional edge types that have no objects; an object without rows has no splits either."""
    return [
        str(edge.relation)
        for edge in job.spec.input.edges
        if edge.optional and not edges[str(edge.relation)]
        and not sources.files(edge, "edges")
    ]  # fmt: skip


def _missing_days(storage: Storage, job: EmbeddingJob) -> dict[str, list[str]]:
    """Input -> days of its window that have no objects, where it allows such days."""
    missing = {
        item.location: missing_days(storage, item, field) for field, item in job.spec.object_inputs
    }
    return {where: days for where, days in missing.items() if days}


def with_tables(job: EmbeddingJob, tables: Mapping[str, ModelTable]) -> EmbeddingJob:
    """The job whose node types have the model's tables, or what is drawn, as features.

    Args:
        tables: node type -> the table.
    """
    data = job.spec.input
    found: dict[str, FeatureInput] = {name: table_input(table) for name, table in tables.items()}
    found |= {
        node.name: ids_alone(node)
        for node in data.nodes
        if node.features is None and drawn_of(job, node) is not None
    }
    nodes = [
        node.model_copy(update={"features": found[node.name]}) if node.name in found else node
        for node in data.nodes
    ]
    filled = data.model_copy(update={"nodes": nodes})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"input": filled})})


def _with_new_rows(node: NodeInput, splits: NodeSplits, table: ModelTable) -> NodeSplits:
    """The rows of the model's table, and how many nodes have none.

    Raises:
        InputError: there are other nodes than rows, and nothing that new ones get.
    """
    rows, count = splits.feature_rows, splits.count(node)
    if table.ids is not None:
        return splits
    check_rows(node, table.uri, rows, count)
    return replace(splits, new_rows=count - rows)


def _with_tables_beside(
    storage: Storage, node: NodeInput, splits: NodeSplits, of_type: TypeTables
) -> NodeSplits:
    """With those of the model's tables that neither are its features nor are replaced by some."""
    if of_type.features:
        beside = of_type.tables if node.features is not None else ()
    else:
        beside = of_type.tables[1:] if node.features == table_input(of_type.tables[0]) else ()
    tables = split_tables(storage, node, beside, splits.count(node))
    return replace(splits, tables=tables)


def _split_type(
    storage: Storage, at: int, node: NodeInput, sources: Sources, drawn: Drawn | None
) -> NodeSplits:
    """The splits of the node type at that place of the manifest."""
    schema = None
    features: list[Split] = []
    if node.features is not None:
        field = f"spec.input.nodes[{at}].features"
        alone = isinstance(node.features, IdsAlone)
        schema = (
            FeatureSchema(0) if alone else feature_schema(storage, node.features, field, sources)
        )
        schema = schema if drawn is None else schema.drawing(drawn)
        features = split_features(
            storage, node.features, ids=node.ids, schema=schema, sources=sources
        )
    table = split_nodes(storage, node.table, ids=node.ids, sources=sources) if node.table else []
    return NodeSplits(features, table, schema)


def layer_key(job: EmbeddingJob, inputs: Inputs) -> str:
    """32 hexadecimal digits of the release, the job, the objects of its inputs with sizes and
    ETags, and the versions of its tables.

    A model's tables are inputs here, whether or not the job has them as features already; its
    weights are in the layers' names.
    """
    parts = {
        "release": __version__,
        "job": job_digest(with_tables(job, inputs.model_tables)),
        "device": job.spec.workers.device,
        "objects": inputs.of_layers(),
        "tables": inputs.tables,
    }
    return digest_of(parts)


def split_pairs(storage: Storage, data: Input, sources: Sources) -> list[Split]:
    """The splits of the pairs that get scores, if there are any."""
    if data.pairs is None:
        return []
    edges = data.pairs.edges
    kinds = data.node(edges.source_type).ids, data.node(edges.destination_type).ids
    return split_edges(storage, edges, ids=kinds, sources=sources)


def split_chosen(storage: Storage, job: EmbeddingJob, sources: Sources) -> list[Split]:
    """The splits of the table of targets, if there is one."""
    targets = job.spec.inference.targets
    if targets is None or targets.table is None:
        return []
    name = targets.node_type or _only_type(job)
    ids = None if name is None else job.spec.input.node(name).ids
    return split_nodes(storage, targets.table, ids=ids, sources=sources)


def _only_type(job: EmbeddingJob) -> str | None:
    """The one node type that may be published; None where there are several."""
    names = job.spec.output.node_types or [node.name for node in job.spec.input.nodes]
    return names[0] if len(names) == 1 else None


def references(
    storage: Storage, job: EmbeddingJob, node: NodeInput, results: Sequence[str]
) -> dict[str, list[Split]]:
    """The model's own references for a node type, those that there are, by result."""
    several, model = len(job.spec.input.nodes) > 1, job.spec.model.uri
    if model is None:
        return {}
    names = ["", *results, *(job.spec.output.results or [])]
    uris = {
        name: reference_uri(model, node.name if several else None, name)
        for name in dict.fromkeys(names)
    }
    there = {name: uri for name, uri in uris.items() if storage.stat(uri) is not None}
    if "" in there and results and UNNAMED not in results:
        raise InputError(
            f"{there['']} does not name the result that it is of: the model gives"
            f" {', '.join(results)}; name it {uris[results[0]].rpartition('/')[2]}, say"
        )
    return {name: split_reference(storage, uri, node.ids) for name, uri in there.items()}


def _object_inputs(job: EmbeddingJob) -> list[ObjectInput]:
    """The inputs that are objects: edges, features and node tables, unless they are tables."""
    inputs = (item for _, item in job.spec.object_inputs)
    return [item for item in inputs if item.format not in TABLE_FORMATS]


def fitting_uris(storage: Storage, job: EmbeddingJob) -> dict[str, list[str]]:
    """Each place of an input -> its URI, or those that fit it where it is a pattern."""
    places = {place for item in _object_inputs(job) for place in item.places}
    return {place: expand(storage, place) for place in sorted(places)}


def uris_of(job: EmbeddingJob, fitted: Mapping[str, list[str]]) -> list[str]:
    """What the manifest names as edges, features, their ids, and node tables, unless as tables."""
    uris = [uri for item in _object_inputs(job) for place in item.places for uri in fitted[place]]
    features = [node.features for node in job.spec.input.nodes if node.features is not None]
    return [*uris, *(uri for item in features if (uri := item.ids_uri) is not None)]


def included_names(job: EmbeddingJob, fitted: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """URI -> patterns of the names that inputs include there; none where an input has all."""
    inputs = [
        (item.include, uri)
        for item in _object_inputs(job)
        for place in item.places
        for uri in fitted[place]
    ]
    features = [node.features for node in job.spec.input.nodes if node.features is not None]
    inputs += [(item.include, item.ids_uri) for item in features if item.ids_uri is not None]
    whole = {uri for include, uri in inputs if include is None}
    patterns: dict[str, list[str]] = {}
    for include, uri in inputs:
        if include is not None and uri not in whole:
            patterns.setdefault(uri, []).append(include)
    return patterns


def input_age(storage: Storage, inputs: Inputs) -> float | None:
    """Seconds since the newest object of edges, features and nodes was written.

    None where that is not known.
    """
    read = {item["uri"] for item in inputs.objects() if item["kind"] in _KINDS}
    newest = 0.0
    for uri in inputs.listings:
        try:
            objects = storage.scan(uri).objects
        except ObjectMissing:
            continue  # An optional input.
        newest = max([newest, *(info.modified for info in objects if info.uri in read)])
    return max(0.0, time.time() - newest) if newest else None
