"""Delta and Iceberg tables in S3, written by their libraries, read with the job's own storage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from embertide.errors import AccessDenied, InputError
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.spec.workers import StorageSettings
from tests.support.commands import Commands
from tests.support.s3.server import S3Server
from tests.support.small_job import SmallJob
from tests.support.table_inputs import edges, embeddings, read_rows

pytestmark = [pytest.mark.s3]

ROWS = pa.table({"src": [0, 1, 2], "dst": [1, 2, 3], "day": ["a", "b", "a"]})
LOOPED = [(0, 1), (1, 2), (2, 3)]


def write_delta(s3: S3Server, uri: str, rows: pa.Table, **options: Any) -> None:
    from deltalake import write_deltalake

    keys = s3.environment | {
        "AWS_REGION": s3.region, "AWS_ENDPOINT_URL": s3.endpoint, "AWS_ALLOW_HTTP": "true"
    }  # fmt: skip
    write_deltalake(uri, rows, storage_options=keys, **{"mode": "append", **options})


@pytest.fixture
def iceberg(s3: S3Server, root: str) -> Iterator[Any]:
    """A table with two snapshots, the first of them tagged."""
    from pyiceberg.catalog.sql import SqlCatalog

    properties = {
        "s3.endpoint": s3.endpoint,
        "s3.region": s3.region,
        "s3.access-key-id": s3.access_key,
        "s3.secret-access-key": s3.secret_key,
    }
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=root, **properties)
    try:
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", ROWS.schema, location=f"{root}/t")
        table.append(ROWS.slice(0, 1))
        first = table.current_snapshot().snapshot_id
        table.manage_snapshots().create_tag(first, "nightly").commit()
        table.overwrite(ROWS)
        yield table
    finally:
        catalog.close()


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_delta_table(slash: str, s3: S3Server, storage: Storage, root: str) -> None:
    write_delta(s3, f"{root}/t", ROWS.slice(0, 1), partition_by=["day"])
    write_delta(s3, f"{root}/t", ROWS, mode="overwrite", partition_by=["day"])
    uri = f"{root}/t{slash}"
    assert read_rows(edges(uri, "delta"), storage=storage) == LOOPED
    before = edges(uri, "delta", asOf={"version": 0})
    assert read_rows(before, storage=storage) == LOOPED[:1]
    days = edges(uri, "delta", columns={"source": "day"})
    assert read_rows(days, ("string", "int64"), storage) == [("a", 1), ("a", 3), ("b", 2)]


def test_an_iceberg_table(iceberg: Any, storage: Storage) -> None:
    uri = iceberg.metadata_location
    assert read_rows(edges(uri, "iceberg"), storage=storage) == LOOPED
    tagged = edges(uri, "iceberg", asOf={"tag": "nightly"})
    assert read_rows(tagged, storage=storage) == LOOPED[:1]


def test_files_named_as_hadoop_names_them(iceberg: Any, storage: Storage, root: str) -> None:
    """Spark's own file system has the scheme s3a for the same store."""
    held = storage.read(iceberg.metadata_location).replace(b"s3://", b"s3a://")
    storage.write(f"{root}/t/metadata/v1.metadata.json", held)
    storage.write(f"{root}/t/metadata/version-hint.text", b"1")
    assert read_rows(edges(f"{root}/t/", "iceberg"), storage=storage) == LOOPED


def test_a_file_that_is_in_another_kind_of_store(iceberg: Any, storage: Storage, root: str) -> None:
    held = storage.read(iceberg.metadata_location).replace(b"s3://", b"gs://")
    uri = f"{root}/t/metadata/copy.metadata.json"
    storage.write(uri, held)
    with pytest.raises(InputError, match="which is in another kind of store"):
        read_rows(edges(uri, "iceberg"), storage=storage)


def test_an_object_that_is_replaced_after_the_listing(
    s3: S3Server, storage: Storage, root: str
) -> None:
    from embertide.io.readers.edges import read_edges, split_edges

    write_delta(s3, f"{root}/t", ROWS)
    item = edges(f"{root}/t", "delta")
    (split,) = split_edges(storage, item)
    held = bytearray(storage.read(split.uri))
    held[10] ^= 1
    storage.write(split.uri, bytes(held))
    with pytest.raises(InputError, match="changed"):
        list(read_edges(storage, item, ("int64", "int64"), split))


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_wrong_keys_are_said_as_for_any_object(
    form: str, s3: S3Server, iceberg: Any, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_delta(s3, f"{root}/d", ROWS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    denied = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))
    uri = f"{root}/d" if form == "delta" else iceberg.metadata_location
    with pytest.raises(AccessDenied) as caught:
        read_rows(edges(uri, form), storage=denied)
    assert "AWS_SECRET_ACCESS_KEY" in str(caught.value)
    assert "not-the-secret" not in str(caught.value)


@pytest.mark.distributed
def test_a_job_whose_inputs_are_tables(s3: S3Server, root: str, tmp_path: Path) -> None:
    """The same embeddings as from the same rows in plain files, and the version in the manifest."""
    job = SmallJob.make(tmp_path / "job")
    commands = Commands(tmp_path)
    assert commands.run("run", job.manifest, "--grid", "1x1", "-q").code == 0
    rows = pq.read_table(job.edges)
    write_delta(s3, f"{root}/e", rows)
    write_delta(s3, f"{root}/e", rows, mode="overwrite")
    held = yaml.safe_load(Path(job.manifest).read_text())
    held["spec"]["input"]["edges"] = [{"uri": f"{root}/e/", "format": "delta"}]
    held["spec"]["storage"] = {"endpointUrl": s3.endpoint, "region": s3.region}
    held["spec"]["output"]["uri"] = str(tmp_path / "out")
    path = job.folder / "tables.yaml"
    path.write_text(yaml.safe_dump(held))
    done = commands.run("run", str(path), "--grid", "2x1", "-q")
    assert done.code == 0, done.err
    assert s3.secret_key not in done.out + done.err
    assert np.array_equal(embeddings(tmp_path / "out"), embeddings(job.output))
    (manifest,) = (tmp_path / "out").rglob("_manifest.json")
    (table,) = json.loads(manifest.read_text())["tables"]
    assert table.pop("committed").startswith("20")
    assert table == {"field": "edges[0]", "uri": f"{root}/e/", "format": "delta", "version": 1}
