"""In S3 there are no folders, yet objects below subfolders are told apart as in files."""

from __future__ import annotations

import io
import secrets
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.readers.edges import split_edges
from embertide.spec.manifest import EdgeInput, StorageSettings
from embertide.storage.opening import open_storage
from tests.support.s3.server import BUCKET, S3Server

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("end", ["", "/"])
def test_objects_in_subfolders(s3: S3Server, end: str) -> None:
    storage = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))
    folder = f"s3://{BUCKET}/{secrets.token_hex(4)}"
    held = io.BytesIO()
    pq.write_table(pa.table({"src": [0], "dst": [1]}), held)
    for name in ("a.parquet", "_tmp/a.parquet", "marker/"):
        storage.write(f"{folder}/{name}", b"" if name == "marker/" else held.getvalue())

    def found(**more: Any) -> list[str]:
        given = {"uri": folder + end, "format": "parquet", **more}
        return [split.uri for split in split_edges(storage, EdgeInput.model_validate(given))]

    assert found() == [f"{folder}/a.parquet"]
    below = f"{folder}/dt=2026-11-20/a.parquet"
    storage.write(below, held.getvalue())
    with pytest.raises(InputError, match=f"{below} lies in a subfolder of {folder}{end} "):
        found()
    assert found(recursive=True) == [f"{folder}/a.parquet", below]


@pytest.mark.parametrize("header", [True, False])
def test_empty_objects_of_folders_are_no_data(s3: S3Server, header: bool) -> None:
    """Consoles and Hadoop write one for each folder."""
    storage = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))
    folder = f"s3://{BUCKET}/{secrets.token_hex(4)}"
    text = b"src,dst\n0,1\n" if header else b"0,1\n"
    below = f"{folder}/dt=1/a.csv"
    storage.write(below, text)
    for marker in ("_$folder$", "/dt=1_$folder$", "/dt=1/_SUCCESS", "/dt=1/"):
        storage.write(f"{folder}{marker}", b"")
    given = {"uri": folder, "format": "csv", "header": header, "recursive": True}
    splits = split_edges(storage, EdgeInput.model_validate(given))
    assert [split.uri for split in splits] == [below]
