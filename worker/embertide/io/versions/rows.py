"""Rows of a version in memory: batches and the columns of tables, whatever format they are in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.kernels.arrow import to_arrow, to_numpy

ID_COLUMN, VECTOR_COLUMN = "id", "embedding"

Ids = npt.NDArray[np.int64] | Any
"""``np.int64 [n]``, or a ``pa.LargeStringArray`` of n strings."""
Batch = tuple[Ids, npt.NDArray[np.float32]]
"""(ids, values): ``np.int64 [n]`` or ``pa.LargeStringArray``, and ``float32 [n, D]``."""

_BATCH_BYTES = 8 << 20


def batch_rows(width: int) -> int:
    """Rows of width D in a batch of about 8 MiB."""
    return max(1, _BATCH_BYTES // (4 * width))


def schema_of(ids_kind: str, dtype: np.dtype[Any] | None, width: int | None) -> Any:
    """The columns of a part as a table; without ``width`` the ids alone."""
    ids = pa.large_string() if ids_kind == "string" else pa.int64()
    fields = [pa.field(ID_COLUMN, ids, nullable=False)]
    if width is not None:
        element = pa.field("element", pa.from_numpy_dtype(dtype), nullable=False)
        fields.append(pa.field(VECTOR_COLUMN, pa.list_(element, width), nullable=False))
    return pa.schema(fields)


def table_of(ids: Any, values: npt.NDArray[Any]) -> Any:
    """A table with the columns of a part.

    Args:
        ids: arrow column of n int64 or large strings.
        values: ``[n, D]`` in the published dtype.
    """
    kind = "string" if pa.types.is_large_string(ids.type) else "int64"
    schema = schema_of(kind, values.dtype, values.shape[1])
    flat = to_arrow(values.reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, type=schema.field(1).type)
    return pa.Table.from_arrays([ids, vectors], schema=schema)


def ids_of(column: Any) -> Ids:
    """``np.int64 [n]``, or the column of strings as it is."""
    return column if pa.types.is_large_string(column.type) else to_numpy(column)


def values_of(column: Any, width: int) -> npt.NDArray[np.float32]:
    """``float32 [n, width]`` of a column of vectors."""
    vectors = to_numpy(column.flatten())
    return vectors.astype(np.float32, copy=False).reshape(-1, width)
