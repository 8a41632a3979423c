"""Several parts in a store: each is read back while the next ones are written."""

from __future__ import annotations

import secrets

import pytest

from embertide.spec.workers import StorageSettings
from tests.support.ranks import on_grid
from tests.support.s3.server import S3Server
from tests.support.tasks import read_back_beside, write_damaged

pytestmark = [pytest.mark.s3, pytest.mark.distributed]


@pytest.fixture
def version(s3: S3Server) -> str:
    return s3.uri(f"parts-{secrets.token_hex(6)}/version")


def test_a_part_is_read_back_while_the_next_one_is_written(
    s3: S3Server, settings: StorageSettings, version: str
) -> None:
    assert on_grid(1, 1, read_back_beside, version, settings, s3.environment) == [True]


def test_a_part_that_the_store_did_not_keep_is_named(
    s3: S3Server, settings: StorageSettings, version: str
) -> None:
    (said,) = on_grid(1, 1, write_damaged, version, settings, s3.environment)
    assert said.startswith(f"{version}/part-00000-00001.parquet has 14 bytes")
    assert "nothing was published" in said
