"""Files between the files: markers never count, others are named with how to leave them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError, ObjectMissing
from embertide.readers.objects import list_objects
from embertide.storage.protocol import Listing, ObjectInfo, Storage
from tests.support.edge_files import edge_input, read_all, refused, rows_of, write_parquet
from tests.support.feature_files import feature_input
from tests.support.feature_files import read_all as read_features
from tests.support.feature_files import refused as features_refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for day in (1, 2):
        write_parquet(tmp_path / f"e/dt=2026-11-0{day}/a.parquet", src=[day], dst=[day])
    return tmp_path / "e"


MARKERS = [
    "dt=2026-11-01_$folder$",
    "dt=2026-11-01/_SUCCESS",
    "_committed_8312",
    "_started_8312",
    "dt=2026-11-01/.a.parquet.crc",
    "._SUCCESS.crc",
]


def test_markers_never_count(folder: Path, storage: Storage) -> None:
    for name in MARKERS:
        (folder / name).touch()
    edges = edge_input(folder, "parquet", recursive=True)
    assert rows_of(read_all(storage, edges)) == [(1, 1), (2, 2)]


def test_nothing_but_markers(tmp_path: Path, storage: Storage) -> None:
    (tmp_path / "dt=1_$folder$").touch()
    with pytest.raises(ObjectMissing, match=r"no objects but hidden ones .*such as .*_\$folder\$"):
        list_objects(storage, f"file://{tmp_path}", True, "edges.recursive")


class OfKeys:
    """What a store of keys lists: unlike files, a key may be the beginning of others."""

    def __init__(self, *keys: str) -> None:
        self.objects = [ObjectInfo(f"s3://b/{key}", 0 if key < "e/y" else 9, "") for key in keys]

    def scan(self, uri: str) -> Listing:
        exact = [info for info in self.objects if info.uri == uri]
        below = [info for info in self.objects if info.uri.startswith(uri.rstrip("/") + "/")]
        if not exact and not below:
            raise ObjectMissing(uri)
        return Listing(exact or below, [])


def test_an_empty_object_with_the_name_of_a_folder() -> None:
    """Some clients write one for each folder; as csv without a header it would hold no edges."""

    def listed(*keys: str) -> list[str]:
        store: Any = OfKeys(*keys)
        return [info.uri for info in list_objects(store, "s3://b/e", True, "edges.recursive")]

    assert listed("e", "e/x", "e/yy/a.csv") == ["s3://b/e/x", "s3://b/e/yy/a.csv"]
    assert listed("e", "e/u", "e/u/v", "e/yy") == ["s3://b/e/u/v", "s3://b/e/yy"]
    assert listed("e") == ["s3://b/e"]


def test_a_marker_that_holds_something_counts(folder: Path, storage: Storage) -> None:
    (folder / "dt=2026-11-01_$folder$").write_text("x")
    edges = edge_input(folder, "parquet", recursive=True)
    assert "_$folder$ is not readable as parquet" in refused(storage, edges)


def test_an_empty_object_of_data_counts(folder: Path, storage: Storage) -> None:
    """A writer that was stopped leaves it; without it rows would be missing."""
    (folder / "dt=2026-11-01/b.parquet").touch()
    edges = edge_input(folder, "parquet", recursive=True)
    assert "b.parquet is not readable as parquet" in refused(storage, edges)


OTHERS = {"MANIFEST": "{}", "README.md": "# Edges", "SHA256SUMS": "af01  a.parquet"}


@pytest.mark.parametrize("name", ["a", "zz"])
def test_others_are_named(tmp_path: Path, storage: Storage, name: str) -> None:
    write_parquet(tmp_path / f"{name}.parquet", src=[1], dst=[2])
    for other, text in OTHERS.items():
        (tmp_path / other).write_text(text)
    edges = edge_input(tmp_path, "parquet")
    message = refused(storage, edges)
    assert f"file://{tmp_path}/MANIFEST is not readable as parquet (" in message
    assert (
        ". 3 of the 4 objects here do not end in .parquet: MANIFEST, README.md, SHA256SUMS. If they"
        " are no data, write include: '*.parquet' (edges.include)"
    ) in message
    edges = edge_input(tmp_path, "parquet", include="*.parquet")
    assert rows_of(read_all(storage, edges)) == [(1, 2)]


def test_a_damaged_object_of_data_is_that(tmp_path: Path, storage: Storage) -> None:
    (tmp_path / "a.parquet").write_text("half")
    (tmp_path / "b.txt").write_text("notes")
    message = refused(storage, edge_input(tmp_path, "parquet"))
    assert "a.parquet is not readable as parquet" in message
    assert "do not end in" not in message


def test_others_in_csv_and_npy(tmp_path: Path, storage: Storage) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c/a.csv.gz.md5").write_text("0123  a.csv")
    (tmp_path / "c/b.csv").write_text("src,dst\n1,2\n")
    message = refused(storage, edge_input(tmp_path / "c", "csv"))
    assert "1 of the 2 objects here do not end in .csv: a.csv.gz.md5. If they are no" in message
    (tmp_path / "n").mkdir()
    np.save(tmp_path / "n/x.npy", np.ones((2, 3)))
    (tmp_path / "n/README").write_text("by hand")
    message = features_refused(storage, feature_input(tmp_path / "n", "npy"))
    assert "1 of the 2 objects here do not end in .npy: README. If" in message
    assert "include: '*.npy' (features.include)" in message
    features = feature_input(tmp_path / "n", "npy", include="*.npy")
    assert read_features(storage, features)[1].tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize("columns", [{"vectorColumn": "x"}, {"columns": ["x*"]}])
def test_others_before_features(
    tmp_path: Path, storage: Storage, columns: dict[str, object]
) -> None:
    """The first object tells the width, and which columns a pattern selects."""
    x = [[1.0]] if "vectorColumn" in columns else [1.0]
    pq.write_table(pa.table({"id": [0], "x": x}), tmp_path / "x.parquet")
    (tmp_path / "README").write_text("by hand")
    message = features_refused(storage, feature_input(tmp_path, **columns))
    assert "do not end in .parquet: README. If they are no data, write include" in message
    features = feature_input(tmp_path, include="*.parquet", **columns)
    assert read_features(storage, features)[1].tolist() == [[1.0]]


def test_include_takes_names_alone(folder: Path, storage: Storage) -> None:
    write_parquet(folder / "dt=2026-11-01/old.parquet", src=[9], dst=[9])
    edges = edge_input(folder, "parquet", recursive=True, include="?.parquet")
    assert rows_of(read_all(storage, edges)) == [(1, 1), (2, 2)]
    edges = edge_input(folder, "parquet", recursive=True, include="*.PARQUET")
    with pytest.raises(ObjectMissing) as caught:
        rows_of(read_all(storage, edges))
    assert str(caught.value) == (
        f"file://{folder} has no objects whose names match '*.PARQUET' (edges.include), but"
        " a.parquet, old.parquet, a.parquet; correct the pattern"
    )
    with pytest.raises(ValueError, match="is matched with names, not with paths; it must have no"):
        edge_input(folder, "parquet", include="dt=*/a.parquet")


def test_what_lies_in_a_subfolder_and_is_not_included(folder: Path, storage: Storage) -> None:
    write_parquet(folder / "x.parquet", src=[5], dst=[5])
    edges = edge_input(folder, "parquet", include="x.*")
    assert rows_of(read_all(storage, edges)) == [(5, 5)]
    with pytest.raises(InputError, match="lies in a subfolder"):
        rows_of(read_all(storage, edge_input(folder, "parquet")))
