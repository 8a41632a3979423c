"""Objects in S3: the promises of every store, outages, and refusals that say what to do."""

from __future__ import annotations

import logging
import secrets
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest

from embertide.errors import AccessDenied, ObjectMissing, StorageError, StoreUnavailable
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.spec import naming
from embertide.spec.manifest import StorageSettings
from tests.support.patience import WAIT_SECONDS
from tests.support.s3.server import S3Server
from tests.support.storage_contract import LARGE, MIB, StorageContract, keys

pytestmark = pytest.mark.s3


def opened(s3: S3Server, attempts: int = 3, **changes: Any) -> Storage:
    fields: dict[str, Any] = {
        "endpoint_url": s3.endpoint,
        "region": s3.region,
        "max_attempts": attempts,
        "connect_timeout_seconds": 1.0,
    }
    return open_storage(StorageSettings(**fields | changes))


@pytest.fixture
def storage(s3: S3Server) -> Storage:
    return opened(s3)


@pytest.fixture
def root(s3: S3Server) -> str:
    return s3.uri(f"t-{secrets.token_hex(6)}")


class TestS3(StorageContract):
    """A real server."""


# Each way into the store, for what must hold for all of them.
CALLS = {
    "list": lambda storage, uri: storage.list(uri),
    "read": lambda storage, uri: storage.read(uri),
    "range": lambda storage, uri: storage.read_range(uri, 0, 9),
    "open": lambda storage, uri: storage.open(uri),
    "write": lambda storage, uri: storage.write(uri, b"1"),
    "large write": lambda storage, uri: storage.write(uri, LARGE),
    "write_if": lambda storage, uri: storage.write_if(uri, b"1", None),
    "delete": lambda storage, uri: storage.delete([uri]),
    "stat": lambda storage, uri: storage.stat(uri),
}
EVERY_CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


# ---- refusals


@EVERY_CALL
def test_no_credentials(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, call: Any
) -> None:
    for name in s3.environment:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(AccessDenied, match=r"no usable credentials.*set AWS_ACCESS_KEY_ID"):
        call(opened(s3), s3.uri("x"))


def test_an_unknown_profile(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody-has-this")
    with pytest.raises(AccessDenied, match=r"nobody-has-this.*AWS_PROFILE"):
        opened(s3).read(s3.uri("x"))


@pytest.mark.parametrize(
    ("secret", "advice"),
    [
        (
            "shop-s3",
            "the Secret 'shop-s3' of the job's namespace (spec.storage.credentialsSecret)",
        ),
        (None, "name a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in spec.storage."),
    ],
)
def test_in_a_pod_the_secret_is_named(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, secret: str | None, advice: str
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    monkeypatch.setenv(naming.ENV_IN_POD, "1")
    with pytest.raises(AccessDenied) as caught:
        opened(s3, credentials_secret=secret).read(s3.uri("x"))
    assert advice in str(caught.value)
    assert "AWS_PROFILE" not in str(caught.value)


@pytest.mark.parametrize("name", ["write", "write_if", "delete"])
def test_a_bucket_alone_is_no_object(s3: S3Server, storage: Storage, name: str) -> None:
    with pytest.raises(StorageError, match=f"s3://{s3.bucket}.*names a bucket only"):
        CALLS[name](storage, f"s3://{s3.bucket}")


# ---- outages


@EVERY_CALL
def test_a_server_that_is_down(s3: S3Server, call: Any) -> None:
    storage = opened(s3, attempts=2)
    s3.stop()
    with pytest.raises(StoreUnavailable) as caught:
        call(storage, s3.uri("x"))
    message = str(caught.value)
    assert message.startswith(s3.uri("x"))
    assert s3.endpoint in message
    assert "run the job again" in message
    assert not caught.value.permanent


@pytest.mark.parametrize("name", ["read", "write", "large write", "write_if", "delete", "list"])
def test_a_server_that_comes_back_in_time(s3: S3Server, root: str, name: str) -> None:
    storage = opened(s3, attempts=12)
    uri = f"{root}/x"
    if name in ("read", "list"):
        storage.write(uri, b"1")
    s3.stop()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(CALLS[name], storage, uri)
        # Down for as long as it takes to be noticed.
        deadline = time.monotonic() + 30
        while storage.stats.retries < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        s3.start()
        result = answer.result(timeout=WAIT_SECONDS)
    assert storage.stats.retries >= 1
    if name == "read":
        assert result == b"1"
    if name == "write_if":
        assert result is True
    assert (storage.stat(uri) is None) == (name == "delete")


def test_an_outage_while_a_file_is_read(s3: S3Server, root: str) -> None:
    storage = opened(s3, attempts=12)
    storage.write(f"{root}/x", LARGE)
    with storage.open(f"{root}/x") as file:
        got = file.read(3 * MIB)
        s3.stop()
        back = threading.Timer(0.5, s3.start)
        back.start()
        got += file.read()
        back.join()
    assert got == LARGE


def test_an_outage_while_a_stream_is_written(s3: S3Server, root: str) -> None:
    def write() -> None:
        with opened(s3, attempts=2).create(f"{root}/x") as stream:
            stream.write(LARGE[: 10 * MIB])
            s3.stop()
            stream.write(LARGE)

    with pytest.raises(StoreUnavailable, match=f"{root}/x"):
        write()
    s3.start()
    assert opened(s3).stat(f"{root}/x") is None


# ---- what only S3 can get wrong


def uploads(s3: S3Server) -> list[str]:
    client = boto3.client("s3", endpoint_url=s3.endpoint)
    listed = client.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", [])
    return [upload["Key"] for upload in listed]


def test_a_failed_stream_leaves_no_upload(s3: S3Server, storage: Storage, root: str) -> None:
    key = f"{root}/x".removeprefix(s3.uri(""))

    def write() -> None:
        with storage.create(f"{root}/x") as stream:
            stream.write(LARGE)
            assert key in uploads(s3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert key not in uploads(s3)


def test_more_objects_than_one_answer_holds(storage: Storage, root: str) -> None:
    names = [f"{i:04}" for i in range(1003)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: storage.write(f"{root}/{name}", b""), names))
    assert keys(storage, root, root) == names
    storage.delete(f"{root}/{name}" for name in names)
    with pytest.raises(ObjectMissing):
        storage.list(root)


def test_memory_is_bounded(storage: Storage, root: str) -> None:
    total, block = 160 * MIB, bytes(MIB)
    tracemalloc.start()
    try:
        with storage.create(f"{root}/x") as stream:
            for _ in range(total // MIB):
                stream.write(block)
        written = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        with storage.open(f"{root}/x") as file:
            count = 0
            while chunk := file.read(MIB):
                count += len(chunk)
        read = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == total
    assert max(written, read) < 64 * MIB


def test_what_is_transferred_is_counted(storage: Storage, root: str) -> None:
    storage.write(f"{root}/x", LARGE)
    assert storage.stats.bytes_written == len(LARGE)
    assert storage.stats.bytes_read == 0
    storage.read(f"{root}/x")
    storage.read_range(f"{root}/x", 5, 100)
    assert storage.stats.bytes_read == len(LARGE) + 100
    assert storage.stats.requests >= 10
    assert storage.stats.retries == 0
    parts = storage.stats.operations["UploadPart"]
    assert (parts.requests >= 2, parts.retries, parts.errors) == (True, 0, 0)


def test_only_faults_are_counted_as_errors(storage: Storage, root: str) -> None:
    """That an object is missing is an answer; that the bucket is, is a fault."""
    assert storage.stat(f"{root}/none") is None
    assert not storage.write_if(f"{root}/none", b"1", "0" * 32)
    assert storage.stats.errors == 0
    with pytest.raises(ObjectMissing):
        storage.read("s3://no-such-bucket-of-ours/x")
    assert storage.stats.operations["GetObject"].errors == 1
    assert storage.stats.errors == 1


def test_secrets_are_never_shown(
    s3: S3Server, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    storage = opened(s3)
    storage.write(s3.uri("x"), b"1")
    shown = repr(storage) + repr(storage.__reduce__()) + caplog.text + "".join(capfd.readouterr())
    assert s3.secret_key not in shown
