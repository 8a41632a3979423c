"""A table compared with the version that it was made of: how many rows, and a sample of them."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pyarrow as pa

from embertide.edge.indexes.push.loading import Source
from embertide.edge.indexes.push.protocol import Index, Mismatch, Table, TableSpec

SAMPLE_ROWS = 256
_MOST_PARTS = SAMPLE_ROWS


def verify(
    index: Index, table: Table, spec: TableSpec, source: Source, tolerance: float = 0.0
) -> int:
    """Compare; rows of several parts, which are in the order of a hash of their ids.

    Args:
        tolerance: by how much a vector may differ (Euclidean distance), where the table was made of
            deltas.

    Returns:
        Rows of the table.

    Raises:
        Mismatch: the number of rows differs, or a row does; names the first.
    """
    rows = sum(part.rows for part in source.parts)
    if (there := index.count(table)) != rows:
        raise Mismatch(f"{table.name} has {there} rows, {table.version} has {rows}")
    filled = [part for part in source.parts if part.rows]
    step = -(-len(filled) // _MOST_PARTS) or 1
    chosen = filled[::step]
    each = max(1, SAMPLE_ROWS // max(1, len(chosen)))
    for part in chosen:
        for shaped in islice(source.rows_of(part), 1):
            spread = np.unique(np.linspace(0, len(shaped.values) - 1, each).astype(np.int64))
            ids = shaped.ids.take(pa.array(spread)).to_pylist()
            _compare(index, table, spec, ids, shaped.values[spread], tolerance)
    return rows


def _compare(
    index: Index, table: Table, spec: TableSpec, ids: list[object], values: np.ndarray,
    tolerance: float,
) -> None:  # fmt: skip
    stored = index.rows(table, ids)
    wanted, off = index.stored(values, spec)
    for name, vector in zip(ids, wanted, strict=True):
        if name not in stored:
            raise Mismatch(f"{table.name} does not have the row {name!r}")
        difference = stored[name].astype(np.float64) - vector.astype(np.float64)
        if np.linalg.norm(difference) > max(off, tolerance):
            raise Mismatch(f"the row {name!r} of {table.name} is not that of {table.version}")
