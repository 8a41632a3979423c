"""Reads while versions are published, held, released, rolled back and removed: none is mixed."""

from __future__ import annotations

import secrets
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from embertide.errors import ObjectMissing, OutputError
from embertide.spec.version_names import new_version
from embertide.spec.workers import StorageSettings
from embertide.storage.opening import open_storage
from embertide.storage.protocol import Storage
from embertide.versions.lookup import read_rows_of
from embertide.versions.publish import publish, rollback
from embertide.versions.reading import read_version
from embertide.versions.releasing import release, remove_held
from tests.support.s3.server import S3Server
from tests.support.versions import manifest_of, names, publish_one, values_of, write_parts

pytestmark = pytest.mark.s3

READERS = 3
READS, THOROUGH_READS = 600, 100_000
KEEP = 2
IDS = [6, 0, 3]


def test_no_read_is_mixed(s3: S3Server, pytestconfig: pytest.Config) -> None:
    """With --thorough a hundred thousand reads."""
    reads = THOROUGH_READS if pytestconfig.getoption("--thorough") else READS
    storage = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))
    uri = f"s3://{s3.bucket}/readers-{secrets.token_hex(4)}/out"
    publish_one(storage, uri, new_version())
    done = Event()
    with ThreadPoolExecutor(READERS + 1) as pool:
        writing = pool.submit(change_until, storage, uri, done)
        reading = [pool.submit(read_many, storage, uri, reads // READERS) for _ in range(READERS)]
        try:
            found = sum((one.result() for one in reading), Counter[str]())
        finally:
            done.set()
        changes, refused = writing.result()
    print(f"{reads} reads of {len(found)} versions, {found['removed']} removed; {changes}")
    assert sum(found.values()) == reads // READERS * READERS
    assert not refused & found.keys(), "a version that was never released was read"
    assert len(found) > 3
    assert min(changes.values()) > 1


def change_until(storage: Storage, uri: str, done: Event) -> tuple[Counter[str], set[str]]:
    """Publish, hold, release, remove and roll back in turns; versions that were never released."""
    changes, refused = Counter[str](), set[str]()
    while not done.is_set():
        publish_one(storage, uri, new_version(), keep=KEEP)
        held = new_version()
        publish(storage, uri, held, manifest_of(write_parts(storage, uri, held)), KEEP, ["why"])
        if changes["held"] % 2:
            release(storage, uri, held)
            changes["released"] += 1
        else:
            refused.add(held)
            remove_held(storage, uri, held)
            changes["removed"] += 1
        before = names(storage, uri)[-2]
        rollback(storage, uri, before)
        changes.update(["published", "held", "rolled back"])
    return changes, refused


def read_many(storage: Storage, uri: str, reads: int) -> Counter[str]:
    """Read the current version so often, whole or some ids; version -> how often it was read."""
    found = Counter[str]()
    for number in range(reads):
        try:
            version, values, right = read_once(storage, uri, some=number % 2 == 1)
        except (ObjectMissing, OutputError):
            # Retention took it between the pointer and its parts: an error, and never other rows.
            found["removed"] += 1
            continue
        assert np.array_equal(values, right), version
        found[version] += 1
    return found


def read_once(storage: Storage, uri: str, *, some: bool) -> tuple[str, np.ndarray, np.ndarray]:
    """The version's name, rows as they are read, and as they were written."""
    embeddings = read_rows_of(storage, uri, IDS) if some else read_version(storage, uri)
    ids, values = embeddings.to_numpy()
    version = embeddings.info.version
    return version, values, values_of(version)[np.asarray(ids, np.int64)]
