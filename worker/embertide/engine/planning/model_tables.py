"""Which of a model's tables a job reads, and which its features replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from embertide.errors import InputError
from embertide.io.readers.feature_schema import feature_schema
from embertide.io.readers.npy_features import split_npy_features
from embertide.io.readers.splits import Split
from embertide.io.storage.protocol import Storage
from embertide.models.tables import ModelTable, ProgramText, TypeTables
from embertide.spec.features import FeatureInput
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.nodes import IdKind, NodeInput
from embertide.spec.places import literal

UNREAD = (
    "the model brings a table for the nodes of type {node_type!r}, {uri}, but the manifest gives"
    " them features: these were read in the table's place. Leave the features out to use the"
    " table, or make sure that they are its rows, by the job's own ids"
)
"""Warning of a table of the model that a run does not read."""
T = TypeVar("T")
_WHOLE = 1 << 62
"""Bytes of a split that no object is cut into."""


@dataclass(frozen=True)
class TableSplit:
    """A table whose columns a node type's rows have after those of their features.

    Attributes:
        split: all of its rows, and the object with their ids, if they have any.
    """

    split: Split
    columns: int

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.split.rows


def tables_by_type(model: ProgramText, job: EmbeddingJob) -> dict[str, TypeTables]:
    """Node type -> the model's tables of it."""
    return _by_type(job, model.tables)


def categories_by_type(model: ProgramText, job: EmbeddingJob) -> dict[str, list[tuple[int, int]]]:
    """Node type with features -> their columns that are categories of the model."""
    by_type = _by_type(job, model.categories)
    bare = [node.name for node in job.spec.input.nodes if node.features is None]
    return {name: columns for name, columns in by_type.items() if columns and name not in bare}


def edge_categories_of(model: ProgramText, job: EmbeddingJob) -> dict[str, list[tuple[int, int]]]:
    """Edge type -> features of its edges that are categories of the model.

    The model may name the edge type by its reverse, whose edges have the same features.
    """
    by_relation = model.edge_categories
    return {
        str(edge.relation): categories
        for edge in job.spec.input.edges
        if edge.features is not None
        for relation in ("", *map(str, edge.relations))
        if (categories := by_relation.get(relation))
    }


def _by_type(job: EmbeddingJob, entries: Mapping[str, T]) -> dict[str, T]:
    """By the manifest's names of node types; a model of one type does not name it."""
    names = [node.name for node in job.spec.input.nodes]
    if "" in entries and len(names) == 1:
        return {names[0]: entries[""]}
    return {name: of_type for name, of_type in entries.items() if name in names}


def unread_tables(job: EmbeddingJob, tables: Mapping[str, TypeTables]) -> dict[str, str]:
    """Node type -> URI of the tables that its features replace, which are from another file."""
    features = {node.name: node.features.location for node in job.spec.input.nodes if node.features}
    # A table's file is named by its digest, wherever it was copied to.
    uris = {
        name: ", ".join(table.uri for table in of_type.tables)
        for name, of_type in tables.items()
        if name in features and not of_type.features
    }
    return {
        name: uri
        for name, uri in uris.items()
        if features[name].rpartition("/")[2] != uri.rpartition("/")[2]
    }


def table_input(table: ModelTable) -> FeatureInput:
    """A model's table as features."""
    ids = None if table.ids is None else literal(table.ids)
    return FeatureInput(uri=literal(table.uri), format="npy", ids_uri=ids)


def first_tables(job: EmbeddingJob, tables: Mapping[str, TypeTables]) -> dict[str, ModelTable]:
    """Node types without features -> the first table of the model, which takes their place.

    Args:
        tables: node type -> the model's tables.

    Raises:
        InputError: nothing says which ids a table's rows are of, or ``missing`` is for no table.
    """
    taken = {}
    for node in job.spec.input.nodes:
        of_type = tables.get(node.name)
        if of_type is None or (node.features is not None and not of_type.features):
            _check_missing(node, job.spec.model.location, replaced=of_type is not None)
            continue
        for table in of_type.tables:
            _check_ids(node, table)
        if node.features is None and not of_type.features:
            taken[node.name] = of_type.tables[0]
    return taken


def _check_missing(node: NodeInput, model: str, *, replaced: bool) -> None:
    if node.missing != "refuse":
        why = f"its features take the place of the table that the model {model} has"
        if not replaced:
            why = f"the model {model} has no table of its nodes"
        raise InputError(
            f"missing is {node.missing!r} for node type {node.name!r}, but {why}; omit it"
        )


def _check_ids(node: NodeInput, table: ModelTable) -> None:
    if node.ids != "dense" and table.ids is None:
        raise InputError(
            f"{table.uri} is the model's table of node type {node.name!r}, by number of row, but"
            f" its ids are {node.ids}; export the model with --table-ids, which says the id that"
            " each row is of, or use ids: dense"
        )


def split_tables(
    storage: Storage, node: NodeInput, tables: Sequence[ModelTable], count: int
) -> list[TableSplit]:
    """The tables that are read beside the rows of a node type.

    Args:
        count: of its nodes.

    Raises:
        InputError: a table has other columns than its model says, or no row for a node whose id is
            the number of a row.
    """
    return [_split(storage, node, table, count) for table in tables]


def _split(storage: Storage, node: NodeInput, table: ModelTable, count: int) -> TableSplit:
    features = table_input(table)
    ids: IdKind = "int64" if node.ids == "dense" else node.ids
    (split,) = split_npy_features(storage, features, _WHOLE, ids)
    width = feature_schema(storage, features).width
    if width != table.columns:
        raise InputError(
            f"{table.uri} has {width} columns, but program.yaml says {table.columns}; export the"
            " model again"
        )
    if table.ids is None:
        check_rows(node, table.uri, split.rows, count)
    return TableSplit(split, width)


def check_rows(node: NodeInput, uri: str, rows: int, count: int) -> None:
    """Refuse nodes that a table, whose rows are numbered, has no rows of, unless new ones get some.

    Raises:
        InputError: there are fewer nodes than rows, or more and ``missing`` is ``refuse``.
    """
    if count == rows or (count > rows and node.missing != "refuse"):
        return
    what = "the model was trained for other nodes: train it again, or give features for all of them"
    if count > rows:
        what = (
            f"the model was trained without the last {count - rows:,}: train it again, give"
            " features for all nodes, or set missing: zeros or mean, which new nodes get"
        )
    raise InputError(
        f"{uri} is the model's table of node type {node.name!r} and has {rows} rows, but the type"
        f" has {count} nodes (count); {what}"
    )
