"""Feature columns by pattern, of every kind of number: order, exactness, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.readers.feature_schema import feature_schema
from embertide.storage.protocol import Storage
from tests.support.feature_files import feature_input, read_all, refused


def write(path: Path, **columns: Any) -> None:
    pq.write_table(pa.table(columns), path)


ROW = {"id": [0], "f10": [10.0], "f2": [2.0], "age": [7.0], "g.1": [0.1], "name": ["n"]}


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        (["f*"], ("f10", "f2")),
        (["age", "f*"], ("age", "f10", "f2")),
        (["f?", "f??"], ("f2", "f10")),
        (["*2", "age", "*.1"], ("f2", "age", "g.1")),
        (["f2", "f10"], ("f2", "f10")),
    ],
)
def test_patterns_give_columns_in_the_order_of_the_first_object(
    tmp_path: Path, storage: Storage, given: list[str], columns: tuple[str, ...]
) -> None:
    write(tmp_path / "a.parquet", **ROW)
    # Another order in another object changes nothing.
    write(tmp_path / "b.parquet", **{name: ROW[name] for name in reversed(ROW)} | {"id": [1]})
    features = feature_input(tmp_path, columns=given)
    schema = feature_schema(storage, features)
    assert (schema.columns, schema.width) == (columns, len(columns))
    ids, values = read_all(storage, features)
    assert ids == [0, 1]
    expected = np.array([ROW[name][0] for name in columns], np.float32)
    np.testing.assert_array_equal(values, [expected, expected])


def test_a_pattern_never_selects_the_ids(tmp_path: Path, storage: Storage) -> None:
    write(tmp_path / "f.parquet", id=[3], a=[1], b=[2])
    assert feature_schema(storage, feature_input(tmp_path, columns=["*"])).columns == ("a", "b")
    numbered = feature_input(tmp_path, columns=["*"], idColumn=None)
    assert feature_schema(storage, numbered).columns == ("id", "a", "b")


def test_a_column_that_is_called_like_a_pattern(tmp_path: Path, storage: Storage) -> None:
    write(tmp_path / "f.parquet", **{"id": [0], "ab": [1.0], "a*": [2.0], "[c]": [3.0]})
    _, values = read_all(storage, feature_input(tmp_path, columns=["a*", "[?]"]))
    assert values.tolist() == [[2.0, 3.0]]


def test_objects_with_other_columns(tmp_path: Path, storage: Storage) -> None:
    features = feature_input(tmp_path, columns=["f*"])
    write(tmp_path / "a.parquet", id=[0], f1=[1.0], f2=[2.0])
    write(tmp_path / "b.parquet", id=[1], f1=[1.0], f2=[2.0], f3=[3.0])
    assert refused(storage, features) == (
        f"file://{tmp_path}/b.parquet has other columns for 'f*' (features.columns) than the first "
        "object: it also has 'f3'; all objects must have the same, or name the columns one by one"
    )
    write(tmp_path / "b.parquet", id=[1], f1=[1.0])
    assert "b.parquet has no column 'f2' (features.columns)" in refused(storage, features)


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
