"""How much of an object a store is asked for: each split's rows once, and hardly more."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.io.readers.edges import read_edges, split_edges
from embertide.io.readers.feature_schema import FeatureSchema
from embertide.io.readers.features import read_features, split_features
from embertide.io.readers.splits import Split
from embertide.io.storage.protocol import Storage
from embertide.io.versions.lookup import read_rows_of
from embertide.spec.edges import EdgeInput
from embertide.spec.features import FeatureInput
from tests.support.compared import publish_rows, random_rows
from tests.support.versions import OLD

pytestmark = pytest.mark.s3

MIB = 1 << 20
TARGET_BYTES = 5 * MIB
"""Of a split: not a multiple of what is asked for at a time."""
BESIDE_BYTES = 80 << 10
"""What a split may ask for beside its rows: a header or a footer, and the end of a line."""
EDGES = 1_500_000
SOURCE = np.random.default_rng(1).integers(0, 1 << 40, EDGES)
ROWS, WIDTH = 50_000, 64


def parquet(table: Any, rows: int) -> bytes:
    held = io.BytesIO()
    pq.write_table(table, held, row_group_size=rows, use_dictionary=False, compression="none")
    return held.getvalue()


def npy(values: np.ndarray[Any, Any]) -> bytes:
    held = io.BytesIO()
    np.save(held, values)
    return held.getvalue()


def csv(table: Any) -> bytes:
    held = io.BytesIO()
    pc.write_csv(table, held)
    return held.getvalue()


def edges_in(form: str) -> bytes:
    """Edges in a format, with what nobody reads between their ends where it has columns."""
    other = np.random.default_rng(2).integers(0, 1 << 40, EDGES)
    if form == "npy":
        return npy(np.stack([SOURCE, SOURCE[::-1]], axis=1))
    if form == "csv":
        return csv(pa.table({"src": SOURCE, "dst": SOURCE[::-1]}))
    # Row groups of 3.2 MB columns: what is between them is more than a gap.
    table = pa.table({"src": SOURCE, "other": other, "dst": SOURCE[::-1]})
    return parquet(table, 400_000)


def bytes_of(storage: Storage, edges: EdgeInput, splits: list[Split]) -> int:
    """What a store is asked for to read splits, which have all edges."""
    before, kinds = storage.stats.bytes_read, ("int64", "int64")
    batches = [batch for split in splits for batch in read_edges(storage, edges, kinds, split)]
    assert np.array_equal(np.concatenate([batch.source for batch in batches]), SOURCE)
    return storage.stats.bytes_read - before


@pytest.mark.parametrize("form", ["parquet", "npy", "csv"])
def test_edges(storage: Storage, root: str, form: str) -> None:
    edges = EdgeInput.model_validate({"uri": f"{root}/e.{form}", "format": form})
    storage.write(edges.uri, edges_in(form))
    splits = split_edges(storage, edges, TARGET_BYTES, ("int64", "int64"))
    assert len(splits) > 2
    read = bytes_of(storage, edges, splits)
    wanted = sum(split.size for split in splits)
    assert wanted <= read + BESIDE_BYTES
    assert read <= wanted + len(splits) * BESIDE_BYTES


@pytest.mark.parametrize("left", [1000, EDGES // 2])
def test_edges_that_changed_after_they_were_listed(storage: Storage, root: str, left: int) -> None:
    """Whatever is there now: with its footer elsewhere, or far shorter than what was listed."""
    edges = EdgeInput.model_validate({"uri": f"{root}/e.parquet", "format": "parquet"})
    table = pa.table({"src": SOURCE, "dst": SOURCE[::-1]})
    storage.write(edges.uri, parquet(table, 400_000))
    splits = split_edges(storage, edges, TARGET_BYTES, ("int64", "int64"))
    storage.write(edges.uri, parquet(table[:left], 400_000))
    with pytest.raises(InputError, match=f"{edges.uri} changed after it was listed; run the job"):
        list(read_edges(storage, edges, ("int64", "int64"), splits[0]))


def test_a_footer_that_is_longer_than_most(storage: Storage, root: str) -> None:
    edges = EdgeInput.model_validate({"uri": f"{root}/e.parquet", "format": "parquet"})
    data = parquet(pa.table({"src": SOURCE, "dst": SOURCE[::-1]}), 1000)
    footer = int.from_bytes(data[-8:-4], "little")
    assert footer > 1 << 17
    storage.write(edges.uri, data)
    splits = split_edges(storage, edges, TARGET_BYTES, ("int64", "int64"))
    read = bytes_of(storage, edges, splits)
    assert read <= len(data) + len(splits) * (footer + BESIDE_BYTES)


def test_columns_of_an_array_in_fortran_order(storage: Storage, root: str) -> None:
    edges = EdgeInput.model_validate({"uri": f"{root}/e.npy", "format": "npy"})
    storage.write(edges.uri, npy(np.stack([SOURCE, SOURCE[::-1]]).T))
    splits = split_edges(storage, edges, TARGET_BYTES, ("int64", "int64"))
    assert len(splits) > 2
    read = bytes_of(storage, edges, splits)
    assert read <= 2 * SOURCE.nbytes + len(splits) * BESIDE_BYTES


@pytest.mark.parametrize("form", ["parquet", "npy"])
def test_features(storage: Storage, root: str, form: str) -> None:
    values = np.random.default_rng(3).standard_normal((ROWS, WIDTH)).astype(np.float32)
    features = FeatureInput.model_validate(
        {"uri": f"{root}/x", "format": form}
        | ({"idsUri": f"{root}/ids"} if form == "npy" else {"vectorColumn": "x"})
    )
    if form == "npy":
        storage.write(f"{root}/x/0.npy", npy(values))
        storage.write(f"{root}/ids/0.npy", npy(np.arange(ROWS)))
    else:
        vectors = pa.FixedSizeListArray.from_arrays(values.reshape(-1), WIDTH)
        storage.write(
            f"{root}/x/0.parquet", parquet(pa.table({"id": np.arange(ROWS), "x": vectors}), 10_000)
        )
    splits = split_features(storage, features, TARGET_BYTES, "dense")
    assert len(splits) > 1
    before = storage.stats.bytes_read
    schema = FeatureSchema(WIDTH)
    batches = [
        b for split in splits for b in read_features(storage, features, "dense", split, schema)
    ]
    read = storage.stats.bytes_read - before
    assert np.array_equal(np.concatenate([batch.values for batch in batches]), values)
    wanted = values.nbytes + 8 * ROWS
    # Of parquet with the levels of nested values.
    assert wanted <= read <= 1.02 * wanted + 2 * len(splits) * BESIDE_BYTES


def test_a_few_ids_take_a_few_parts(storage: Storage, root: str) -> None:
    count, width, parts = 20_000, 32, 20
    rows = random_rows(count, width, 2)
    cuts = tuple(at / parts for at in range(1, parts))
    publish_rows(storage, f"{root}/out", OLD, rows, cuts=cuts, batch=500)
    wanted = list(rows)[:3]
    before = storage.stats.copy()
    found = read_rows_of(storage, f"{root}/out", wanted)
    read = storage.stats.bytes_read - before.bytes_read
    np.testing.assert_array_equal(found.to_numpy()[1], np.stack([rows[name] for name in wanted]))
    # At most three of twenty parts, and the manifest.
    assert read < 0.25 * 4 * count * width
