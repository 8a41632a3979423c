"""What one row of features consists of: which columns, in which order, how wide, how scaled.

Decided once, by the process that lists the inputs; ranks and the version's manifest repeat it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from embertide.errors import InputError
from embertide.io.readers.column_patterns import patterns_of
from embertide.io.readers.columns import Column, refuse_nulls
from embertide.io.readers.layout import column_names
from embertide.io.readers.npy import read_header
from embertide.io.readers.objects import naming_others
from embertide.io.readers.parquet import parquet_file
from embertide.io.readers.scaling import Scaling, read_scaling
from embertide.io.readers.sources import Sources
from embertide.io.readers.types import value_type
from embertide.io.readers.vector_types import as_lists
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.plain import Plain
from embertide.spec.manifest import FeatureInput

RECURSIVE_FIELD = "features.recursive"


@dataclass(frozen=True)
class Drawn:
    """Columns that are in no object: random numbers by the node's id, see `kernels.drawn`."""

    columns: int
    seed: int


@dataclass(frozen=True)
class FeatureSchema(Plain):
    """One row of the features.

    Attributes:
        width: D, values in a row, with those that are drawn, which come last.
        columns: the scalar columns in order, patterns expanded, after the vector if there is one;
            None for vectors alone and npy.
    """

    width: int
    columns: tuple[str, ...] | None = None
    scaling: Scaling | None = None
    drawn: Drawn | None = None

    @property
    def stored(self) -> int:
        """Values of a row that are read from objects."""
        return self.width - (self.drawn.columns if self.drawn else 0)

    def name_of(self, column: int) -> str | None:
        """The name of the column that a value comes from; None in a vector."""
        at = column - (self.stored - len(self.columns or ()))
        return self.columns[at] if self.columns is not None and at >= 0 else None

    def drawing(self, drawn: Drawn) -> FeatureSchema:
        """With columns that are drawn, after those of objects."""
        return replace(self, width=self.stored + drawn.columns, drawn=drawn)


def feature_schema(
    storage: Storage,
    features: FeatureInput,
    field: str = "spec.input.nodes[0].features",
    sources: Sources | None = None,
) -> FeatureSchema:
    """The schema, from the first object's metadata (from its first row for plain lists).

    ``field`` is where the manifest has the features, for errors.

    Raises:
        ObjectMissing: there are no objects of the features, or none with the scaling.
        InputError: an object is unreadable, no object has a row, a pattern matches no column, or
            the scaling does not fit.
        ManifestError: the manifest's scaling does not fit.
    """
    sources = sources or Sources(storage)
    columns = _columns(storage, features, sources)
    has_vectors = features.format == "npy" or features.vector_column is not None
    width = len(columns or ()) + (_width(storage, features, sources) if has_vectors else 0)
    given = features.scaling
    scaling = None if given is None else read_scaling(storage, given, width, field)
    return FeatureSchema(width, columns, scaling)


def feature_objects(sources: Sources, features: FeatureInput) -> list[ObjectInfo]:
    """The objects with the features' values, see :meth:`Sources.files`."""
    return sources.files(features, "features")


def _columns(storage: Storage, features: FeatureInput, sources: Sources) -> tuple[str, ...] | None:
    patterns = patterns_of(features)
    if patterns is None:
        return None if features.columns is None else tuple(features.columns)
    objects = feature_objects(sources, features)
    first = objects[0]
    with (
        naming_others(objects, first, features.format, RECURSIVE_FIELD),
        parquet_file(storage, first, []) as (file, _),
    ):
        return patterns.expand(first.uri, column_names(first, file.schema_arrow))


def _width(storage: Storage, features: FeatureInput, sources: Sources) -> int:
    objects = feature_objects(sources, features)
    if features.format == "npy":
        with naming_others(objects, objects[0], "npy", RECURSIVE_FIELD):
            return read_header(storage, objects[0], features.key).width
    width = vector_width(storage, objects, vector_column(features), RECURSIVE_FIELD)
    if width is None:
        raise InputError(f"{features.location} holds no feature rows; every node needs one")
    if width == 0:
        raise InputError(
            f"{features.location}: {vector_column(features)} holds a vector without values in the"
            " first row; all rows must have the same number"
        )
    return width


def vector_width(
    storage: Storage, objects: list[ObjectInfo], column: Column, field: str
) -> int | None:
    """The width of a column's vectors, by its type or by the first row; None without rows.

    ``field`` of the manifest has ``recursive`` of these objects, for errors.
    """
    for info in objects:
        with naming_others(objects, info, "parquet", field):
            width = _list_width(storage, info, column)
        if width is not None:
            return width
    return None


def vector_column(features: FeatureInput) -> Column:
    """The list column of parquet features."""
    return Column("features.vectorColumn", features.vector_column or "", "vector")


def _list_width(storage: Storage, info: ObjectInfo, column: Column) -> int | None:
    with parquet_file(storage, info, [column]) as (file, columns):
        name = columns.names.get(str(column.name))
        if name is None:
            return None  # It has no vectors, which its reader refuses.
        held = value_type(file.schema_arrow.field(name).type)
        if pa.types.is_fixed_size_list(held):
            return int(held.list_size)
        for batch in file.iter_batches(1, columns=[name], use_threads=False):
            where = Where(info.uri, 0)
            array = as_lists(batch.column(name), column, where)
            refuse_nulls(array, column, where)
            return len(array[0])
    return None
