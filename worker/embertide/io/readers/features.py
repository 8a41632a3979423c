"""Node features, streamed in any row order: vectors or scalar columns in parquet, npy arrays.

Batches are float32 and row-major, ready to be copied into a rank's tensor. Values are not
judged here: NaN and Inf are counted by `non_finite`, so that ranks can add up their counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from embertide.io.readers.column_patterns import patterns_of
from embertide.io.readers.columns import Column, Float32s, Int64s
from embertide.io.readers.drawn import IdsAlone, read_ids, split_ids
from embertide.io.readers.feature_schema import FeatureSchema, feature_schema, vector_column
from embertide.io.readers.ids import IdKind, Ids, Mask, id_column, to_ids
from embertide.io.readers.latest import order_column, without_earlier
from embertide.io.readers.layout import keep_rows
from embertide.io.readers.npy_features import read_npy_features, row_numbers, split_npy_features
from embertide.io.readers.scaling import Scaling
from embertide.io.readers.sources import Sources
from embertide.io.readers.splits import TARGET_BYTES, Split
from embertide.io.readers.table import Table, read_table, split_table
from embertide.io.readers.vectors import Numbers, joined
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import Storage
from embertide.kernels.drawn import draw_rows
from embertide.spec.manifest import FeatureInput

BATCH_BYTES = 8 << 20
_MOST_ROWS = 1 << 18


@dataclass(frozen=True)
class FeatureBatch:
    """Some rows: ``ids`` (``np.int64 [n]`` or an arrow array of strings) and their ``values``.

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
    schema: FeatureSchema | None = None,
    sources: Sources | None = None,
) -> list[Split]:
    """Splits of the features, about ``target_bytes`` each, in order of uri and row.

    Columns and their types are checked in every object. ``schema`` is `feature_schema`'s result
    (found again when left out).

    Raises:
        ObjectMissing: there are no objects of the features.
        InputError: an object is unreadable or in a subfolder, or a column is missing or has a
            wrong type, or a pattern selects others than in the first object.
    """
    if isinstance(features, IdsAlone):
        return split_ids(
            storage, features, schema.width if schema else 1, target_bytes, ids, sources
        )
    if features.format == "npy":
        return split_npy_features(storage, features, target_bytes, ids)
    if schema is None:
        schema = feature_schema(storage, features, sources=sources)
    table = _table(features, ids, schema)
    if features.latest_by is None:
        return split_table(storage, table, target_bytes, sources)
    columns = (*table.columns, order_column(features.latest_by))
    splits = split_table(storage, replace(table, columns=columns), target_bytes, sources)
    return splits if ids is None else without_earlier(storage, features, ids, splits)


def read_features(
    storage: Storage,
    features: FeatureInput,
    ids: IdKind,
    split: Split,
    schema: FeatureSchema | None = None,
    batch_bytes: int = BATCH_BYTES,
    count: int | None = None,
    wanted: Int64s | None = None,
) -> Iterator[FeatureBatch]:
    """The rows of a split, each exactly once and in order, about ``batch_bytes`` a batch.

    Values of any kind become float32: scaled in float64 where the schema has a scaling, then
    rounded once to the nearest (integers beyond 2^24 too, as for edge weights).

    ``schema`` is `feature_schema`'s result (found again for every split when left out);
    ``count`` the number of nodes, where it is known and ids are dense; ``wanted`` dense ids,
    ascending, whose rows alone are given, where those of arrays are numbered.

    Raises:
        InputError: names object and row of the first null, bad id, or vector of another width.
    """
    if schema is None:
        schema = feature_schema(storage, features)
    rows = max(1, min(_MOST_ROWS, batch_bytes // (4 * max(1, schema.width))))
    if isinstance(features, IdsAlone):
        batches = _read_ids(storage, features, ids, split, rows, wanted)
    elif features.format == "npy":
        batches = read_npy_features(storage, ids, split, schema.stored, rows, count, wanted)
    else:
        batches = _read_parquet(storage, features, ids, split, schema, rows, count, wanted)
    for found, values, where in batches:
        read = _float32(values, schema.scaling)
        yield FeatureBatch(found, _with_drawn(read, found, schema), where)


def _with_drawn(values: Float32s, ids: Ids, schema: FeatureSchema) -> Float32s:
    """``values`` [n, stored] with the columns that are drawn."""
    if schema.drawn is None:
        return values
    rows = np.empty((len(values), schema.width), np.float32)
    rows[:, : schema.stored] = values
    draw_rows(ids, schema.drawn.columns, schema.drawn.seed, rows[:, schema.stored :])
    return rows


def _read_ids(
    storage: Storage,
    features: IdsAlone,
    ids: IdKind,
    split: Split,
    rows: int,
    wanted: Int64s | None,
) -> Iterator[tuple[Ids, Numbers, Where]]:
    for found, where in read_ids(storage, features, ids, split, rows):
        some, place = found, where
        if wanted is not None:
            kept = np.flatnonzero(_among(found, wanted))
            some, place = found[kept], where.select(kept)
        if len(some):
            yield some, np.empty((len(some), 0), np.float32), place


def _float32(values: Numbers, scaling: Scaling | None) -> Float32s:
    """``values`` [n, D] scaled, as a writable C-contiguous float32 array."""
    if scaling is not None:
        return scaling.apply(values.astype(np.float64, order="C", copy=True))
    # What does not fit becomes Inf, which is counted with the other values that are not finite.
    with np.errstate(over="ignore"):
        found: Float32s = values.astype(np.float32, order="C", copy=not values.flags.writeable)
    return found


def _read_parquet(
    storage: Storage,
    features: FeatureInput,
    ids: IdKind,
    split: Split,
    schema: FeatureSchema,
    rows: int,
    count: int | None,
    wanted: Int64s | None,
) -> Iterator[tuple[Ids, Numbers, Where]]:
    table = _table(features, ids, schema)
    dtype = np.float32 if schema.scaling is None else np.float64
    numbered = features.by_row_number
    columns = table.columns if numbered else table.columns[1:]
    for arrays, where in read_table(storage, table, split, rows):
        if numbered:
            found: Ids = row_numbers(split, where, len(arrays[0]), count)
        else:
            found = to_ids(arrays[0], table.columns[0], ids, where, count)
        if wanted is not None:
            kept = _among(found, wanted)
            if not kept.any():
                continue
            found, (arrays, where) = found[kept], keep_rows(arrays, where, kept)
        data = arrays if numbered else arrays[1:]
        yield found, joined(data, columns, schema.stored, where, dtype), where


def _among(ids: Ids, wanted: Int64s) -> Mask:
    """[n] bool, the ids that are among others, which are ascending."""
    at = np.minimum(np.searchsorted(wanted, ids), max(0, len(wanted) - 1))
    return wanted[at] == ids if len(wanted) else np.zeros(len(ids), np.bool_)


def _table(features: FeatureInput, ids: IdKind | None, schema: FeatureSchema) -> Table:
    """The id column (unless rows are numbered), then the vector column, and all scalar ones."""
    columns = []
    if features.id_column is not None:
        columns.append(id_column("features.idColumn", features.id_column, ids))
    if features.vector_column is not None:
        columns.append(vector_column(features))
    columns += [Column("features.columns", name, "number") for name in schema.columns or ()]
    patterns = patterns_of(features)
    return Table(
        "features",
        features,
        features.format,
        tuple(columns),
        check_names=partial(patterns.check, schema.columns or ()) if patterns else None,
    )


def non_finite(batch: FeatureBatch) -> tuple[int, int | str | None]:
    """How many values are NaN or Inf, and the id of the first row with one (None: no such row)."""
    wrong = ~np.isfinite(batch.values)
    total = int(np.count_nonzero(wrong))
    if total == 0:
        return 0, None
    first = batch.ids[int(np.argmax(wrong.any(axis=1)))]
    return total, int(first) if isinstance(batch.ids, np.ndarray) else first.as_py()
