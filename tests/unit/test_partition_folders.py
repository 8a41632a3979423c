"""Columns that the folders of plain parquet name (``dt=2026-11-25/country=NL/``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.readers.layout import hive_constants
from embertide.storage.opening import open_storage
from tests.support.feature_files import feature_input
from tests.support.feature_files import read_all as read_features
from tests.support.table_inputs import edges, read_rows

ROWS = {"src": [0, 1], "dst": [1, 2]}


def write(folder: Path, name: str, **columns: Any) -> None:
    path = folder / name / "part.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_the_columns_of_a_uri() -> None:
    uri = "s3://shop/edges/dt=2026-11-25/a%20b=c%2Fd%3D/n=__HIVE_DEFAULT_PARTITION__/n=/x=1.parquet"
    assert hive_constants(uri) == {"dt": "2026-11-25", "a b": "c/d=", "n": ""}
    assert hive_constants("s3://shop/n=__HIVE_DEFAULT_PARTITION__/x") == {"n": None}
    assert hive_constants("s3://bucket/=x/part.parquet") == {}


def test_weights_and_ids_from_folders(tmp_path: Path) -> None:
    write(tmp_path, "w=0.5/to=7", src=[1, 2])
    write(tmp_path, "w=2/to=8", src=[3])
    item = edges(tmp_path, "parquet", recursive=True, columns={"destination": "to", "weight": "w"})
    assert read_rows(item) == [(1, 7, 0.5), (2, 7, 0.5), (3, 8, 2.0)]
    # A string is what it is in the folder's name.
    write(tmp_path, "w=1/to=08", src=[4])
    strings = edges(
        tmp_path, "parquet", recursive=True, columns={"source": "src", "destination": "to"}
    )
    assert (4, "08") in read_rows(strings, ("int64", "string"))


def test_folders_of_the_uri_itself_count(tmp_path: Path) -> None:
    write(tmp_path, "w=3", **ROWS)
    item = edges(tmp_path / "w=3", "parquet", columns={"weight": "w"})
    assert read_rows(item) == [(0, 1, 3.0), (1, 2, 3.0)]


def test_what_a_file_stores_comes_first(tmp_path: Path) -> None:
    write(tmp_path, "src=9", **ROWS)
    assert read_rows(edges(tmp_path / "src=9", "parquet")) == [(0, 1), (1, 2)]


def test_only_columns_of_folders(tmp_path: Path) -> None:
    write(tmp_path, "a=1/b=2", other=list(range(250)))
    item = edges(tmp_path, "parquet", recursive=True, columns={"source": "a", "destination": "b"})
    assert read_rows(item) == [(1, 2)] * 250


def test_features_from_folders(tmp_path: Path) -> None:
    write(tmp_path, "country=3", id=[0, 1], age=[30.0, 40.0])
    write(tmp_path, "country=4", id=[2], age=[50.0])
    item = feature_input(tmp_path, recursive=True, columns=["age", "country"])
    ids, values = read_features(open_storage(None), item)
    assert values[np.argsort(ids)].tolist() == [[30, 3], [40, 3], [50, 4]]


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("w=heavy", r"w=heavy/part.parquet: column 'w' \(columns.weight\) is 'heavy', by its part"),
        ("w=nan", r"row 0 .*column 'w' \(columns.weight\) is nan; weights must be finite"),
        ("w=__HIVE_DEFAULT_PARTITION__", r"row 0 .*column 'w' \(columns.weight\) has no value"),
        ("v=1", r"has no column 'w' .*; its columns are 'src', 'dst', its folders give 'v'"),
    ],
)
def test_values_that_do_not_fit(folder: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, folder, **ROWS)
    item = edges(tmp_path, "parquet", recursive=True, columns={"weight": "w"})
    with pytest.raises(InputError, match=message):
        read_rows(item)


@pytest.mark.parametrize("value", ["1.5", "x", "1_0", "9223372036854775808", ""])
def test_ids_that_are_no_integers(value: str, tmp_path: Path) -> None:
    write(tmp_path, f"to={value}", src=[0])
    item = edges(tmp_path, "parquet", recursive=True, columns={"destination": "to"})
    with pytest.raises(InputError, match=r"'to' \(columns.destination\).* an integer of 64 bits"):
        read_rows(item)
