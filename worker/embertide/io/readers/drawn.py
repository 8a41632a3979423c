"""Columns of features that no object has: which there are, and the ids that they are drawn by."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from embertide.footprint import FLOAT_BYTES
from embertide.io.readers.feature_schema import Drawn
from embertide.io.readers.ids import IdKind, Ids
from embertide.io.readers.nodes import read_nodes, split_nodes
from embertide.io.readers.npy_features import row_numbers
from embertide.io.readers.sources import Sources
from embertide.io.readers.splits import Split, split_ranges
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.kernels.drawn import seed_of
from embertide.spec.features import FeatureInput
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.nodes import NodeInput, NodeTable

COUNTED = ObjectInfo("count:", 0, "")
"""In place of the object of nodes that are counted alone."""


class IdsAlone(FeatureInput):
    """Features without stored columns. It is made by :func:`ids_alone`, and in no manifest."""

    nodes: NodeTable | None = Field(default=None, description="The authoritative list of nodes.")
    rows: int = Field(default=0, description="How many nodes are numbered.")

    @property
    def by_row_number(self) -> bool:
        """Whether there is no list of ids."""
        return self.nodes is None


def ids_alone(node: NodeInput) -> IdsAlone:
    """In place of the features of a node type that has none."""
    table, uri = node.table, COUNTED.uri
    fields = {} if table is None else {name: getattr(table, name) for name in _SAME}
    fields = fields or {"uri": uri, "format": "npy", "id_column": None}
    return IdsAlone.model_construct(**fields, nodes=table, rows=node.count or 0)


_SAME = ("uri", "uris", "window", "key", "recursive", "include", "format", "as_of", "id_column")


def drawn_of(job: EmbeddingJob, node: NodeInput) -> Drawn | None:
    """The columns of a node type that are drawn, after those of its features.

    Args:
        node: as the manifest has it.
    """
    if job.spec.model.builtin != "fastrp":
        return None
    options = job.spec.model.fastrp
    featured = node.features is not None and not isinstance(node.features, IdsAlone)
    columns = options.dimensions - options.projected(featured=featured)
    return Drawn(columns, seed_of(options.seed, node.name)) if columns else None


def split_ids(
    storage: Storage,
    features: IdsAlone,
    width: int,
    target_bytes: int,
    ids: IdKind | None,
    sources: Sources | None,
) -> list[Split]:
    """Splits of the rows of all nodes.

    Raises:
        ObjectMissing: there are no objects of the node table.
        InputError: an object is unreadable, or the column is missing or has a wrong type.
    """
    if features.nodes is not None:
        return split_nodes(storage, features.nodes, target_bytes, ids, sources)
    size = FLOAT_BYTES * width
    ranges = split_ranges(features.rows, features.rows * size, target_bytes)
    return [Split.of(COUNTED, start, stop, (stop - start) * size) for start, stop in ranges]


def read_ids(
    storage: Storage, features: IdsAlone, ids: IdKind, split: Split, rows: int
) -> Iterator[tuple[Ids, Where]]:
    """The ids of a split, at most so many rows a batch."""
    if features.nodes is not None:
        for batch in read_nodes(storage, features.nodes, ids, split, rows):
            yield batch.ids, batch.where
        return
    for start in range(split.start, split.stop, rows):
        where = Where(split.uri, start)
        size = min(rows, split.stop - start)
        yield row_numbers(split, where, size, features.rows), where
