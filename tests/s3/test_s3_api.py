"""``import embertide`` and the libraries that people use, over a real S3 server."""

from __future__ import annotations

import secrets

import numpy as np
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

import embertide
from embertide.errors import AccessDenied, ObjectMissing
from embertide.io.storage.opening import open_storage
from embertide.spec.manifest import StorageSettings
from tests.support.s3.server import S3Server
from tests.support.versions import CURRENT, NEXT, OLD, publish_one, values_of, write_parts

pytestmark = pytest.mark.s3


@pytest.fixture
def output(s3: S3Server) -> str:
    """An output with two complete versions and one that is not."""
    uri = s3.uri(f"api-{secrets.token_hex(4)}/out")
    storage = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))
    publish_one(storage, uri, OLD)
    publish_one(storage, uri, CURRENT, format="npy")
    write_parts(storage, uri, NEXT)
    return uri


def test_read_and_list(s3: S3Server, output: str) -> None:
    for uri in (output, f"{output}/"):
        ids, vectors = embertide.read(uri, endpoint_url=s3.endpoint, region=s3.region).to_numpy()
        assert ids.tolist() == list(range(7))
        assert np.array_equal(vectors, values_of(CURRENT))
    older = embertide.read(output, OLD, endpoint_url=s3.endpoint, region=s3.region)
    assert np.array_equal(older.to_numpy()[1], values_of(OLD))
    found = embertide.list_versions(output, endpoint_url=s3.endpoint, region=s3.region)
    assert [(info.version, info.current) for info in found] == [(OLD, False), (CURRENT, True)]


def test_refusals(s3: S3Server, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ObjectMissing, match=f"no complete version {NEXT}; it has {OLD}, {CURRENT}"):
        embertide.read(output, NEXT, endpoint_url=s3.endpoint, region=s3.region)
    with pytest.raises(ObjectMissing, match=r"nothing was published to .*/none yet"):
        embertide.read(f"{output}/none", endpoint_url=s3.endpoint, region=s3.region)
    assert embertide.list_versions(f"{output}/none", endpoint_url=s3.endpoint) == []
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "WRONG")
    with pytest.raises(AccessDenied, match="the secret key is wrong"):
        embertide.read(output, endpoint_url=s3.endpoint, region=s3.region)


def test_a_folder_as_pyarrow_reads_it(s3: S3Server, output: str) -> None:
    filesystem = fs.S3FileSystem(
        endpoint_override=s3.endpoint, region=s3.region,
        access_key=s3.access_key, secret_key=s3.secret_key,
    )  # fmt: skip
    folder = f"{output}/versions/{OLD}".removeprefix("s3://")
    table = pq.read_table(folder, filesystem=filesystem)
    assert table["id"].to_pylist() == list(range(7))
    assert np.array_equal(table["embedding"].to_pylist(), values_of(OLD))
