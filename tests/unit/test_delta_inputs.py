"""Delta tables as inputs: the rows of the version that is asked for, or a refusal by name."""

from __future__ import annotations

import json
import os
import time
import uuid
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError, ObjectMissing
from embertide.io.readers.sources import Sources
from embertide.io.storage.opening import open_storage
from tests.support.lake_tables import delta_compacted, delta_deleted
from tests.support.table_inputs import DeltaByHand, edges, field, read_rows

pytestmark = pytest.mark.tier(2)

ROWS = pa.table({"src": list(range(300)), "dst": list(range(1, 301)), "w": [0.5] * 300})
LOOPED = [(i, i + 1) for i in range(300)]


def write(folder: Path, rows: pa.Table, **options: Any) -> None:
    from deltalake import write_deltalake

    write_deltalake(folder, rows, **{"mode": "append", **options})


def refused(folder: Path, **fields: Any) -> str:
    with pytest.raises((InputError, ObjectMissing)) as caught:
        read_rows(edges(folder, "delta", **fields))
    return str(caught.value)


def test_files_that_were_replaced_do_not_count(tmp_path: Path) -> None:
    delta_compacted(tmp_path / "compacted")
    assert read_rows(edges(tmp_path / "compacted", "delta")) == [(0, 1), (1, 0)]
    delta_deleted(tmp_path / "deleted")
    assert read_rows(edges(tmp_path / "deleted", "delta")) == [(0, 1), (1, 0)]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_each_version_has_its_rows(checkpoint: bool, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    table = tmp_path / "table"
    for version in range(4):
        write(table, ROWS.slice(version, 1))
        if checkpoint and version == 2:
            DeltaTable(table).create_checkpoint()
    for version in range(4):
        rows = read_rows(edges(table, "delta", asOf={"version": version}))
        assert rows == LOOPED[: version + 1]
    assert read_rows(edges(table, "delta")) == LOOPED[:4]
    missing = refused(table, asOf={"version": 4})
    assert missing == (
        f"Delta table file://{table} has no version 4 (asOf.version); its log has versions 0 to 3"
    )


def test_a_log_that_begins_with_a_checkpoint(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    table = tmp_path / "table"
    for version in range(4):
        write(table, ROWS.slice(version, 1))
        if version == 2:
            DeltaTable(table).create_checkpoint()
    for version in range(2):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    assert read_rows(edges(table, "delta", asOf={"version": 2})) == LOOPED[:3]
    assert "its log has versions 2 to 3" in refused(table, asOf={"version": 1})


def test_a_time_is_that_of_the_newest_commit_before_it(tmp_path: Path) -> None:
    table = tmp_path / "table"
    moments = [now()]
    for version in range(3):
        write(table, ROWS.slice(version, 1))
        moments.append(now())
    amsterdam = moments[1].astimezone(timezone(timedelta(hours=1)))
    asked = [*moments[1:], amsterdam, datetime(2999, 1, 1, tzinfo=UTC)]
    for moment, rows in zip(asked, (1, 2, 3, 1, 3), strict=True):
        item = edges(table, "delta", asOf={"timestamp": moment.isoformat()})
        assert read_rows(item) == LOOPED[:rows], moment
    early = refused(table, asOf={"timestamp": moments[0].isoformat()})
    assert f"has no version of {moments[0].isoformat()} (asOf.timestamp)" in early
    assert "its oldest commit is of 20" in early


def now() -> datetime:
    """The time, once files that are written later have later ones."""
    time.sleep(0.02)
    moment = datetime.now(UTC)
    time.sleep(0.02)
    return moment


def test_commits_that_have_their_own_time(tmp_path: Path) -> None:
    table = DeltaByHand(tmp_path / "table", [field("src"), field("dst")])
    for day, name in ((21, "a.parquet"), (22, "b.parquet")):
        when = int(datetime(2026, 11, day, tzinfo=UTC).timestamp() * 1000)
        own = {"commitInfo": {"timestamp": 0, "inCommitTimestamp": when}}
        table.commit(own, table.add(name, ROWS.slice(day - 21, 1).drop_columns("w")))
    log = tmp_path / "table" / "_delta_log"
    os.utime(log / f"{0:020}.json", (0, 0))
    item = edges(tmp_path / "table", "delta", asOf={"timestamp": "2026-11-21T12:00:00Z"})
    assert read_rows(item) == LOOPED[:1]


def test_partition_columns_are_columns(tmp_path: Path) -> None:
    rows = ROWS.append_column("kind", [["a b", "c/d", "é=%20"] * 100])
    rows = rows.append_column("n", [[7, 8, 9] * 100]).append_column("half", [[0.5, 1.5, 2.5] * 100])
    write(tmp_path / "t", rows, partition_by=["kind", "n", "half"])
    by_kind = edges(tmp_path / "t", "delta", columns={"source": "kind"})
    kinds = ("a b", "c/d", "é=%20")
    assert read_rows(by_kind, ("string", "int64")) == sorted(
        (kinds[i % 3], i + 1) for i in range(300)
    )
    by_number = edges(tmp_path / "t", "delta", columns={"destination": "n", "weight": "half"})
    kinds = [(7, 0.5), (8, 1.5), (9, 2.5)] * 100
    assert read_rows(by_number) == [(i, *kinds[i]) for i in range(300)]
    with pytest.raises(InputError, match=r"column 'kind' \(columns.weight\) is .* a number"):
        read_rows(edges(tmp_path / "t", "delta", columns={"weight": "kind"}))


def test_a_null_partition_is_null(tmp_path: Path) -> None:
    rows = ROWS.slice(0, 4).append_column("kind", [[None, "", None, ""]])
    write(tmp_path / "t", rows, partition_by=["kind"])
    by_kind = edges(tmp_path / "t", "delta", columns={"source": "kind"})
    with pytest.raises(InputError, match=r"row 0 .*column 'kind' \(columns.source\) has no value"):
        read_rows(by_kind, ("string", "int64"))


def test_a_column_that_was_added_later(tmp_path: Path) -> None:
    write(tmp_path / "t", ROWS.drop_columns("w"))
    write(tmp_path / "t", ROWS, schema_mode="merge")
    assert read_rows(edges(tmp_path / "t", "delta")) == sorted(LOOPED * 2)
    with pytest.raises(InputError, match=r"row 0 .*column 'w' \(columns.weight\) has no value"):
        read_rows(edges(tmp_path / "t", "delta", columns={"weight": "w"}))
    message = refused(tmp_path / "t", columns={"weight": "x"})
    assert "has no column 'x' (columns.weight); its columns are 'src', 'dst', 'w'" in message


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(mode: str, tmp_path: Path) -> None:
    """A column that was renamed, and one that took its old name."""

    def mapped(name: str, physical: str, number: int) -> dict[str, Any]:
        about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        return field(name, **about)

    table = DeltaByHand(
        tmp_path / "t",
        [mapped("src", "col-1", 1), mapped("dst", "src", 2), mapped("day", "col-3", 3)],
        features=["columnMapping"],
        partitions=["day"],
        configuration={"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "3"},
    )
    names = {"col-1": 1, "src": 2} if mode == "name" else {"any": 1, "other": 2}
    stored = pa.table(
        [ROWS["src"], ROWS["dst"]],
        schema=pa.schema(
            [
                pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})
                for name, number in names.items()
            ]
        ),
    )
    table.commit(table.add("a.parquet", stored, partitionValues={"col-3": "5"}))
    assert read_rows(edges(tmp_path / "t", "delta")) == LOOPED
    by_day = edges(tmp_path / "t", "delta", columns={"weight": "day"})
    assert read_rows(by_day) == [(s, d, 5.0) for s, d in LOOPED]


@pytest.mark.parametrize("storage", ["inline", "stored"])
@pytest.mark.parametrize("target", [1, 1 << 20])
def test_deletion_vectors(storage: str, target: int, tmp_path: Path) -> None:
    table = DeltaByHand(tmp_path / "t", [field("src"), field("dst")], features=["deletionVectors"])
    gone = [0, 1, 99, 100, 150, *range(200, 300)] if storage == "stored" else [0, 5, 299]
    vector = table.stored_vector(gone) if storage == "stored" else table.inline_vector(gone)
    rows = ROWS.drop_columns("w")
    table.commit(table.add("a b.parquet", rows, path="a%20b.parquet", **vector))
    table.commit(table.add("b.parquet", rows.slice(0, 1)))
    left = [row for at, row in enumerate(LOOPED) if at not in gone]
    assert read_rows(edges(tmp_path / "t", "delta"), target=target) == sorted([*left, LOOPED[0]])


def test_a_bad_row_after_deleted_ones_is_named(tmp_path: Path) -> None:
    table = DeltaByHand(tmp_path / "t", [field("src"), field("dst")], features=["deletionVectors"])
    rows = pa.table({"src": [0, 1, None, 3, None], "dst": [1, 2, 3, 4, 5]})
    table.commit(table.add("a.parquet", rows, **table.inline_vector([1, 2])))
    with pytest.raises(InputError, match=r"a.parquet row 4 \(from 0\): column 'src'"):
        read_rows(edges(tmp_path / "t", "delta"))


def test_a_feature_that_is_not_known_is_refused(tmp_path: Path) -> None:
    table = DeltaByHand(tmp_path / "t", [field("src"), field("dst")], features=["columnScrambling"])
    table.commit(table.add("a.parquet", ROWS))
    assert "columnScrambling" in refused(tmp_path / "t")


def test_a_file_that_was_vacuumed(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    write(tmp_path / "t", ROWS)
    write(tmp_path / "t", ROWS.slice(0, 3), mode="overwrite")
    DeltaTable(tmp_path / "t").vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    )
    assert len(read_rows(edges(tmp_path / "t", "delta"))) == 3
    message = refused(tmp_path / "t", asOf={"version": 0})
    assert "belongs to Delta table" in message
    assert "version 0, but is not there: VACUUM removes files of old versions" in message


def test_a_file_of_another_size(tmp_path: Path) -> None:
    write(tmp_path / "t", ROWS)
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.write_bytes(file.read_bytes() + b"x")
    assert "it was replaced or damaged; restore it" in refused(tmp_path / "t")


def test_a_folder_without_a_log(tmp_path: Path) -> None:
    write(tmp_path / "t", ROWS.append_column("day", [["a"] * 300]), partition_by=["day"])
    message = refused(tmp_path / "t" / "day=a")
    assert "is no Delta table: it has no commits below _delta_log/" in message


def test_a_broken_log_names_the_table(tmp_path: Path) -> None:
    write(tmp_path / "t", ROWS)
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text('{"add": 3}\n')
    message = refused(tmp_path / "t")
    assert f"Delta table file://{tmp_path}/t cannot be read" in message
    assert "embertide-delta-" not in message


def test_versions_that_are_committed_later_do_not_count(tmp_path: Path) -> None:
    write(tmp_path / "t", ROWS)
    item = edges(tmp_path / "t", "delta")
    earlier = edges(tmp_path / "t", "delta", asOf={"version": 0})
    sources = Sources(open_storage(None))
    first = sources.snapshot(item)
    write(tmp_path / "t", ROWS)
    assert sources.snapshot(item) is first
    newest = Sources(open_storage(None)).snapshot(item)
    assert (first.version, newest.version) == (0, 1)
    assert (len(first.files), len(newest.files)) == (1, 2)
    again = Sources(open_storage(None)).snapshot(earlier)
    assert again.files == first.files


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    assert "pip install 'embertide[tables]'" in refused(tmp_path)


def test_a_checkpoint_with_sidecars(tmp_path: Path) -> None:
    """Of a log whose commits before the checkpoint were removed, named as Spark names them."""
    table = DeltaByHand(tmp_path / "t", [field("src"), field("dst")], features=["v2Checkpoint"])
    add = table.add("a.parquet", ROWS.drop_columns("w"))
    log = tmp_path / "t" / "_delta_log"
    sidecar = f"{1:020}.checkpoint.{1:010}.{1:010}.{uuid.uuid4()}.parquet"
    (log / "_sidecars").mkdir()
    kinds = pa.map_(pa.string(), pa.string())
    held = add["add"] | {"partitionValues": []}
    names = [pa.field(name, kinds if name == "partitionValues" else pa.scalar(value).type)
             for name, value in held.items()]  # fmt: skip
    column = pa.array([held], pa.struct(names))
    pq.write_table(pa.table({"add": column}), log / "_sidecars" / sidecar)
    about: dict[str, Any] = {"path": sidecar, "modificationTime": 0}
    about["sizeInBytes"] = (log / "_sidecars" / sidecar).stat().st_size
    first = (log / f"{0:020}.json").read_text().splitlines()
    actions = [{"checkpointMetadata": {"version": 1}}, {"sidecar": about}]
    lines = [*first, *map(json.dumps, actions)]
    (log / f"{1:020}.checkpoint.{uuid.uuid4()}.json").write_text("\n".join(lines))
    table.commit(add)
    (log / f"{0:020}.json").unlink()
    (log / f"{1:020}.json").unlink()
    table.commit()
    assert read_rows(edges(tmp_path / "t", "delta")) == LOOPED
