"""In S3 there are no folders, yet objects below subfolders are told apart as in files."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.io.readers.edges import split_edges
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import EdgeInput

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("end", ["", "/"])
def test_objects_in_subfolders(storage: Storage, root: str, end: str) -> None:
    held = io.BytesIO()
    pq.write_table(pa.table({"src": [0], "dst": [1]}), held)
    for name in ("a.parquet", "_tmp/a.parquet", "marker/"):
        storage.write(f"{root}/{name}", b"" if name == "marker/" else held.getvalue())

    def found(**more: Any) -> list[str]:
        given = {"uri": root + end, "format": "parquet", **more}
        return [split.uri for split in split_edges(storage, EdgeInput.model_validate(given))]

    assert found() == [f"{root}/a.parquet"]
    below = f"{root}/dt=2026-11-20/a.parquet"
    storage.write(below, held.getvalue())
    with pytest.raises(InputError, match=f"{below} lies in a subfolder of {root}{end} "):
        found()
    assert found(recursive=True) == [f"{root}/a.parquet", below]


@pytest.mark.parametrize("header", [True, False])
def test_empty_objects_of_folders_are_no_data(storage: Storage, root: str, header: bool) -> None:
    """Consoles and Hadoop write one for each folder."""
    text = b"src,dst\n0,1\n" if header else b"0,1\n"
    below = f"{root}/dt=1/a.csv"
    storage.write(below, text)
    for marker in ("_$folder$", "/dt=1_$folder$", "/dt=1/_SUCCESS", "/dt=1/"):
        storage.write(f"{root}{marker}", b"")
    given = {"uri": root, "format": "csv", "header": header, "recursive": True}
    splits = split_edges(storage, EdgeInput.model_validate(given))
    assert [split.uri for split in splits] == [below]
