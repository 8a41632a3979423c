"""Node features, streamed in any row order: vectors or scalar columns in parquet, npy arrays.

Batches are float32 and row-major, ready to be copied into a rank's tensor. Values are not
judged here: NaN and Inf are counted by `non_finite`, so that ranks can add up their counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from embertide.errors import InputError
from embertide.readers.columns import (
    Column,
    Float32s,
    IdKind,
    Ids,
    as_float32,
    id_column,
    refuse_nulls,
    to_floats,
    to_ids,
)
from embertide.readers.npy import read_header
from embertide.readers.npy_features import read_npy_features, row_numbers, split_npy_features
from embertide.readers.parquet import parquet_file
from embertide.readers.splits import TARGET_BYTES, Split
from embertide.readers.table import Table, read_table, split_table
from embertide.readers.where import Where
from embertide.spec.manifest import FeatureInput
from embertide.storage.protocol import ObjectInfo, Storage

BATCH_BYTES = 8 << 20
_MOST_ROWS = 1 << 18


@dataclass(frozen=True)
class FeatureBatch:
    """Some rows: ``ids`` (``np.int64 [n]`` or ``pa.LargeStringArray``) and their ``values``.

    ``values`` is a writable C-contiguous ``np.float32 [n, D]``; ``where`` names rows for errors.
    """

    ids: Ids
    values: Float32s
    where: Where

    def __len__(self) -> int:
        return len(self.values)


def split_features(
    storage: Storage,
    features: FeatureInput,
    target_bytes: int = TARGET_BYTES,
    ids: IdKind | None = None,
) -> list[Split]:
    """Splits of the features, about ``target_bytes`` each, in order of uri and row.

    Columns and their types are checked in every object.

    Raises:
        ObjectMissing: there are no objects under ``features.uri``.
        InputError: an object is unreadable, or a column is missing or has a wrong type.
    """
    if features.format == "npy":
        return split_npy_features(storage, features, target_bytes, ids)
    return split_table(storage, _table(features, ids), target_bytes)


def feature_width(storage: Storage, features: FeatureInput) -> int:
    """D, from the first object's metadata (from its first row where vectors are plain lists).

    Raises:
        ObjectMissing: there are no objects under ``features.uri``.
        InputError: an object is unreadable, or no object has a row.
    """
    if features.columns is not None:
        return len(features.columns)
    objects = storage.list(features.uri)
    if features.format == "npy":
        return read_header(storage, objects[0]).width
    column = _vector_column(features)
    for info in objects:
        width = _list_width(storage, info, column)
        if width is not None:
            return width
    raise InputError(f"{features.uri} holds no feature rows; every node needs one")


def _list_width(storage: Storage, info: ObjectInfo, column: Column) -> int | None:
    with parquet_file(storage, info, [column]) as file:
        held = file.schema_arrow.field(column.name).type
        if pa.types.is_fixed_size_list(held):
            return int(held.list_size)
        for batch in file.iter_batches(1, columns=[column.name], use_threads=False):
            array = batch.column(column.name)
            refuse_nulls(array, column, Where(info.uri, 0))
            return len(array[0])
    return None


def read_features(
    storage: Storage,
    features: FeatureInput,
    ids: IdKind,
    split: Split,
    width: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    count: int | None = None,
) -> Iterator[FeatureBatch]:
    """The rows of a split, each exactly once and in order, about ``batch_bytes`` a batch.

    ``width`` is `feature_width`'s result (computed again for every split when left out);
    ``count`` the number of nodes, where it is known and ids are dense.

    Raises:
        InputError: names object and row of the first null, bad id, or vector of another width.
    """
    if width is None:
        width = feature_width(storage, features)
    rows = max(1, min(_MOST_ROWS, batch_bytes // (4 * max(1, width))))
    if features.format == "npy":
        batches = read_npy_features(storage, ids, split, width, rows, count)
    else:
        batches = _read_parquet(storage, features, ids, split, width, rows, count)
    for found, values, where in batches:
        yield FeatureBatch(found, values, where)


def _read_parquet(
    storage: Storage,
    features: FeatureInput,
    ids: IdKind,
    split: Split,
    width: int,
    rows: int,
    count: int | None,
) -> Iterator[tuple[Ids, Float32s, Where]]:
    table = _table(features, ids)
    numbered = features.by_row_number
    columns = table.columns if numbered else table.columns[1:]
    for arrays, where in read_table(storage, table, split, rows):
        if numbered:
            found: Ids = row_numbers(split, where, len(arrays[0]), count)
        else:
            found = to_ids(arrays[0], table.columns[0], ids, where, count)
        data = arrays if numbered else arrays[1:]
        if features.columns is None:
            values = _vectors(data[0], columns[0], width, where)
        else:
            values = _scalars(data, columns, where)
        yield found, values, where


def _table(features: FeatureInput, ids: IdKind | None) -> Table:
    """The id column (unless rows are numbered), then the vector column or all scalar ones."""
    columns = []
    if features.id_column is not None:
        columns.append(id_column("features.idColumn", features.id_column, ids))
    if features.columns is None:
        columns.append(_vector_column(features))
    else:
        columns += [Column("features.columns", name, "number") for name in features.columns]
    return Table(features.uri, features.format, tuple(columns))


def _vector_column(features: FeatureInput) -> Column:
    return Column("features.vectorColumn", features.vector_column or "", "vector")


def _scalars(arrays: list[Any], columns: tuple[Column, ...], where: Where) -> Float32s:
    values = np.empty((len(arrays[0]), len(columns)), np.float32)
    for d, (array, column) in enumerate(zip(arrays, columns, strict=True)):
        values[:, d] = to_floats(array, column, where)
    return values


def _vectors(array: Any, column: Column, width: int, where: Where) -> Float32s:
    """A list column as ``[n, width]``."""
    refuse_nulls(array, column, where)
    _check_widths(array, column, width, where)
    flat = array.flatten()
    if flat.null_count:
        i, d = divmod(int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False))), width)
        raise InputError(
            f"{where.row(i)}: {column} has no value (null) at position {d}; fill it in or drop "
            "the row"
        )
    return as_float32(flat).reshape(len(array), width)


def _check_widths(array: Any, column: Column, width: int, where: Where) -> None:
    if pa.types.is_fixed_size_list(array.type):
        if array.type.list_size == width:
            return
        row, found = 0, array.type.list_size
    else:
        widths = np.diff(array.offsets.to_numpy())
        if (widths == width).all():
            return
        row = int(np.argmax(widths != width))
        found = widths[row]
    raise InputError(
        f"{where.row(row)}: {column} holds a vector of width {found}, but the features have width "
        f"{width} (as in the first row); all rows must have the same"
    )


def non_finite(batch: FeatureBatch) -> tuple[int, int | str | None]:
    """How many values are NaN or Inf, and the id of the first row with one (None: no such row)."""
    wrong = ~np.isfinite(batch.values)
    total = int(np.count_nonzero(wrong))
    if total == 0:
        return 0, None
    first = batch.ids[int(np.argmax(wrong.any(axis=1)))]
    return total, int(first) if isinstance(batch.ids, np.ndarray) else first.as_py()
