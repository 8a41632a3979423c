"""Vectors as other people's tools write them: the same numbers, or an error with the row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.io.readers.reference import read_reference, split_reference
from embertide.io.storage.protocol import Storage
from tests.support.feature_files import feature_input, read_all

VALUES = [[0.5, -1.0, 0.0], [0.0, 2.0, 0.0], [1.0, 0.0, 4.0]]
SPARK = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        pa.field("values", pa.list_(pa.field("element", pa.float64(), nullable=False))),
    ]
)
"""The type of Spark ML's vectors, as Spark writes it."""


def dense(*values: float) -> dict[str, Any]:
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def sparse(size: int, indices: list[int], values: list[float]) -> dict[str, Any]:
    return {"type": 0, "size": size, "indices": indices, "values": values}


def _arrow(array: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table({"id": [0, 1, 2], "x": array}), path)


def _groups(inner: str) -> Callable[[Path], None]:
    held = pa.struct([("list", pa.list_(pa.struct([(inner, pa.float64())])))])
    rows = [{"list": [{inner: value} for value in row]} for row in VALUES]
    return _arrow(pa.array(rows, held))


def _duckdb(kind: str) -> Callable[[Path], None]:
    rows = ", ".join(f"({i}, {row})" for i, row in enumerate(VALUES))
    query = f"SELECT i AS id, x::{kind} AS x FROM (VALUES {rows}) t(i, x)"
    return lambda path: duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet)") and None


def _texts(*texts: str) -> Callable[[Path], None]:
    return _arrow(pa.array(texts))


def _polars(kind: Any) -> Callable[[Path], None]:
    frame = polars.DataFrame({"id": [0, 1, 2], "x": polars.Series(VALUES, dtype=kind)})
    return lambda path: frame.write_parquet(path)


TOOLS: dict[str, Callable[[Path], None]] = {
    "pandas, lists": lambda path: pandas.DataFrame({"id": [0, 1, 2], "x": VALUES}).to_parquet(path),
    "pandas, arrays": lambda path: pandas.DataFrame(
        {"id": [0, 1, 2], "x": list(np.array(VALUES))}
    ).to_parquet(path),
    "polars, List": _polars(polars.List(polars.Float32)),
    "polars, Array": _polars(polars.Array(polars.Float64, 3)),
    "duckdb, list": _duckdb("DOUBLE[]"),
    "duckdb, array": _duckdb("FLOAT[3]"),
    "duckdb, text": _duckdb("DOUBLE[]::VARCHAR"),
    "a tensor of arrow": _arrow(
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float64(), [3]), pa.array(VALUES, pa.list_(pa.float64(), 3))
        )
    ),
    "Spark ML, dense": _arrow(pa.array([dense(*row) for row in VALUES], SPARK)),
    "Spark ML, sparse": _arrow(
        pa.array(
            [sparse(3, [0, 1], [0.5, -1.0]), sparse(3, [1], [2.0]), sparse(3, [0, 2], [1.0, 4.0])],
            SPARK,
        )
    ),
    "Spark ML, both": _arrow(
        pa.array([sparse(3, [0, 1], [0.5, -1.0]), dense(*VALUES[1]), dense(*VALUES[2])], SPARK)
    ),
    "BigQuery": _groups("element"),
    "BigQuery, earlier": _groups("item"),
    "a group around a list": _arrow(
        pa.array([{"list": row} for row in VALUES], pa.struct([("list", pa.list_(pa.float64()))]))
    ),
    "Snowflake": _texts("[\n  0.5,\n  -1,\n  0\n]", "[\n  0,\n  2,\n  0\n]", "[1, 0.0, 4e0]"),
    "pgvector": _texts("[0.5,-1,0]", "[0,2,0]", "[1,0,4]"),
    "an array of Postgres": _texts("{0.5,-1,0}", "{0,2,0}", "{1,0,4}"),
    "numpy's text": _texts("[ 0.5 -1.   0. ]", "[0. 2. 0.]", "[1. 0. 4.]"),
    "numbers": _texts("0.5,-1,0", "0, 2, 0", "1 0 4"),
    "bytes of text": _arrow(pa.array([b"[0.5, -1, 0]", b"[0, 2, 0]", b"[1, 0, 4]"])),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("batch", [12, 1 << 20])
def test_vectors(tmp_path: Path, storage: Storage, tool: str, batch: int) -> None:
    TOOLS[tool](tmp_path / "x.parquet")
    features = feature_input(tmp_path / "x.parquet", vectorColumn="x")
    ids, values = read_all(storage, features, batch=batch)
    assert ids == [0, 1, 2]
    assert values.tolist() == VALUES


@pytest.mark.parametrize("tool", ["Spark ML, both", "Snowflake", "BigQuery"])
def test_vectors_of_a_reference(tmp_path: Path, storage: Storage, tool: str) -> None:
    path = tmp_path / "reference.parquet"
    TOOLS[tool](path)
    table = pq.read_table(path).rename_columns(["id", "embedding"])
    pq.write_table(table, path)
    uri = f"file://{path}"
    found = read_reference(storage, split_reference(storage, uri, "int64"), "int64")
    assert found.values.tolist() == VALUES
