"""What S3 says becomes the same error with its reason, whichever request ran into it."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embertide.errors import AccessDenied, ObjectMissing
from embertide.io.storage.opening import open_storage
from embertide.io.storage.s3 import S3Store
from embertide.io.storage.s3_streams import RangedFile
from embertide.spec.manifest import StorageSettings
from tests.support.s3.server import S3Server
from tests.support.storage_contract import LARGE, MIB

pytestmark = pytest.mark.s3


def stream(store: S3Store, uri: str) -> None:
    with store.create(uri) as file:
        file.write(LARGE)


CALLS: dict[str, Callable[[S3Store, str], Any]] = {
    "list": lambda store, uri: store.list(uri),
    "list_folders": lambda store, uri: store.list_folders(uri),
    "stat": lambda store, uri: store.stat(uri),
    "read": lambda store, uri: store.read(uri),
    "read_range": lambda store, uri: store.read_range(uri, 0, 1),
    "open": lambda store, uri: store.open(uri),
    "write": lambda store, uri: store.write(uri, b"1"),
    "create": stream,
    "write_if": lambda store, uri: store.write_if(uri, b"1", None),
    "delete": lambda store, uri: store.delete([uri]),
}
EVERY_CALL = pytest.mark.parametrize("name", CALLS)


@pytest.fixture
def settings(s3: S3Server) -> StorageSettings:
    return StorageSettings(endpoint_url=s3.endpoint, region=s3.region, max_attempts=2)


@pytest.fixture
def uri(s3: S3Server) -> str:
    return s3.uri(f"answers-{secrets.token_hex(4)}/x")


@EVERY_CALL
@pytest.mark.parametrize(
    ("variable", "reason"),
    [
        ("AWS_ACCESS_KEY_ID", "the access key id is unknown"),
        ("AWS_SECRET_ACCESS_KEY", "the secret key is wrong"),
    ],
)
def test_wrong_credentials_say_which(
    settings: StorageSettings,
    uri: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    variable: str,
    reason: str,
) -> None:
    monkeypatch.setenv(variable, "not-the-secret")
    with pytest.raises(AccessDenied, match=f"^{uri}: {reason}.*set AWS_ACCESS_KEY_ID") as caught:
        CALLS[name](S3Store(settings), uri)
    assert "not-the-secret" not in str(caught.value)


@EVERY_CALL
def test_a_missing_bucket_is_never_taken_for_a_missing_object(
    settings: StorageSettings, name: str
) -> None:
    with pytest.raises(ObjectMissing, match=r"^s3://never-made/a: no bucket 'never-made'"):
        CALLS[name](S3Store(settings), "s3://never-made/a")


def test_only_an_s3_uri_loads_the_client(tmp_path: Path) -> None:
    code = (
        "import sys; from embertide.io.storage.opening import open_storage;"
        " open_storage(None).write(sys.argv[1], b'1'); assert 'botocore' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, f"file://{tmp_path}/x"], check=True)
    assert open_storage(None).read(f"file://{tmp_path}/x") == b"1"


def test_reading_ahead_is_bounded_and_not_for_one_look(settings: StorageSettings, uri: str) -> None:
    store = S3Store(settings)
    info = store.write(uri, LARGE)
    with store.open(uri, info) as file:
        assert isinstance(file, RangedFile)
        file.seek(20 * MIB)
        file.read(10)
        assert store.stats.bytes_read == 4 * MIB
        file.seek(0)
        while file.read(MIB):
            assert len(file._blocks) <= 6
    assert store.stats.bytes_read <= len(LARGE) + 4 * MIB
