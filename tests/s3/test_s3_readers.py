"""Reads while versions are published, held, released, rolled back and removed: none is mixed."""

from __future__ import annotations

import multiprocessing
import secrets
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from embertide.errors import ObjectMissing, OutputError
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.io.versions.lookup import read_rows_of
from embertide.io.versions.pointer import Pointer, pointer_uri, read_pointer, utc_now
from embertide.io.versions.publish import publish, rollback
from embertide.io.versions.reading import read_version
from embertide.io.versions.releasing import release, remove_held
from embertide.spec.version_names import new_version, version_uri
from embertide.spec.workers import StorageSettings
from tests.support.s3.server import S3Server
from tests.support.versions import ROWS, manifest_of, names, publish_one, values_of, write_parts

pytestmark = pytest.mark.s3

PROCESSES, THREADS = 2, 2
READS, THOROUGH_READS = 600, 100_000
KEEP = 2
PAUSE_SECONDS = 0.1
"""Between rounds of changes, so that most of the machine is left to readers."""
ALL_IDS = list(range(sum(ROWS)))
SOME_IDS = [6, 0, 3]
"""Of both parts."""


@pytest.mark.timeout(4 * 3600)
def test_no_read_is_mixed(s3: S3Server, pytestconfig: pytest.Config) -> None:
    """In the third tier a hundred thousand reads."""
    reads = THOROUGH_READS if pytestconfig.option.tier == 3 else READS
    storage = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))
    uri = f"s3://{s3.bucket}/readers-{secrets.token_hex(4)}/out"
    publish_one(storage, uri, new_version())
    done, began = Event(), time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(change_until, storage, uri, done)
        try:
            seen = read_in_processes(storage, uri, reads)
        finally:
            done.set()
        changes, refused = writing.result()
    counts = dict(changes)
    print(
        f"{reads} reads in {time.monotonic() - began:.0f} s: none mixed, {len(seen)} versions,"
        f" {seen.pop('removed', 0)} refused since retention had removed them; {counts}"
    )
    assert not refused & seen.keys(), "a version that was never released was read"
    assert len(seen) > 3
    assert min(changes.values()) > 1


def read_in_processes(storage: Storage, uri: str, reads: int) -> Counter[str]:
    """All reads, shared out among processes: one would wait for its interpreter's lock."""
    share = reads // PROCESSES
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, spawn) as pool:
        reading = [pool.submit(read_in_threads, storage, uri, share) for _ in range(PROCESSES)]
        seen = sum((counts.result() for counts in reading), Counter[str]())
    assert seen.total() == reads
    return seen


def read_in_threads(storage: Storage, uri: str, reads: int) -> Counter[str]:
    """The reads of one process."""
    share = reads // THREADS
    with ThreadPoolExecutor(THREADS) as pool:
        reading = [pool.submit(read_many, storage, uri, share) for _ in range(THREADS)]
        return sum((counts.result() for counts in reading), Counter[str]())


def change_until(storage: Storage, uri: str, done: Event) -> tuple[Counter[str], set[str]]:
    """Publish, hold, release, discard and roll back in turns.

    Returns:
        How often each happened, and the versions that were never released.
    """
    changes, refused = Counter[str](), set[str]()
    while not done.wait(PAUSE_SECONDS):
        publish_one(storage, uri, new_version(), keep=KEEP)
        held = new_version()
        publish(storage, uri, held, manifest_of(write_parts(storage, uri, held)), KEEP, ["why"])
        if changes["held"] % 2:
            release(storage, uri, held)
            changes["released"] += 1
        else:
            refused.add(held)
            remove_held(storage, uri, held)
            changes["discarded"] += 1
        there = names(storage, uri)
        rollback(storage, uri, there[-2])
        changes.update(["published", "held", "rolled back"])
        current_once = 1 + changes["published"] + changes["released"]
        changes["removed by retention"] = current_once - len(there)
    return changes, refused


def read_many(storage: Storage, uri: str, reads: int) -> Counter[str]:
    """Read the current version so often, whole or some ids; version -> how often it was read."""
    seen = Counter[str]()
    for number in range(reads):
        ids = SOME_IDS if number % 2 else ALL_IDS
        try:
            seen[read_once(storage, uri, ids)] += 1
        except (ObjectMissing, OutputError) as error:
            check_that_it_moved(storage, uri, ids, error)
            seen["removed"] += 1
    return seen


def read_once(storage: Storage, uri: str, ids: list[int]) -> str:
    """The version that was read; its rows are the ones that were written."""
    whole = ids == ALL_IDS
    embeddings = read_version(storage, uri) if whole else read_rows_of(storage, uri, ids)
    numbers, values = embeddings.to_numpy()
    version = embeddings.info.version
    assert numbers.tolist() == ids, version
    assert np.array_equal(values, values_of(version)[ids]), f"a mixed read of {version}"
    return version


def check_that_it_moved(storage: Storage, uri: str, ids: list[int], error: Exception) -> None:
    """An error is right where retention took the version between LATEST and its parts alone.

    Then LATEST names another one, which is there.
    """
    before = read_pointer(storage, uri)
    try:
        read_once(storage, uri, ids)
    except (ObjectMissing, OutputError):
        assert read_pointer(storage, uri) != before, f"LATEST is not whole: {error}"


@pytest.mark.parametrize("ids", [ALL_IDS, SOME_IDS])
def test_a_pointer_that_comes_before_its_version_is_noticed(
    storage: Storage, root: str, ids: list[int]
) -> None:
    publish_one(storage, root, new_version())
    early = Pointer(new_version(), "0" * 64, "publish", utc_now())
    storage.write(pointer_uri(root), early.to_json())
    with pytest.raises(ObjectMissing) as missing:
        read_once(storage, root, ids)
    with pytest.raises(AssertionError, match=r"LATEST is not whole: .* has no complete version"):
        check_that_it_moved(storage, root, ids, missing.value)
    with pytest.raises(AssertionError, match="LATEST is not whole"):
        read_many(storage, root, 2)


def test_a_part_of_another_version_is_noticed(storage: Storage, root: str) -> None:
    older, current = new_version(), new_version()
    for version in (older, current):
        publish_one(storage, root, version)
    part = "part-00001.parquet"
    other = storage.read(f"{version_uri(root, older)}/{part}")
    storage.write(f"{version_uri(root, current)}/{part}", other)
    with pytest.raises(AssertionError, match=f"a mixed read of {current}"):
        read_many(storage, root, 1)
