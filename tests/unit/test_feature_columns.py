"""Feature columns by pattern, of every kind of number: order, exactness, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.io.storage.protocol import Storage
from tests.support.feature_files import feature_input, read_all


def write(path: Path, **columns: Any) -> None:
    pq.write_table(pa.table(columns), path)


KINDS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def extremes(kind: str) -> np.ndarray[Any, Any]:
    if kind == "bool":
        return np.array([[False, True], [True, True]])
    most = np.iinfo(kind).max
    # 2^24 + 1 is the first integer between two float32.
    return np.array([[0, min(most, 2**24)], [min(most, 2**24 + 1), most]], kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["columns", "list", "fixed", "npy"])
def test_bool_and_integer_features(tmp_path: Path, storage: Storage, kind: str, form: str) -> None:
    values = extremes(kind)
    held = pa.from_numpy_dtype(values.dtype)
    if form == "npy":
        np.save(tmp_path / "x.npy", values)
        features = feature_input(tmp_path, "npy")
    elif form == "columns":
        write(tmp_path / "f.parquet", id=[0, 1], a=values[:, 0], b=values[:, 1])
        features = feature_input(tmp_path, columns=["a", "b"])
    else:
        of = pa.list_(held) if form == "list" else pa.list_(held, 2)
        write(tmp_path / "f.parquet", id=[0, 1], x=pa.array(values.tolist(), of))
        features = feature_input(tmp_path, vectorColumn="x")
    _, found = read_all(storage, features)
    np.testing.assert_array_equal(found, values.astype(np.float32))
