"""Versions in S3: the same promises as on files, kept by a real server's conditional puts."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from embertide.errors import ObjectMissing, OutputError
from embertide.spec.manifest import StorageSettings
from embertide.spec.version_names import version_uri
from embertide.storage.opening import open_storage
from embertide.storage.protocol import Storage
from embertide.versions.catalog import latest, list_versions
from embertide.versions.formats import FORMATS
from embertide.versions.parts import PartWriter
from embertide.versions.publish import discard, publish, rollback
from embertide.versions.reading import read_part
from tests.support.s3.server import S3Server
from tests.support.versions import (
    CURRENT,
    LATER,
    NEXT,
    OLD,
    Hooked,
    check_crashes,
    check_races,
    is_intact,
    manifest_of,
    publish_one,
    write_parts,
)

pytestmark = pytest.mark.s3
WIDTH = 64


@pytest.fixture
def settings(s3: S3Server) -> StorageSettings:
    return StorageSettings(endpoint_url=s3.endpoint, region=s3.region)


@pytest.fixture
def storage(settings: StorageSettings) -> Storage:
    return open_storage(settings)


@pytest.fixture
def output(s3: S3Server) -> str:
    return f"s3://{s3.bucket}/versions-{secrets.token_hex(4)}/out"


def part_writer(storage: Storage, output: str, format: Any, kind: Any, rows: int) -> PartWriter:
    return PartWriter(
        storage, f"{output}/p",
        format=format, dtype="float32", ids_kind=kind, width=WIDTH, rows=rows,
    )  # fmt: skip


def names(storage: Storage, output: str) -> list[str]:
    return [info.version for info in list_versions(storage, output)]


def test_publish_keep_and_roll_back(storage: Storage, output: str) -> None:
    with pytest.raises(ObjectMissing, match="nothing was published to"):
        latest(storage, output)
    for version in (OLD, CURRENT, NEXT):
        assert publish_one(storage, output, version, keep=2).current
    assert names(storage, output) == [CURRENT, NEXT]
    assert is_intact(storage, output, NEXT)
    rollback(storage, output, CURRENT)
    assert latest(storage, output).version == CURRENT
    with pytest.raises(ObjectMissing, match=f"no complete version {OLD}; it has {CURRENT}, {NEXT}"):
        rollback(storage, output, OLD)
    write_parts(storage, output, LATER)
    discard(storage, output, LATER)
    with pytest.raises(ObjectMissing):
        storage.list(version_uri(output, LATER))


@pytest.mark.parametrize("format", FORMATS)
def test_parts_of_several_uploads(storage: Storage, output: str, format: Any) -> None:
    rows = 100_000
    values = np.random.default_rng(0).normal(size=(rows, WIDTH)).astype(np.float32)
    ids = pa.array([f"n{i}" for i in range(rows)], pa.large_string())
    with part_writer(storage, output, format, "string", rows) as writer:
        for at in range(0, rows, 30_000):
            writer.write(ids[at : at + 30_000], values[at : at + 30_000])
    writer.verify()
    batches = list(read_part(storage, output, writer.digest, WIDTH))
    assert np.array_equal(np.concatenate([batch for _, batch in batches]), values)
    assert [i for batch, _ in batches for i in batch.to_pylist()] == ids.to_pylist()


def test_an_exception_leaves_no_part(storage: Storage, output: str) -> None:
    values = np.zeros((100_000, WIDTH), np.float32)
    writer = part_writer(storage, output, "npy", "int64", 200_000)

    def interrupted() -> None:
        with writer:
            writer.write(np.arange(100_000), values)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ObjectMissing):
        storage.list(output)


def test_damage_is_found(storage: Storage, output: str) -> None:
    writer = part_writer(storage, output, "npy", "int64", 9)
    with writer:
        writer.write(np.arange(9), np.ones((9, WIDTH), np.float32))
    data = bytearray(storage.read(f"{output}/p.npy"))
    data[200] ^= 1
    storage.write(f"{output}/p.npy", bytes(data))
    with pytest.raises(OutputError, match=r"p.npy has the XXH3 checksum"):
        writer.verify()


def test_a_damaged_part_is_not_published(storage: Storage, output: str) -> None:
    digests = write_parts(storage, output, OLD)
    uri = f"{version_uri(output, OLD)}/part-00000.parquet"
    storage.write(uri, storage.read(uri)[:-1])
    with pytest.raises(OutputError, match=r"part-00000.parquet has \d+ bytes"):
        publish(storage, output, OLD, manifest_of(digests), keep=1)
    storage.delete([uri])
    with pytest.raises(OutputError, match=r"part-00000.parquet is missing"):
        publish(storage, output, OLD, manifest_of(digests), keep=1)
    assert names(storage, output) == []


def test_a_rollback_just_before_the_pointer_moves_is_kept(storage: Storage, output: str) -> None:
    publish_one(storage, output, OLD)
    publish_one(storage, output, CURRENT)
    acts = [lambda: rollback(storage, output, OLD)]

    def before(name: str, uri: str) -> None:
        if name == "write_if" and uri.endswith("LATEST") and acts:
            acts.pop()()

    hooked: Any = Hooked(storage, before)
    assert not publish_one(hooked, output, NEXT).current
    assert latest(storage, output).version == OLD


def test_processes_race_for_the_pointer(settings: StorageSettings, output: str) -> None:
    check_races(settings, output, processes=5, rounds=3)


def test_a_process_that_dies_anywhere_leaves_a_whole_version(
    settings: StorageSettings, output: str
) -> None:
    # Dying while parts are written, and at each single operation, is tested on files.
    check_crashes(settings, output, parts=False, every=2)
