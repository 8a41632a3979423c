"""Comparing versions, holding them and reading some ids, over a real S3 server."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from embertide.compare.diff import compare_versions
from embertide.spec.version_names import new_version
from embertide.storage.opening import open_storage
from embertide.storage.protocol import Storage
from embertide.versions.catalog import latest, list_versions
from embertide.versions.lookup import read_rows_of
from embertide.versions.publish import rollback
from embertide.versions.reading import read_version
from embertide.versions.releasing import release, remove_held
from tests.support.compared import Rows, publish_rows, random_rows
from tests.support.versions import CURRENT, OLD

pytestmark = pytest.mark.s3

WHY = ("beyond a bound",)
ROWS, WIDTH, PARTS = 20_000, 32, 20
CUTS = tuple(at / PARTS for at in range(1, PARTS))
READERS, CYCLES = 3, 8


def test_versions_compare_as_on_a_disk(storage: Storage, root: str, tmp_path: Path) -> None:
    old = random_rows(600, WIDTH, 1)
    new = {name: row + np.float32(name % 3 == 0) for name, row in list(old.items())[50:]}
    found = []
    for place, store in ((root, storage), (f"file://{tmp_path}", open_storage())):
        publish_rows(store, f"{place}/out", OLD, old, batch=64)
        publish_rows(store, f"{place}/out", CURRENT, new, cuts=(0.1, 0.6), batch=64)
        found.append(compare_versions(store, f"{place}/out", OLD, CURRENT))
    assert replace(found[0], seconds=0) == replace(found[1], seconds=0)


def test_a_few_ids_take_a_few_parts(storage: Storage, root: str) -> None:
    rows = random_rows(ROWS, WIDTH, 2)
    publish_rows(storage, f"{root}/out", OLD, rows, cuts=CUTS, batch=500)
    wanted = list(rows)[:3]
    before = storage.stats.copy()
    found = read_rows_of(storage, f"{root}/out", wanted)
    read = storage.stats.bytes_read - before.bytes_read
    np.testing.assert_array_equal(found.to_numpy()[1], np.stack([rows[name] for name in wanted]))
    # At most three of twenty parts, and the manifest.
    assert read < 0.25 * 4 * ROWS * WIDTH


def test_a_held_version_is_released_and_another_one_discarded(storage: Storage, root: str) -> None:
    output, rows = f"{root}/out", random_rows(20, WIDTH, 3)
    now = datetime.now(UTC)
    first, second, third = (new_version(now - timedelta(minutes=10 - at)) for at in range(3))
    publish_rows(storage, output, first, rows)
    publish_rows(storage, output, second, rows, held=WHY)
    publish_rows(storage, output, third, rows, held=WHY)
    assert latest(storage, output).version == first
    release(storage, output, second)
    remove_held(storage, output, third)
    assert latest(storage, output).version == second
    assert [(info.version, info.held) for info in list_versions(storage, output)] == [
        (first, ()),
        (second, ()),
    ]


def test_no_reader_sees_a_held_version_or_a_mix(storage: Storage, root: str) -> None:
    """Readers read all the while versions are published, held, released and rolled back."""
    output, names = f"{root}/out", range(40)
    values: dict[str, float] = {}
    held_now: set[str] = set()
    wrong: list[str] = []
    done = threading.Event()

    def rows(value: float) -> Rows:
        return {name: np.full(WIDTH, value, np.float32) for name in names}

    def publish(held: tuple[str, ...] = ()) -> str:
        version = new_version()
        values[version] = float(len(values) + 1)
        if held:
            held_now.add(version)
        publish_rows(storage, output, version, rows(values[version]), keep=50, held=held)
        return version

    def read() -> None:
        while not done.is_set():
            found = read_version(storage, output)
            _, vectors = found.to_numpy()
            version = found.info.version
            if version in held_now or not (vectors == values[version]).all():
                wrong.append(version)
            reads.append(version)

    publish()
    reads: list[str] = []
    readers = [threading.Thread(target=read) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for _ in range(CYCLES):
        good = publish()
        bad = publish(held=WHY)
        held_now.discard(bad)  # from its release on it may be read
        release(storage, output, bad)
        rollback(storage, output, good)
        publish()
        publish(held=WHY)
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert len(set(reads)) > CYCLES
