"""Feature columns of edge lists: every format gives the same numbers; bad ones are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.readers.edges import edge_feature_width
from embertide.storage.protocol import Storage
from tests.support.edge_files import edge_input, read_all, write_parquet

SRC, DST = np.arange(5), np.arange(5)[::-1].copy()
PRICE = np.array([1.5, -2, 0.25, 3, 4])
AGE = np.array([7, 1, 2**24 + 2, 0, 5])
ROWS = np.stack([PRICE, AGE], 1).astype(np.float32)


def found(storage: Storage, edges: Any) -> np.ndarray:
    batches = list(read_all(storage, edges, rows=2))
    assert all(batch.features.dtype == np.float32 for batch in batches)
    assert edge_feature_width(storage, edges) == 2
    return np.concatenate([batch.features for batch in batches])


def test_scalar_columns_in_the_order_of_the_manifest(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.parquet"
    write_parquet(path, 3, age=AGE, src=SRC, dst=DST, price=pa.array(PRICE, pa.float32()))
    given = {"features": {"columns": ["price", "age"]}}
    edges = edge_input(path, "parquet", **given)
    assert np.array_equal(found(storage, edges), ROWS)
    # One of them may be the weight, too.
    both = edge_input(path, "parquet", columns={"weight": "price"}, **given)
    assert np.array_equal(found(storage, both), ROWS)


@pytest.mark.parametrize("header", [True, False])
def test_text(tmp_path: Path, storage: Storage, header: bool) -> None:
    lines = [",".join(map(repr, row)) for row in zip(*(x.tolist() for x in (SRC, DST, PRICE, AGE)))]  # noqa: B905
    text = "\n".join((["src,dst,price,age"] if header else []) + lines)
    path = tmp_path / "e.csv"
    path.write_text(text)
    features = ["price", "age"] if header else [2, 3]
    weight = {"columns": {"weight": features[1]}}
    edges = edge_input(path, "csv", header=header, features={"columns": features}, **weight)
    assert np.array_equal(found(storage, edges), ROWS)
    assert [w for batch in read_all(storage, edges) for w in batch.weight] == ROWS[:, 1].tolist()


def test_npy(tmp_path: Path, storage: Storage) -> None:
    np.save(tmp_path / "e.npy", np.stack([PRICE, SRC, DST, AGE], 1))
    edges = edge_input(
        tmp_path / "e.npy",
        "npy",
        columns={"source": 1, "destination": 2},
        features={"columns": [0, 3]},
    )
    assert np.array_equal(found(storage, edges), ROWS)


@pytest.mark.parametrize("fixed", [True, False])
def test_a_column_of_vectors(tmp_path: Path, storage: Storage, fixed: bool) -> None:
    flat = pa.array(ROWS.ravel())
    vectors = pa.FixedSizeListArray.from_arrays(flat, 2) if fixed else pa.array(ROWS.tolist())
    write_parquet(tmp_path / "e.parquet", 3, src=SRC, dst=DST, x=vectors)
    edges = edge_input(tmp_path / "e.parquet", "parquet", features={"vectorColumn": "x"})
    assert np.array_equal(found(storage, edges), ROWS)


def test_no_columns_no_features(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "e.parquet", src=SRC, dst=DST)
    edges = edge_input(tmp_path / "e.parquet", "parquet")
    assert edge_feature_width(storage, edges) == 0
    assert all(batch.features is None for batch in read_all(storage, edges))


def test_vectors_of_no_edges(tmp_path: Path, storage: Storage) -> None:
    none = pa.array([], pa.int64())
    table = pa.table({"src": none, "dst": none, "x": pa.array([], pa.list_(pa.float32()))})
    pq.write_table(table, tmp_path / "e.parquet")
    edges = edge_input(tmp_path / "e.parquet", "parquet", features={"vectorColumn": "x"})
    with pytest.raises(InputError, match="does not say how long its vectors are"):
        edge_feature_width(storage, edges)
