"""How often a store is asked: each answer is waited for."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.loaders import JSONFileLoader

from embertide.engine.planning.inputs import list_inputs
from embertide.errors import InputError
from embertide.io.readers.edges import split_edges
from embertide.io.readers.feature_schema import FeatureSchema
from embertide.io.readers.features import read_features, split_features
from embertide.io.readers.table_formats import FoldersAbove, folders_above
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.io.versions.lookup import read_rows_of
from embertide.io.versions.objects import objects_of
from embertide.io.versions.reading import read_version
from embertide.spec.edges import EdgeInput
from embertide.spec.features import FeatureInput
from embertide.spec.manifest import StorageSettings, load_manifest
from tests.support.s3.server import S3Server
from tests.support.versions import CURRENT, publish_one, values_of

pytestmark = pytest.mark.s3


def asked(storage: Storage) -> dict[str, int]:
    """Requests by operation, since the last call."""
    counts = {name: counted.requests for name, counted in storage.stats.operations.items()}
    storage.stats.operations.clear()
    return counts


def parquet(table: pa.Table) -> bytes:
    held = io.BytesIO()
    pq.write_table(table, held)
    return held.getvalue()


def npy(values: np.ndarray[Any, Any]) -> bytes:
    held = io.BytesIO()
    np.save(held, values)
    return held.getvalue()


def test_an_object_is_looked_for_with_one_request(storage: Storage, root: str) -> None:
    written = {data: storage.write(f"{root}/{len(data)}", data) for data in (b"", b"123")}
    asked(storage)
    assert storage.stat(f"{root}/3") == written[b"123"]
    assert asked(storage) == {"GetObject": 1}
    assert storage.stat(f"{root}/nothing") is None
    assert asked(storage) == {"GetObject": 1}
    # The answer about the first byte of nothing has no tag.
    assert storage.stat(f"{root}/0") == written[b""]
    assert asked(storage) == {"GetObject": 1, "HeadObject": 1}


def test_readers_ask_for_each_object_once(storage: Storage, root: str) -> None:
    """LATEST, the manifest and two small parts."""
    publish_one(storage, root, CURRENT)
    for read in (
        lambda: read_version(storage, root),
        lambda: read_rows_of(storage, root, [6, 0, 3]),
    ):
        asked(storage)
        ids, values = read().to_numpy()
        assert asked(storage) == {"GetObject": 4}
        assert np.array_equal(values, values_of(CURRENT)[ids])


def test_another_client_parses_no_description_again(
    s3: S3Server, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    load = JSONFileLoader.load_file

    def load_and_note(loader: JSONFileLoader, path: str) -> object:
        data = load(loader, path)
        if data is not None:
            loaded.append(path)
        return data

    monkeypatch.setattr(JSONFileLoader, "load_file", load_and_note)
    for _ in range(2):
        loaded.clear()
        settings = StorageSettings(endpoint_url=s3.endpoint, region=s3.region)
        assert open_storage(settings).stat(f"{root}/nothing") is None
    assert loaded == []


def test_a_version_is_listed_with_one_request(storage: Storage, root: str) -> None:
    storage.write(f"{root}/versions/20260101T000000Z-000000/part-00000.npy", b"1")
    asked(storage)
    assert len(objects_of(storage, root, "20260101T000000Z-000000")) == 1
    assert asked(storage) == {"ListObjectsV2": 1}


JOB = """
apiVersion: embertide.dev/v1alpha1
kind: EmbeddingJob
metadata: {{name: listed}}
spec:
  input:
    edges: [{{uri: "{root}/edges", format: parquet, features: {{vectorColumn: f}}}}]
    nodes:
      - ids: int64
        features: {{uri: "{root}/x", format: npy, idsUri: "{root}/ids"}}
  model: {{uri: "{root}/model/model.yaml"}}
  output: {{uri: "{root}/out"}}
"""


def test_each_folder_of_a_job_is_listed_once(storage: Storage, root: str) -> None:
    """Features are asked for their schema and for their splits, edges for both and their width."""
    table = pa.table({"src": [0, 1], "dst": [1, 0], "f": [[0.5, 1.5], [1.0, 2.0]]})
    storage.write(f"{root}/edges/0.parquet", parquet(table))
    storage.write(f"{root}/x/0.npy", npy(np.ones((2, 3), np.float32)))
    storage.write(f"{root}/ids/0.npy", npy(np.array([0, 1])))
    job = load_manifest(JOB.format(root=root))
    asked(storage)
    inputs = list_inputs(storage, job)
    listed = asked(storage)["ListObjectsV2"]
    assert inputs.listings.keys() == {f"{root}/{name}" for name in ("edges", "x", "ids")}
    # And once the model's, and the folders above, which might be tables.
    assert listed == len(inputs.listings) + 1 + len(folders_above(f"{root}/x"))


def edges_at(uri: str) -> EdgeInput:
    return EdgeInput.model_validate({"uri": uri, "format": "parquet", "recursive": True})


def test_a_table_is_noticed_by_the_requests_that_list_its_files(
    storage: Storage, root: str
) -> None:
    for name in ("_delta_log/0.json", "a.parquet"):
        storage.write(f"{root}/t/{name}", b"")
    asked(storage)
    with pytest.raises(InputError, match=f"belongs to a Delta table: {root}/t/_delta_log/ is"):
        split_edges(storage, edges_at(f"{root}/t/"))
    assert asked(storage) == {"ListObjectsV2": 1}


def test_each_folder_above_the_inputs_is_asked_for_once(storage: Storage, root: str) -> None:
    for name in ("x/_delta_log/0.json", "y/metadata/v1.metadata.json", "z/metadata/x.json"):
        storage.write(f"{root}/{name}", b"")
    above = FoldersAbove(storage)
    asked(storage)
    # The bucket's root, the test's folder.
    above.refuse_tables([f"{root}/edges", f"{root}/features/"])
    assert asked(storage) == {"ListObjectsV2": 2}
    above.refuse_tables([f"{root}/edges", f"{root}/ids"])
    assert asked(storage) == {}
    with pytest.raises(InputError, match="Delta table"):
        above.refuse_tables([f"{root}/x/dt=2026-11-26/"])
    assert asked(storage) == {"ListObjectsV2": 1}
    with pytest.raises(InputError, match=f"{root}/y/metadata/v1.metadata.json is its metadata"):
        above.refuse_tables([f"{root}/y/data/a.parquet"])
    assert asked(storage) == {"ListObjectsV2": 3}
    above.refuse_tables([f"{root}/z/data"])
    assert asked(storage) == {"ListObjectsV2": 2}


def test_rows_come_with_the_header_that_says_where_they_are(storage: Storage, root: str) -> None:
    ids = np.random.default_rng(0).permutation(64)
    storage.write(f"{root}/x/0.npy", npy(ids[:, None] * np.ones(4, np.float32)))
    storage.write(f"{root}/ids/0.npy", npy(ids))
    features = FeatureInput.model_validate(
        {"uri": f"{root}/x", "format": "npy", "idsUri": f"{root}/ids"}
    )
    whole = split_features(storage, features, 1 << 20, "dense")
    halves = split_features(storage, features, 1 << 10, "dense")
    assert (len(whole), len(halves)) == (1, 2)
    # The rows of each array; of ids, where a split begins later, their header comes first.
    for (split,), requests in (whole, 2), (halves[1:], 3):
        asked(storage)
        (batch,) = read_features(storage, features, "dense", split, FeatureSchema(4))
        assert asked(storage) == {"GetObject": requests}
        assert np.array_equal(batch.ids, ids[split.start : split.stop])
        assert np.array_equal(batch.values[:, 3], batch.ids)
