"""Vectors that the user's own forward gave for some nodes, for comparing embeddings.

A table of a few hundred rows, read whole by every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.errors import InputError
from embertide.io.readers.columns import Column, list_widths, refuse_nulls
from embertide.io.readers.ids import IdKind, Ids, id_column, to_ids
from embertide.io.readers.splits import TARGET_BYTES, Split
from embertide.io.readers.table import BATCH_ROWS, Table, read_table, split_table
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import Storage
from embertide.kernels.arrow import to_numpy
from embertide.spec.places import ObjectInput, literal

NAME = "reference.parquet"
"""Beside ``model.yaml``: what every run compares with before it publishes.

A model of several node types has one for each, ``reference.<type>.parquet``."""

Vectors = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ReferenceColumns:
    """Names of the columns."""

    ids: str = "id"
    vectors: str = "embedding"


@dataclass(frozen=True)
class Reference:
    """``ids`` as in the files, and ``values`` [n, D'] float64."""

    uri: str
    ids: Ids
    values: Vectors


def reference_uri(model_uri: str, node_type: str | None = None, result: str = "") -> str:
    """Where a model, a folder or its ``model.yaml``, keeps the reference of a result.

    Args:
        node_type: of several; None where there is one.
        result: of several; "" of one without a name.
    """
    is_file = model_uri.endswith((".yaml", ".yml"))
    folder = model_uri.rsplit("/", 1)[0] if is_file else model_uri.rstrip("/")
    stem, extension = NAME.rsplit(".", 1)
    name = ".".join(filter(None, (stem, node_type, result, extension)))
    return f"{folder}/{name}"


def split_reference(
    storage: Storage, uri: str, ids: IdKind, columns: ReferenceColumns | None = None
) -> list[Split]:
    """The splits of a reference, its columns checked.

    Raises:
        ObjectMissing: there is no such object.
        InputError: it is unreadable, has no rows, or a column is missing or has a wrong type.
    """
    table = _table(uri, ids, columns or ReferenceColumns())
    splits = split_table(storage, table, TARGET_BYTES)
    if not splits:
        raise InputError(f"{uri} has no rows; write some nodes' ids and vectors")
    return splits


def read_reference(
    storage: Storage, splits: list[Split], ids: IdKind, columns: ReferenceColumns | None = None
) -> Reference:
    """All rows of a reference.

    Raises:
        InputError: names the row of the first null, bad id, vector of another width, NaN or Inf.
    """
    uri = splits[0].uri
    table = _table(uri, ids, columns or ReferenceColumns())
    found: list[Any] = []
    values: list[Vectors] = []
    for split in splits:
        for (names, vectors), where in read_table(storage, table, split, BATCH_ROWS):
            found.append(to_ids(names, table.columns[0], ids, where))
            width = values[0].shape[1] if values else None
            values.append(_vectors(vectors, table.columns[1], where, width))
    joined = pa.concat_arrays(found) if ids == "string" else np.concatenate(found)
    every = np.concatenate(values)
    if not every.any():
        raise InputError(f"{uri}: every vector is zero, which nothing can be compared with")
    return Reference(uri, joined, every)


def _table(uri: str, ids: IdKind, columns: ReferenceColumns) -> Table:
    wanted = (
        id_column("ids of the reference", columns.ids, ids),
        Column("vectors of the reference", columns.vectors, "vector"),
    )
    return Table("reference", ObjectInput(uri=literal(uri)), "parquet", wanted)


def _vectors(array: Any, column: Column, where: Where, width: int | None) -> Vectors:
    """A list column as ``[n, width]``; the first row's width where none is given."""
    refuse_nulls(array, column, where)
    widths = list_widths(array)
    width = int(widths[0]) if width is None else width
    if (widths != width).any():
        i = int(np.argmax(widths != width))
        raise InputError(
            f"{where.row(i)}: {column} holds a vector of width {widths[i]}, others have {width};"
            " write one forward's vectors"
        )
    flat = array.flatten()
    if pa.types.is_decimal(flat.type):
        flat = flat.cast(pa.float64())
    # A null becomes NaN.
    numbers = np.asarray(to_numpy(flat), np.float64)
    values = numbers.reshape(len(array), width)
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise InputError(
            f"{where.row(int(np.argmin(finite)))}: {column} holds NaN, an infinite value or a"
            " null; write the rows of a forward that is finite, or leave this one out"
        )
    return values
