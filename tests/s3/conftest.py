"""What several of the tests over S3 start with."""

from __future__ import annotations

import secrets

import pytest

from embertide.spec.workers import StorageSettings
from embertide.storage.opening import open_storage
from embertide.storage.protocol import Storage
from tests.support.s3.server import S3Server


@pytest.fixture
def storage(s3: S3Server) -> Storage:
    """A client of the server."""
    return open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))


@pytest.fixture
def root(s3: S3Server) -> str:
    """A prefix that nobody else has."""
    return s3.uri(f"t-{secrets.token_hex(6)}")
