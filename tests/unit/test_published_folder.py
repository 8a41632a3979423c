"""A published version as the libraries that people use read it: by the name of its folder."""

from __future__ import annotations

from pathlib import Path

import duckdb
import faiss
import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from embertide.io.readers.feature_schema import feature_schema
from embertide.io.readers.features import read_features, split_features
from embertide.io.storage.opening import open_storage
from embertide.spec.manifest import FeatureInput
from tests.support.versions import OLD, WIDTH, publish_one, values_of

VALUES = values_of(OLD)
IDS = list(range(len(VALUES)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a version with two parts."""
    publish_one(open_storage(), f"file://{tmp_path}", OLD)
    return tmp_path / "versions" / OLD


def same(ids: object, vectors: npt.ArrayLike) -> bool:
    return np.array_equal(np.asarray(ids), IDS) and np.array_equal(np.asarray(vectors), VALUES)


def test_what_is_not_data_has_an_underscore(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["_manifest.json", "part-00000.parquet", "part-00001.parquet"]


def test_pyarrow(folder: Path) -> None:
    table = pq.read_table(folder)
    assert same(table["id"], table["embedding"].to_pylist())
    data = ds.dataset(folder)
    assert data.schema.names == ["id", "embedding"]
    assert data.to_table(filter=ds.field("id") == 6)["embedding"].to_pylist() == [
        VALUES[6].tolist()
    ]


def test_pandas(folder: Path) -> None:
    frame = pd.read_parquet(folder)
    assert same(frame["id"], np.stack(frame["embedding"].tolist()))


def test_polars(folder: Path) -> None:
    for frame in (
        pl.read_parquet(f"{folder}/*.parquet"),
        pl.scan_parquet(folder, hidden_file_prefix="_").collect(),
    ):
        assert frame.schema["embedding"] == pl.Array(pl.Float32, WIDTH)
        assert same(frame["id"], frame["embedding"].to_numpy())


def test_duckdb(folder: Path) -> None:
    rows = duckdb.sql(f"SELECT id, embedding FROM read_parquet('{folder}/*.parquet')").fetchall()
    assert same([id for id, _ in rows], [vector for _, vector in rows])


def test_faiss(folder: Path) -> None:
    table = pq.read_table(folder)
    vectors = np.stack(table["embedding"].to_numpy(zero_copy_only=False))
    index = faiss.IndexFlatL2(WIDTH)
    index.add(vectors)
    _, found = index.search(VALUES[:3], 1)
    assert table["id"].to_numpy()[found[:, 0]].tolist() == [0, 1, 2]


def test_the_next_jobs_features(folder: Path) -> None:
    storage = open_storage()
    features = FeatureInput.model_validate(
        {"uri": str(folder), "format": "parquet", "idColumn": "id", "vectorColumn": "embedding"}
    )
    schema = feature_schema(storage, features)
    assert schema.width == WIDTH
    ids, values = [], []
    for split in split_features(storage, features, ids="int64", schema=schema):
        for batch in read_features(storage, features, "int64", split, schema):
            ids += batch.ids.tolist()
            values.append(batch.values)
    assert same(ids, np.concatenate(values))


def test_npy(tmp_path: Path) -> None:
    publish_one(open_storage(), f"file://{tmp_path}", OLD, format="npy")
    folder = tmp_path / "versions" / OLD
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "_manifest.json",
        "part-00000.ids.npy",
        "part-00000.npy",
        "part-00001.ids.npy",
        "part-00001.npy",
    ]
    ids = np.concatenate([np.load(path) for path in sorted(folder.glob("part-*.ids.npy"))])
    vectors = np.concatenate([np.load(path) for path in sorted(folder.glob("part-?????.npy"))])
    assert same(ids, vectors)
