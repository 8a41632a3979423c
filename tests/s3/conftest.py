"""What several of the tests over S3 start with."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.spec.workers import StorageSettings
from tests.support.s3.jobs import SmallS3Job
from tests.support.s3.proxy import S3Proxy, s3_proxy
from tests.support.s3.server import S3Server


@pytest.fixture
def settings(s3: S3Server) -> StorageSettings:
    """Of the server."""
    return StorageSettings(endpoint_url=s3.endpoint, region=s3.region)


@pytest.fixture
def storage(s3: S3Server) -> Storage:
    """A client of the server."""
    return open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))


@pytest.fixture
def root(s3: S3Server) -> str:
    """A prefix that nobody else has."""
    return s3.uri(f"t-{secrets.token_hex(6)}")


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    """A proxy before the server, whose answers a test changes."""
    with s3_proxy(s3.endpoint) as found:
        yield found


@pytest.fixture
def proxied(proxy: S3Proxy, s3: S3Server) -> Storage:
    """A client of the server, by way of the proxy."""
    settings = StorageSettings(endpoint_url=proxy.endpoint, region=s3.region, max_attempts=2)
    return open_storage(settings)


@pytest.fixture
def job(s3: S3Server, proxy: S3Proxy, tmp_path: Path) -> SmallS3Job:
    """A small job whose store is behind the proxy."""
    return SmallS3Job(s3, proxy.endpoint, tmp_path)
