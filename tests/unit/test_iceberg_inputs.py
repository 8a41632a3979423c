"""Iceberg tables as inputs: exactly the rows of a snapshot, or a refusal by name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError, ObjectMissing
from tests.support.iceberg_by_hand import append_file, equality_deletes, positional_deletes
from tests.support.table_inputs import edges, iceberg_catalog, read_rows

ROWS = pa.table({"src": list(range(300)), "dst": list(range(1, 301))})
LOOPED = [(i, i + 1) for i in range(300)]


def refused(uri: str, **fields: Any) -> str:
    with pytest.raises((InputError, ObjectMissing)) as caught:
        read_rows(edges(uri, "iceberg", **fields))
    return str(caught.value)


def create(catalog: Any, folder: Path, schema: pa.Schema, **options: Any) -> Any:
    return catalog.create_table("n.t", schema, location=f"file://{folder}/t", **options)


def test_snapshots_tags_and_branches(tmp_path: Path) -> None:
    with iceberg_catalog(tmp_path) as catalog:
        table = create(catalog, tmp_path, ROWS.schema)
        table.append(ROWS.slice(0, 1))
        first = table.current_snapshot()
        table.manage_snapshots().create_tag(first.snapshot_id, "nightly").commit()
        table.append(ROWS.slice(1, 1))
        second = table.current_snapshot()
        table.manage_snapshots().create_branch(second.snapshot_id, "audit").commit()
        table.overwrite(ROWS.slice(2, 1))
        uri = table.metadata_location
    for as_of, rows in (
        (None, LOOPED[2:3]),
        ({"version": first.snapshot_id}, LOOPED[:1]),
        ({"tag": "nightly"}, LOOPED[:1]),
        ({"branch": "audit"}, LOOPED[:2]),
        ({"branch": "main"}, LOOPED[2:3]),
        ({"timestamp": "2999-01-01T00:00:00Z"}, LOOPED[2:3]),
    ):
        fields = {} if as_of is None else {"asOf": as_of}
        assert read_rows(edges(uri, "iceberg", **fields)) == rows, as_of
    missing = refused(uri, asOf={"version": 7})
    assert f"Iceberg table {uri} has no snapshot 7 (asOf.version); its newest snapshots" in missing
    assert str(second.snapshot_id) in missing
    assert "has no tag 'audit' (asOf.tag); it has nightly" in refused(uri, asOf={"tag": "audit"})
    early = refused(uri, asOf={"timestamp": "2020-01-01T00:00:00Z"})
    assert "has no snapshot of 2020-01-01T00:00:00Z (asOf.timestamp)" in early


def test_a_table_without_rows(tmp_path: Path) -> None:
    with iceberg_catalog(tmp_path) as catalog:
        uri = create(catalog, tmp_path, ROWS.schema).metadata_location
    assert "nothing was written to it yet" in refused(uri)


def test_columns_are_known_by_their_ids(tmp_path: Path) -> None:
    """A column that was renamed, another that took its name, and one that was added."""
    from pyiceberg.types import LongType

    with iceberg_catalog(tmp_path) as catalog:
        table = create(catalog, tmp_path, ROWS.schema)
        table.append(ROWS)
        old = table.current_snapshot().snapshot_id
        with table.update_schema() as update:
            update.rename_column("dst", "was")
        with table.update_schema() as update:
            update.rename_column("src", "dst")
            update.add_column("weight", LongType())
        table.append(pa.table({"dst": [5], "was": [6], "weight": [7]}))
        uri = table.metadata_location
    columns = {"source": "was", "destination": "dst"}
    assert read_rows(edges(uri, "iceberg", columns=columns)) == sorted(
        [(d, s) for s, d in LOOPED] + [(6, 5)]
    )
    weighted = edges(uri, "iceberg", columns=columns | {"weight": "weight"})
    with pytest.raises(InputError, match=r"row 0 .*column 'weight' \(columns.weight\) has no valu"):
        read_rows(weighted)
    assert "its columns are 'dst', 'was', 'weight'" in refused(uri)
    # As it was then.
    assert read_rows(edges(uri, "iceberg", asOf={"version": old})) == LOOPED


def test_partitions_that_files_lack(tmp_path: Path) -> None:
    """Files that were written elsewhere, as of Hive, without the columns of their partition."""
    from pyiceberg.transforms import IdentityTransform

    with iceberg_catalog(tmp_path) as catalog:
        schema = ROWS.schema.append(pa.field("country", pa.string()))
        schema = schema.append(pa.field("day", pa.date32())).append(pa.field("n", pa.int64()))
        table = create(catalog, tmp_path, schema)
        with table.update_spec() as spec:
            for name in ("country", "day", "n"):
                spec.add_field(name, IdentityTransform(), name)
        table.append(
            ROWS.slice(0, 1)
            .cast(ROWS.schema)
            .append_column("country", [["BE"]])
            .append_column("day", pa.array([1], pa.int32()).cast(pa.date32()))
            .append_column("n", [[4]])
        )
        lacking = ROWS.slice(1, 2)
        ids = [{"PARQUET:field_id": str(column.field_id)} for column in table.schema().columns]
        fields = [
            item.with_metadata(about) for item, about in zip(lacking.schema, ids, strict=False)
        ]
        path = tmp_path / "t" / "data" / "elsewhere.parquet"
        pq.write_table(lacking.cast(pa.schema(fields)), path)
        append_file(table, path, ["NL", 20_000, 7])
        uri = table.metadata_location
    by_country = edges(uri, "iceberg", columns={"source": "country"})
    rows = [("BE", 1), ("NL", 2), ("NL", 3)]
    assert read_rows(by_country, ("string", "int64")) == rows
    weighted = edges(uri, "iceberg", columns={"weight": "n"})
    assert read_rows(weighted) == [(0, 1, 4.0), (1, 2, 7.0), (2, 3, 7.0)]


def test_files_without_ids_by_the_mapping_of_names(tmp_path: Path) -> None:
    from pyiceberg.transforms import IdentityTransform

    folder = tmp_path / "t" / "data" / "country=NL"
    folder.mkdir(parents=True)
    pq.write_table(ROWS.append_column("country", [["NL"] * 300]), folder / "a.parquet")
    with iceberg_catalog(tmp_path) as catalog:
        schema = ROWS.schema.append(pa.field("country", pa.string()))
        table = create(catalog, tmp_path, schema)
        with table.update_spec() as spec:
            spec.add_field("country", IdentityTransform(), "country")
        table.add_files([f"file://{folder}/a.parquet"])
        with table.update_schema() as update:
            update.rename_column("dst", "to")
        uri = table.metadata_location
    assert read_rows(edges(uri, "iceberg", columns={"destination": "to"})) == LOOPED
    by_country = edges(uri, "iceberg", columns={"source": "country", "destination": "to"})
    assert read_rows(by_country, ("string", "int64")) == sorted(("NL", d) for _, d in LOOPED)


@pytest.mark.parametrize("target", [1, 1 << 20])
def test_positional_deletes(target: int, tmp_path: Path) -> None:
    gone = [0, 7, 150, 299]
    with iceberg_catalog(tmp_path) as catalog:
        table = create(catalog, tmp_path, ROWS.schema, properties={"format-version": "2"})
        table.append(ROWS)
        positional_deletes(table, gone)
        table.append(ROWS.slice(0, 1))
        uri = table.metadata_location
    left = [row for at, row in enumerate(LOOPED) if at not in gone]
    assert read_rows(edges(uri, "iceberg"), target=target) == sorted([*left, LOOPED[0]])


def test_equality_deletes_are_refused(tmp_path: Path) -> None:
    with iceberg_catalog(tmp_path) as catalog:
        table = create(catalog, tmp_path, ROWS.schema, properties={"format-version": "2"})
        table.append(ROWS)
        equality_deletes(table, [3])
        uri = table.metadata_location
    assert "has equality deletes, which cannot be read" in refused(uri)


def test_a_folder_with_a_hint(tmp_path: Path) -> None:
    with iceberg_catalog(tmp_path) as catalog:
        table = create(catalog, tmp_path, ROWS.schema)
        table.append(ROWS.slice(0, 2))
        older = table.metadata_location
        table.append(ROWS.slice(2, 1))
        newer = table.metadata_location
    metadata = tmp_path / "t" / "metadata"
    folder = f"file://{tmp_path}/t"
    message = refused(folder)
    assert "has no metadata/version-hint.text, so only its catalog knows" in message
    assert newer in message
    (metadata / "version-hint.text").write_text(older.rpartition("/")[2])
    assert read_rows(edges(folder, "iceberg")) == LOOPED[:2]
    for number, path in ((1, older), (2, newer)):
        shutil.copy(path.removeprefix("file://"), metadata / f"v{number}.metadata.json")
    (metadata / "version-hint.text").write_text("2\n")
    assert read_rows(edges(folder, "iceberg")) == LOOPED[:3]
    # A writer stopped between the new metadata and the hint.
    (metadata / "version-hint.text").write_text("1")
    assert read_rows(edges(folder, "iceberg")) == LOOPED[:3]


def test_a_folder_without_metadata(tmp_path: Path) -> None:
    assert "is no Iceberg table: it has no metadata/*.metadata.json" in refused(
        f"file://{tmp_path}"
    )


def test_a_snapshot_whose_files_were_removed(tmp_path: Path) -> None:
    with iceberg_catalog(tmp_path) as catalog:
        table = create(catalog, tmp_path, ROWS.schema)
        table.append(ROWS)
        uri = table.metadata_location
    next((tmp_path / "t" / "data").rglob("*.parquet")).unlink()
    message = refused(uri)
    assert "but is not there: expire_snapshots removes files of old snapshots" in message


def test_metadata_that_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "x.metadata.json").write_text("{")
    uri = f"file://{tmp_path}/x.metadata.json"
    assert f"Iceberg table {uri} cannot be read: " in refused(uri)


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyiceberg", None)
    assert "pip install 'embertide[tables]'" in refused(f"file://{tmp_path}")
