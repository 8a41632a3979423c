"""Layers that are kept in an object store: gone on with, damaged, missing, removed."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from embertide.spec.workers import StorageSettings
from tests.support.random_kills import GRIDS, RandomKills
from tests.support.resumed import LAYERS, Job
from tests.support.s3.server import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.distributed]


def place_in(s3: S3Server) -> tuple[str, StorageSettings]:
    """An unused output in the store, and the settings of the store."""
    settings = StorageSettings(endpoint_url=s3.endpoint, region=s3.region)
    return s3.uri(f"t-{secrets.token_hex(6)}/embeddings"), settings


def test_a_killed_run_is_gone_on_with_from_a_store(s3: S3Server, tmp_path: Path) -> None:
    """Whole, with a block that is damaged, and with one that is gone."""
    job = Job(tmp_path, ("2x1",), *place_in(s3))
    assert "was killed by SIGKILL" in job.killed_after(2).message
    assert job.kept() == [1, 2]
    report = job.again("2x1")
    assert (report["kept"]["resumed"], report["kept"]["layers"]) == (2, LAYERS)
    assert job.rows() == job.bits["2x1"]
    assert job.storage.list_folders(f"{job.uri}/_layers") == []

    job.killed_after(2)
    damaged = job.block_of(2)
    data = bytearray(job.storage.read(damaged))
    data[0] ^= 1
    job.storage.write(damaged, bytes(data))
    job.storage.delete([job.block_of(1)])
    report = job.again("2x1")
    assert (report["kept"]["resumed"], report["kept"]["kept"]) == (0, [1, 2])
    assert job.rows() == job.bits["2x1"]
    first, second = (text for text in report["warnings"] if "kept layer" in text)
    assert Path(damaged).name in first
    assert "does not exist" in second or "no such" in second.lower()
    assert job.kept() == []


@pytest.mark.tier(3)
def test_random_kills_lose_nothing(
    s3: S3Server, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A worker or the whole command, at any moment, on any grid; then a run to the end."""
    job = Job(tmp_path, GRIDS, *place_in(s3), scale=10)
    kills = RandomKills.of(job, pytestconfig)
    kills.kill(100)
