"""LanceDB in S3, accessed as ``spec.storage`` says, with the keys that a pod has as files."""

from __future__ import annotations

from pathlib import Path

import lancedb
import numpy as np
import pytest

from embertide.edge.indexes.push.configured import push_to
from embertide.edge.indexes.push.lance_s3 import s3_options
from embertide.edge.indexes.push.plan import Options
from embertide.errors import AccessDenied, StoreUnavailable
from embertide.io.storage.protocol import Storage
from embertide.spec.storage import Encryption, StorageSettings, Store
from tests.support.compared import Rows, publish_rows, random_rows
from tests.support.ports import free_port
from tests.support.s3.server import S3Server
from tests.support.versions import CURRENT, OLD

pytestmark = pytest.mark.s3


@pytest.fixture
def settings(
    s3: S3Server, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StorageSettings:
    """As a pod has them: an endpoint, and the keys of a mounted Secret alone."""
    storage.stat(s3.uri("nothing"))  # this client has signed, with the variables that go now
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (tmp_path / name).write_text(s3.environment[name])
        monkeypatch.delenv(name)
    monkeypatch.setenv("EMBERTIDE_CREDENTIALS_FOLDER", str(tmp_path))
    return StorageSettings(endpoint_url=s3.endpoint, region=s3.region, credentials_secret="s3")


def in_lance(s3: S3Server, location: str) -> Rows:
    """What readers of ``products`` see, by a client of their own."""
    keys = {name.lower(): value for name, value in s3.environment.items()}
    options = {"aws_endpoint": s3.endpoint, "allow_http": "true", **keys}
    table = lancedb.connect(location, storage_options=options).open_table("products")
    table.checkout("current")
    found = table.to_arrow()
    vectors = (np.array(vector, np.float32) for vector in found["vector"].to_pylist())
    return dict(zip(found["id"].to_pylist(), vectors, strict=True))


def test_versions_are_pushed_with_the_keys_of_a_secret(
    s3: S3Server, storage: Storage, root: str, settings: StorageSettings
) -> None:
    location = f"lancedb+{root}/lance"
    for version in (OLD, CURRENT):
        rows = random_rows(40, 3, len(version) + (version == OLD))
        publish_rows(storage, f"{root}/out", version, rows)
        push_to(location, storage, f"{root}/out", Options(name="products"), settings)
        seen = in_lance(s3, f"{root}/lance")
        assert seen.keys() == rows.keys()
        assert all(np.array_equal(seen[key], vector) for key, vector in rows.items())


def test_a_store_that_refuses_or_is_away_is_an_error(
    s3: S3Server, storage: Storage, root: str, settings: StorageSettings, tmp_path: Path
) -> None:
    publish_rows(storage, f"{root}/out", OLD, random_rows(40, 3, 1))
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("wrong" * 8)
    options = Options(name="products")
    location = f"lancedb+{root}/lance"
    with pytest.raises(AccessDenied, match="cannot be reached: SignatureDoesNotMatch: The request"):
        push_to(location, storage, f"{root}/out", options, settings)
    away = settings.model_copy(update={"endpoint_url": f"http://127.0.0.1:{free_port()}"})
    with pytest.raises(StoreUnavailable, match=r"lance cannot be reached: .*rror"):
        push_to(location, storage, f"{root}/out", options, away)


def test_what_spec_storage_says_reaches_the_client() -> None:
    store = Store(
        region="eu-1",
        path_style=False,
        requester_pays=True,
        encryption=Encryption(algorithm="aws:kms", key_id="alias/x", bucket_key=True),
    )
    assert s3_options(store) == {
        "aws_region": "eu-1",
        "aws_virtual_hosted_style_request": "true",
        "aws_request_payer": "true",
        "aws_server_side_encryption": "aws:kms",
        "aws_sse_kms_key_id": "alias/x",
        "aws_sse_bucket_key_enabled": "true",
    }
    assert s3_options(Store(anonymous=True)) == {"aws_skip_signature": "true"}
