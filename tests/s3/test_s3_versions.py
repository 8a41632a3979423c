"""Versions in S3: the same promises as on files, kept by a real server's conditional puts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from embertide.io.storage.protocol import Storage
from embertide.io.versions.formats import FORMATS
from embertide.io.versions.parts import PartWriter
from embertide.io.versions.reading import read_part
from embertide.spec.manifest import StorageSettings
from tests.support.versions import check_crashes, check_races

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("format", FORMATS)
def test_parts_of_several_uploads(storage: Storage, root: str, format: Any) -> None:
    rows, width = 100_000, 64
    values = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)
    ids = pa.array([f"n{i}" for i in range(rows)], pa.large_string())
    shape = {"dtype": "float32", "ids_kind": "string", "width": width, "rows": rows}
    with PartWriter(storage, f"{root}/p", format=format, **shape) as writer:
        for at in range(0, rows, 30_000):
            writer.write(ids[at : at + 30_000], values[at : at + 30_000])
    writer.verify()
    batches = list(read_part(storage, root, writer.digest, width))
    assert np.array_equal(np.concatenate([batch for _, batch in batches]), values)
    assert [i for batch, _ in batches for i in batch.to_pylist()] == ids.to_pylist()


def test_processes_race_for_the_pointer(settings: StorageSettings, root: str) -> None:
    check_races(settings, root, processes=5, rounds=3)


def test_a_process_that_dies_anywhere_leaves_a_whole_version(
    settings: StorageSettings, root: str, pytestconfig: pytest.Config
) -> None:
    # Dying while parts are written, and at each single operation, is tested on files.
    every = 1 if pytestconfig.option.tier == 3 else 6
    check_crashes(settings, root, parts=False, every=every)
