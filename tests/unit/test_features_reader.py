"""Features: every format gives the same rows and ids, and every bad one a message that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embertide.errors import ObjectMissing
from embertide.io.readers.feature_schema import feature_schema
from embertide.io.readers.features import FeatureBatch, non_finite, split_features
from embertide.io.storage.protocol import Storage
from tests.support.feature_files import feature_input, read_all

WIDTH = 5
RNG = np.random.default_rng(3)
VALUES = RNG.standard_normal((203, WIDTH)).astype(np.float32)
IDS = RNG.permutation(203)
VECTOR = {"vectorColumn": "x"}


def lists(values: np.ndarray[Any, Any], held: Any) -> Any:
    return pa.array(list(values), held)


KINDS = {
    "list": pa.list_(pa.float32()),
    "large_list": pa.large_list(pa.float32()),
    "fixed": pa.list_(pa.float32(), WIDTH),
    "double": pa.list_(pa.float64()),
    "half": pa.list_(pa.float16(), WIDTH),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", [1, 1 << 30])
def test_vectors_in_parquet(tmp_path: Path, storage: Storage, kind: str, target: int) -> None:
    held = VALUES.astype(np.float16) if kind == "half" else VALUES
    for name, part in {"a": slice(None, 100), "b": slice(100, None)}.items():
        table = pa.table({"x": lists(held[part], KINDS[kind]), "id": IDS[part]})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=30)
    features = feature_input(tmp_path, **VECTOR)
    ids, values = read_all(storage, features, target=target, batch=200)
    assert ids == IDS.tolist()
    np.testing.assert_array_equal(values, held.astype(np.float32))


@pytest.mark.parametrize("columns", [["f", "i"], ["*"], ["?"]])
@pytest.mark.parametrize("scaled", [False, True])
def test_vectors_and_scalar_columns(
    tmp_path: Path, storage: Storage, columns: list[str], scaled: bool
) -> None:
    held = {"f": [0.5, 1.5], "id": ["a", "b"], "x": [[1.0, 2.0], [3.0, 4.0]], "i": [7, 8]}
    pq.write_table(pa.table(held), tmp_path / "f.parquet")
    scaling = {"scaling": {"mean": [1, 2, 0.5, 7], "scale": [1, 1, 2, 1]}} if scaled else {}
    features = feature_input(tmp_path / "f.parquet", vectorColumn="x", columns=columns, **scaling)
    schema = feature_schema(storage, features)
    assert (schema.width, schema.columns) == (4, ("f", "i"))
    assert [schema.name_of(at) for at in range(4)] == [None, None, "f", "i"]
    _, values = read_all(storage, features, "string")
    unscaled = [[1, 2, 0.5, 7], [3, 4, 1.5, 8]]
    assert values.tolist() == ([[0, 0, 0, 0], [2, 2, 0.5, 1]] if scaled else unscaled)


@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.parametrize("kind", ["dense", "int64", "string"])
@pytest.mark.parametrize("target", [1, 1 << 30])
def test_npy_with_ids(
    tmp_path: Path, storage: Storage, fortran: bool, kind: str, target: int
) -> None:
    ids = np.array([f"n{i}" for i in IDS]) if kind == "string" else IDS
    for name, part in {"a": slice(None, 100), "b": slice(100, None)}.items():
        for folder in ("x", "ids"):
            (tmp_path / folder).mkdir(exist_ok=True)
        held = VALUES[part].astype(np.float64)
        np.save(tmp_path / f"x/{name}.npy", np.asfortranarray(held) if fortran else held)
        np.save(tmp_path / f"ids/{name}.npy", ids[part])
    features = feature_input(tmp_path / "x", "npy", idsUri=f"file://{tmp_path}/ids")
    found, values = read_all(storage, features, kind, target, 200)
    assert found == ids.tolist()
    np.testing.assert_array_equal(values, VALUES)


@given(target=st.integers(1, 6000), batch=st.integers(1, 6000), cut=st.integers(0, 203))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
@pytest.mark.parametrize("form", ["npy", "parquet"])
def test_rows_without_ids_are_numbered_through_all_objects(
    tmp_path: Path, storage: Storage, form: str, target: int, batch: int, cut: int
) -> None:
    for name, part in {"a": VALUES[:cut], "b": VALUES[cut:]}.items():
        if form == "npy":
            np.save(tmp_path / f"{name}.npy", part)
        else:
            table = pa.table({"x": lists(part, KINDS["fixed"])})
            pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=17)
    fields = {} if form == "npy" else {**VECTOR, "idColumn": None}
    features = feature_input(tmp_path, form, **fields)
    ids, values = read_all(storage, features, "dense", target, batch, count=203)
    assert ids == list(range(203))
    np.testing.assert_array_equal(values, VALUES)


def test_non_finite_values_are_counted_with_the_first_id() -> None:
    values = np.ones((4, 2), np.float32)
    where: Any = None
    assert non_finite(FeatureBatch(np.arange(4), values, where)) == (0, None)
    values[1] = [np.nan, np.inf]
    values[3, 0] = -np.inf
    assert non_finite(FeatureBatch(np.array([7, 8, 9, 5]), values, where)) == (3, 8)
    names = pa.array(["a", "b", "c", "d"], pa.large_string())
    assert non_finite(FeatureBatch(names, values, where)) == (3, "b")


# ---- bad input


def test_missing_objects(tmp_path: Path, storage: Storage) -> None:
    with pytest.raises(ObjectMissing):
        split_features(storage, feature_input(tmp_path / "none.parquet", **VECTOR))
