"""Files for an index on S3, from a version on S3."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from embertide.errors import OutputError
from embertide.indexes.convert import convert
from embertide.indexes.presets import PRESETS
from embertide.storage.protocol import Storage
from tests.support.chained import apply, publish_chained
from tests.support.compared import publish_rows, random_rows
from tests.support.versions import CURRENT, OLD

pytestmark = pytest.mark.s3


def test_a_version_is_converted_within_the_store(storage: Storage, root: str) -> None:
    rows = random_rows(60, 3, 1)
    publish_rows(storage, f"{root}/out", OLD, rows)
    layout = replace(PRESETS["vertex"].layout, file_rows=25)
    done = convert(storage, f"{root}/out", f"{root}/files", "vertex", layout)
    stored = {}
    for file in done.files:
        data = storage.read(f"{root}/files/{file.name}")
        assert len(data) == file.size
        for line in data.decode().splitlines():
            record = json.loads(line)
            stored[int(record["id"])] = np.float32(record["embedding"])
    assert stored.keys() == rows.keys()
    assert all((stored[name] == vector).all() for name, vector in rows.items())
    with pytest.raises(OutputError, match="has objects already"):
        convert(storage, f"{root}/out", f"{root}/files", "vertex", layout)


def test_deltas_are_written_to_the_store_and_read_from_it(storage: Storage, root: str) -> None:
    rows = random_rows(60, 3, 1)
    publish_chained(storage, root, OLD, rows, 0.0)
    names = list(rows)
    newer = {name: rows[name] for name in names[4:]} | {names[0]: rows[names[0]] + 1}
    delta = publish_chained(storage, root, CURRENT, newer, 0.0)
    assert (delta["upsert"]["rows"], delta["delete"]["rows"]) == (1, 3)
    found = apply(storage, root, CURRENT, rows)
    assert found.keys() == newer.keys()
    assert all(found[name].tobytes() == vector.tobytes() for name, vector in newer.items())
