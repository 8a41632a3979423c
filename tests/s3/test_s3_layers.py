"""Layers that are kept in an object store: gone on with, damaged, missing, removed."""

from __future__ import annotations

import secrets
from pathlib import Path

import numpy as np
import pytest

from embertide.io.storage.protocol import Storage
from embertide.io.versions.layers import reading, seals, writing
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged
from embertide.io.versions.layers.store import LayerStore
from embertide.spec.workers import StorageSettings
from tests.support.kept import spans_of, tensor_like, write_record
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


def test_requests_and_bytes_of_some_rows_are_those_of_their_pages(
    storage: Storage, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request for each run of pages, and no other; each page is checked by itself."""
    page, gap = 1024, 4096
    monkeypatch.setattr(writing, "BLOCK_BYTES", 40_000)
    monkeypatch.setattr(seals, "PAGE_BYTES", page)
    monkeypatch.setattr(reading, "GAP_BYTES", gap)
    g = np.random.default_rng(4)
    values = g.random((1000, 40), np.float32)
    store = LayerStore(storage, root, "a" * 32, "20261126T180000Z-3fa9c1")
    places = [(0, 600, 0, 40), (600, 1000, 0, 24), (600, 1000, 24, 40)]
    kept = Kept(store, write_record(store, "c" * 32, tensor_like(values), values, places).seal)
    for count in (1, 10, 100):
        rows, out = g.choice(1000, count, replace=False), np.empty((count, 40), np.float32)
        spans = [s for b in kept.tensor("h").blocks for s in spans_of(b, rows, page, gap)]
        before, read = storage.stats.of("GetObject").requests, storage.stats.bytes_read
        kept.get("h", rows, out)
        assert np.array_equal(out, values[rows])
        assert storage.stats.of("GetObject").requests - before == len(spans)
        assert storage.stats.bytes_read - read == sum(stop - start for start, stop in spans)
    block = kept.tensor("h").blocks[0]
    uri = f"{store.uri}/{block.path}"
    data = bytearray(storage.read(uri))
    data[5 * page] ^= 1
    storage.write(uri, bytes(data))
    damaged = np.array([5 * page // 160 + 1])
    with pytest.raises(Damaged, match="does not match its checksum"):
        kept.get("h", damaged, np.empty((1, 40), np.float32))
    out = np.empty((2, 40), np.float32)
    kept.get("h", np.array([0, block.last - 1]), out)
    assert np.array_equal(out, values[[0, block.last - 1]])
