"""Tables with metadata of their own are refused, wherever that stands relative to the uri."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from embertide.engine.planning.inputs import list_inputs
from embertide.errors import InputError
from embertide.io.readers.table_formats import folders_above
from embertide.io.storage.opening import open_storage
from embertide.spec.manifest import load_manifest
from tests.support.lake_tables import FIRST, TABLES, data_files, write, write_rows
from tests.support.small_job import SmallJob

pytestmark = pytest.mark.tier(2)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each table of `TABLES`, in a folder of its own."""
    top = tmp_path_factory.mktemp("tables")
    folders = {name: top / name.replace(" ", "-") / "table" for name in TABLES}
    for name, folder in folders.items():
        TABLES[name].write(folder)
    return folders


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    return SmallJob.make(tmp_path / "job")


def refusal(job: SmallJob, uri: Path, part: str = "edges", *, recursive: bool = True) -> str:
    """How a job refuses that as its edges, features, ids or node table."""
    held = yaml.safe_load(Path(job.manifest).read_text())
    given = held["spec"]["input"]
    if part == "edges":
        given["edges"][0] |= {"uri": str(uri), "recursive": recursive}
    elif part == "features":
        given["nodes"][0]["features"] |= {"uri": str(uri), "recursive": recursive}
    elif part == "ids":
        values = job.folder / "values" / "x.npy"
        values.parent.mkdir()
        np.save(values, np.ones((4, 4)))
        given["nodes"][0]["features"] = {
            "uri": str(values.parent), "format": "npy", "idsUri": str(uri), "recursive": recursive
        }  # fmt: skip
    else:
        table = {"uri": str(uri), "idColumn": "src", "recursive": recursive}
        given["nodes"][0] |= {"ids": "int64", "table": table}
    path = job.folder / f"{part}.yaml"
    path.write_text(yaml.safe_dump(held))
    with pytest.raises(InputError) as caught:
        list_inputs(open_storage(None), load_manifest(path))
    return str(caught.value)


def inside(table: Path) -> Iterator[Path]:
    """The table, the folders of its data, and one file."""
    files = data_files(table)
    yield table
    yield from sorted({folder for folder in files[0].parents if folder.is_relative_to(table)})
    yield files[0]


@pytest.mark.parametrize("name", TABLES)
def test_its_files_hold_more_than_the_table(name: str, tables: dict[str, Path]) -> None:
    rows = sum(pq.read_metadata(path).num_rows for path in data_files(tables[name]))
    assert rows > TABLES[name].rows


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("part", ["edges", "features", "ids", "table"])
def test_a_table_is_refused(name: str, part: str, tables: dict[str, Path], small: SmallJob) -> None:
    table, expected = tables[name], TABLES[name]
    message = refusal(small, table, part)
    start = f"file://{table} belongs to {expected.described} table: file://{table}/"
    assert re.match(re.escape(start) + expected.seen + " is its metadata", message), message
    if expected.format in ("Delta", "Iceberg"):
        form = expected.format.lower()
        assert f"own folder: {{uri: file://{table}, format: {form}}}" in message
    else:
        assert "Write the table's current version to a folder outside of it" in message


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("recursive", [False, True])
def test_a_part_of_a_table_is_refused(
    name: str, recursive: bool, tables: dict[str, Path], small: SmallJob
) -> None:
    for uri in inside(tables[name]):
        message = refusal(small, uri, recursive=recursive)
        assert message.startswith(f"file://{uri} belongs to {TABLES[name].described} table: "), uri
    above = tables[name].parent
    message = refusal(small, above, recursive=recursive)
    assert message.startswith(f"file://{above} belongs to {TABLES[name].described} table: ")


def test_a_link_into_a_table_is_refused(
    tables: dict[str, Path], small: SmallJob, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tables["delta partitioned"] / "day=a")
    assert "Delta table" in refusal(small, tmp_path / "link")


def test_csv_and_npy_in_a_table_are_refused(small: SmallJob, tmp_path: Path) -> None:
    held = yaml.safe_load(Path(small.manifest).read_text())
    for form, content in {"csv": b"src,dst\n0,1\n", "npy": b""}.items():
        folder = tmp_path / form / "edges"
        write(folder / f"a.{form}", content)
        write(tmp_path / form / "_delta_log" / "0.json")
        held["spec"]["input"]["edges"] = [{"uri": str(folder), "format": form}]
        path = small.folder / "formats.yaml"
        path.write_text(yaml.safe_dump(held))
        with pytest.raises(InputError, match="Delta table"):
            list_inputs(open_storage(None), load_manifest(path))


@pytest.mark.parametrize("commits", [False, True])
def test_among_very_many_names(commits: bool, small: SmallJob, tmp_path: Path) -> None:
    table = tmp_path / "wide"
    for number in range(1100):
        write(table / f"!{number}", b"")
        write(table / "metadata" / f"{number:05d}-m0.avro", b"")
    write_rows(table / "data" / "a.parquet")
    write(table / "metadata" / ("v1.metadata.json" if commits else "notes.json"))
    if commits:
        assert "Iceberg table" in refusal(small, table / "data" / "a.parquet")
    else:
        write(table / "_delta_log" / "0.json")
        assert "Delta table" in refusal(small, table / "data" / "a.parquet")


INNOCENT: list[Callable[[Path], None]] = [
    lambda top: write(top / "metadata" / "readme.json"),
    lambda top: write(top / "metadata" / "metadata.json"),
    lambda top: [write(top / name / "x") for name in ("snapshot", "schema", "manifest")],
    lambda top: write(top / "base_20260101" / "x"),
    lambda top: write(top / "delta_20260101_20260102" / "x"),
    lambda top: write(top / "schema" / "schema-0"),
    lambda top: write(top / "_SUCCESS"),
]


@pytest.mark.parametrize("beside", INNOCENT)
def test_other_folders_of_these_names_are_nothing(
    beside: Callable[[Path], None], small: SmallJob
) -> None:
    beside(small.folder)
    list_inputs(open_storage(None), load_manifest(Path(small.manifest)))


def test_the_folders_above() -> None:
    assert folders_above("s3://b/x/y/z") == ["s3://b/x/y/", "s3://b/x/", "s3://b/"]
    assert folders_above("s3://b/x/") == ["s3://b/"]
    assert folders_above("s3://b/") == folders_above("s3://b") == []
    assert folders_above("file:///nowhere/y") == ["file:///nowhere/", "file:///"]


def test_what_is_written_plainly_from_a_table_is_read(
    tables: dict[str, Path], small: SmallJob, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    plain = tmp_path / "plain"
    plain.mkdir()
    current = pa.table(DeltaTable(tables["delta compacted"]).to_pyarrow_table())
    assert current.num_rows == FIRST.num_rows
    pq.write_table(current, plain / "edges.parquet")
    held = yaml.safe_load(Path(small.manifest).read_text())
    held["spec"]["input"]["edges"][0]["uri"] = str(plain)
    path = small.folder / "plain.yaml"
    path.write_text(yaml.safe_dump(held))
    list_inputs(open_storage(None), load_manifest(path))
