"""Several places in S3: patterns, windows of days, more names than one answer lists, no bucket."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import ObjectMissing
from embertide.io.readers.edges import split_edges
from embertide.io.readers.places import expand
from embertide.io.storage.protocol import NAMES_AT_ONCE, Storage
from embertide.spec.manifest import EdgeInput

pytestmark = pytest.mark.s3


def edges(**given: Any) -> EdgeInput:
    return EdgeInput.model_validate({"format": "parquet", **given})


def write(storage: Storage, *uris: str) -> None:
    held = io.BytesIO()
    pq.write_table(pa.table({"src": [0], "dst": [1]}), held)
    for uri in uris:
        storage.write(uri, held.getvalue())


def test_patterns_and_windows(storage: Storage, root: str) -> None:
    days = [f"{root}/dt=2026-11-{day}" for day in (20, 21, 22)]
    write(storage, *(f"{day}/part.parquet" for day in days), f"{root}/dt=2026-11-23.parquet")
    storage.write(f"{days[0]}/_SUCCESS", b"")

    def found(**given: Any) -> list[str]:
        return [split.uri for split in split_edges(storage, edges(**given))]

    parts = [f"{day}/part.parquet" for day in days]
    assert found(uri=f"{root}/dt=2026-11-*/") == parts
    assert found(uri=f"{root}/dt=*") == [*parts, f"{root}/dt=2026-11-23.parquet"]
    assert found(uri=f"{root}/*2[01]/part*") == parts[:2]
    assert found(uris=[f"{days[2]}/", f"{days[0]}/"]) == [parts[2], parts[0]]
    window = {"last": "2d", "of": "dt=%Y-%m-%d", "until": "2026-11-22"}
    assert found(uri=f"{root}/", window=window) == parts[1:]
    with pytest.raises(ObjectMissing, match=r"1 of 2 days of the window .* have none: 2026-11-23"):
        found(uri=root, window=window | {"until": "2026-11-23"})


def test_more_names_than_one_answer_lists(storage: Storage, root: str) -> None:
    for number in range(NAMES_AT_ONCE + 5):
        storage.write(f"{root}/a{number:04}/x", b"")
    storage.write(f"{root}/b/x", b"")
    assert len(expand(storage, f"{root}/a*/")) == NAMES_AT_ONCE + 5
    assert expand(storage, f"{root}/b*") == [f"{root}/b/"]


def test_no_bucket_is_a_mistake_also_where_objects_are_optional(
    storage: Storage, root: str
) -> None:
    assert split_edges(storage, edges(uri=f"{root}/nothing/", optional=True)) == []
    with pytest.raises(ObjectMissing, match="no bucket 'nowhere-here'"):
        split_edges(storage, edges(uri="s3://nowhere-here/x/", optional=True))
