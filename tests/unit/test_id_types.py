"""Ids of any type that tools write: whole numbers are one id whatever their type, text is text."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.readers.edges import split_edges
from embertide.readers.features import read_features, split_features
from embertide.readers.nodes import read_nodes, split_nodes
from embertide.readers.reference import read_reference, split_reference
from embertide.spec.manifest import FeatureInput, NodeTable
from embertide.storage.protocol import Storage
from tests.support.edge_files import edge_input, read_all, refused, rows_of, write_parquet
from tests.support.tool_files import IDS, TEXTS, WHOLE_NUMBERS, both


@pytest.mark.parametrize("tool", WHOLE_NUMBERS)
@pytest.mark.parametrize("ids", ["int64", "dense"])
def test_whole_numbers(tmp_path: Path, storage: Storage, kernels: str, tool: str, ids: str) -> None:
    path = tmp_path / "e.parquet"
    WHOLE_NUMBERS[tool](path)
    batches = list(read_all(storage, edge_input(path, "parquet"), ids))
    assert batches[0].source.dtype == np.int64
    assert rows_of(iter(batches)) == [(i, i) for i in IDS]


@pytest.mark.parametrize("tool", TEXTS)
def test_text(tmp_path: Path, storage: Storage, kernels: str, tool: str) -> None:
    path = tmp_path / "e.parquet"
    write, names = TEXTS[tool]
    write(path)
    for rows in (1, 100):
        batches = read_all(storage, edge_input(path, "parquet"), "string", rows=rows)
        assert rows_of(batches) == [(name, name) for name in names]


def _kinds_of_one() -> dict[str, Any]:
    return {
        "int64": pa.array([1]),
        "decimal": pa.array([Decimal(1)], pa.decimal128(38, 0)),
        "float": pa.array([1.0]),
        "uint8": pa.array([1], pa.uint8()),
    }


@pytest.mark.parametrize("kind", _kinds_of_one())
def test_edges_nodes_features_and_references_agree(
    tmp_path: Path, storage: Storage, kind: str
) -> None:
    column = _kinds_of_one()[kind]
    path = tmp_path / "n.parquet"
    columns = {"id": column, "src": column, "dst": column}
    write_parquet(path, **columns, x=[[1.0]], embedding=[[1.0]])
    uri = f"file://{path}"
    assert rows_of(read_all(storage, edge_input(path, "parquet"), "int64")) == [(1, 1)]
    table = NodeTable.model_validate({"uri": uri})
    (nodes,) = read_nodes(storage, table, "int64", *split_nodes(storage, table, ids="int64"))
    features = FeatureInput.model_validate({"uri": uri, "vectorColumn": "x"})
    splits = split_features(storage, features, ids="int64")
    (rows,) = read_features(storage, features, "int64", *splits)
    reference = read_reference(storage, split_reference(storage, uri, "int64"), "int64")
    assert nodes.ids.tolist() == rows.ids.tolist() == reference.ids.tolist() == [1]


def _row_1(message: str, path: Path) -> str:
    start = f"file://{path} row 1 (from 0): column 'src' (columns.source) "
    assert message.startswith(start), message
    return message.removeprefix(start)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pa.array([1.0, 2.5]), "is 2.5; ids stored as float64 must be whole numbers below 9007"),
        (pa.array([1.0, np.nan]), "is nan (a missing value, as pandas writes it); ids stored as"),
        (pa.array([1.0, np.inf]), "is inf; ids stored as float64 must be whole"),
        (pa.array([1.0, 2.0**53]), "is 9007199254740992.0; ids stored as float64 must be whole"),
        (pa.array([1.0, -(2.0**53)]), "is -9007199254740992.0; ids stored as float64"),
        (pa.array([1, 2**24], pa.float32()), "is 16777216.0; ids stored as float32 must be whole"),
        (pa.array([1, None], pa.float64()), "has no value (null)"),
        (
            pa.array([Decimal(1), Decimal(2**63)], pa.decimal128(38, 0)),
            "is 9223372036854775808; ids must be whole numbers from -2^63 to 2^63-1, correct the"
            " row, or write them as text and set ids: string",
        ),
        (pa.array([Decimal(1), Decimal("1.5")], pa.decimal128(38, 9)), "is 1.500000000; ids must"),
        (pa.array([Decimal(1), Decimal("1e-38")], pa.decimal256(76, 38)), "is 1E-38; ids must be"),
        (pa.array([1, 2**63], pa.uint64()), "is 9223372036854775808; ids must be below 2^63"),
    ],
)
def test_numbers_that_are_no_ids(
    tmp_path: Path, storage: Storage, kernels: str, column: Any, says: str
) -> None:
    path = tmp_path / "e.parquet"
    write_parquet(path, src=column, dst=[1, 1])
    message = refused(storage, edge_input(path, "parquet"), "int64")
    assert _row_1(message, path).startswith(says)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pa.array([b"a", b"\xff\x01"]), "is b'\\xff\\x01', whose byte 0 (from 0) is not UTF-8;"),
        (pa.array([b"a", b"b\0c"]), "is b'b\\x00c', bytes with a NUL, which are no text; write"),
        (pa.array([b"ab", b"\xfe\xff"], pa.binary(2)), "is b'\\xfe\\xff', whose byte 0"),
        (pa.array([b"a", None]), "has no value (null)"),
        (pa.array(["a", "x" * 70_000]), f"is '{'x' * 80}'..., 70000 bytes long; ids may have up"),
    ],
)
def test_bytes_that_are_no_ids(
    tmp_path: Path, storage: Storage, kernels: str, column: Any, says: str
) -> None:
    path = tmp_path / "e.parquet"
    write_parquet(path, src=column, dst=["a", "b"])
    message = refused(storage, edge_input(path, "parquet"), "string")
    assert _row_1(message, path).startswith(says)


@pytest.mark.parametrize(
    ("held", "shown"),
    [
        (pa.array([date(2026, 1, 1)]), "date32[day]"),
        (pa.array([1], pa.timestamp("us")), "timestamp[us]"),
        (pa.array([1], pa.duration("s")), "duration[s]"),
        (pa.array([True]), "bool"),
        (pa.array([[1]]), "list<element: int64>"),
        (pa.array([{"id": 1}]), "struct<id: int64>"),
    ],
)
def test_types_that_are_no_ids(tmp_path: Path, storage: Storage, held: Any, shown: str) -> None:
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table(both(held)), path)
    integers = "it must hold integers, or decimals or floats that are whole numbers"
    text = "it must hold strings, bytes of UTF-8 or UUIDs"
    for ids, wanted in (("int64", integers), ("string", text)):
        message = refused(storage, edge_input(path, "parquet"), ids)
        assert f"column 'src' (columns.source) holds {shown}; {wanted} (or set ids: " in message
        assert message.endswith("Name another column, or cast this one where it is written")


def test_text_and_numbers_stay_apart(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.parquet"
    write_parquet(path, src=["1"], dst=[1])
    assert "'src' (columns.source) holds string; it must hold integers" in refused(
        storage, edge_input(path, "parquet"), "int64"
    )
    assert "'dst' (columns.destination) holds int64; it must hold strings" in refused(
        storage, edge_input(path, "parquet"), "string"
    )


def test_an_object_without_rows_needs_no_type(tmp_path: Path, storage: Storage) -> None:
    """pandas writes a column of nothing without a type."""
    (tmp_path / "e").mkdir()
    pandas.DataFrame(both([])).astype(object).to_parquet(tmp_path / "e/a.parquet")
    write_parquet(tmp_path / "e/b.parquet", src=[1], dst=[2])
    edges = edge_input(tmp_path / "e", "parquet")
    assert len(split_edges(storage, edges, ids=("int64", "int64"))) == 1
    assert rows_of(read_all(storage, edges, "int64")) == [(1, 2)]
    write_parquet(tmp_path / "e/c.parquet", src=pa.nulls(1), dst=[2])
    assert "c.parquet row 0 (from 0): column 'src' (columns.source) has no value" in refused(
        storage, edges, "int64"
    )


@pytest.mark.parametrize("dtype", ["<f8", "<f4", "<f2", ">f8"])
def test_npy_of_floats(tmp_path: Path, storage: Storage, dtype: str) -> None:
    np.save(tmp_path / "e.npy", np.array([[1, 2], [3, 4]], dtype))
    edges = edge_input(tmp_path / "e.npy", "npy")
    assert rows_of(read_all(storage, edges, "int64")) == [(1, 2), (3, 4)]
    np.save(tmp_path / "e.npy", np.array([[1, 2], [np.nan, 4]], dtype))
    message = refused(storage, edges, "int64")
    assert "e.npy row 1 (from 0): column 0 (columns.source) is nan (a missing value" in message


def test_npy_of_other_types(tmp_path: Path, storage: Storage) -> None:
    edges = edge_input(tmp_path / "e.npy", "npy")
    for array, shown in (
        (np.zeros((2, 2), bool), "bool"),
        (np.zeros((2, 2), "M8[s]"), "datetime64[s]"),
        (np.zeros((2, 2), np.longdouble), "float128"),
    ):
        np.save(tmp_path / "e.npy", array)
        assert f"column 0 (columns.source) holds {shown}; it must hold integers" in refused(
            storage, edges, "int64"
        )
    np.savez(tmp_path / "e.npz", edges=np.zeros((5, 2)), weights=np.zeros(5))
    (tmp_path / "e.npz").rename(tmp_path / "e.npy")
    assert "e.npy holds several arrays: set key to one of 'edges', 'weights'" in refused(
        storage, edges, "int64"
    )


def csv_of(tmp_path: Path, text: str) -> Path:
    (tmp_path / "e.csv").write_text(text)
    return tmp_path / "e.csv"


def test_csv_of_floats_by_pandas(tmp_path: Path, storage: Storage) -> None:
    frame = pandas.DataFrame(both(pandas.Series([1, 2, 100, None])[:3]))
    path = csv_of(tmp_path, frame.to_csv(index=False))
    assert "1.0,1.0" in path.read_text()
    assert rows_of(read_all(storage, edge_input(path, "csv"), "int64")) == [(i, i) for i in IDS]


def test_csv_of_floats_by_numpy(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.csv"
    np.savetxt(path, np.array([[1, 2], [3, 2**52]]), delimiter=",")
    assert "1.000000000000000000e+00" in path.read_text()
    edges = edge_input(path, "csv", header=False)
    assert rows_of(read_all(storage, edges, "dense")) == [(1, 2), (3, 2**52)]


def test_csv_of_integers_beside_floats_is_exact(tmp_path: Path, storage: Storage) -> None:
    large = 2**53 + 1
    path = csv_of(tmp_path, f"src,dst\n1.0,{large}\n-2,{-(2**63)}\n+3e0,0\n")
    assert rows_of(read_all(storage, edge_input(path, "csv"), "int64")) == [
        (1, large),
        (-2, -(2**63)),
        (3, 0),
    ]


@pytest.mark.parametrize("bad", ["1.5", "nan", "inf", "9007199254740992.0", "1e300", "1.0.0"])
def test_csv_of_floats_that_are_no_ids(tmp_path: Path, storage: Storage, bad: str) -> None:
    path = csv_of(tmp_path, f"src,dst\n1.0,2.0\n{bad},2.0\n")
    message = refused(storage, edge_input(path, "csv"), "int64")
    assert f"line 3: column 'src' (columns.source) is '{bad}'; ids must be integers" in message
    path = csv_of(tmp_path, f"src,dst\n1,9007199254740993\n{bad},2.0\n")
    message = refused(storage, edge_input(path, "csv"), "int64")
    assert f"line 3: column 'src' (columns.source) is '{bad}'; ids must be integers" in message


def test_a_missing_id_among_floats_in_csv(tmp_path: Path, storage: Storage) -> None:
    path = csv_of(tmp_path, "src,dst\n1.0,2.0\n,2.0\n")
    message = refused(storage, edge_input(path, "csv"), "int64")
    assert "line 3: column 'src' (columns.source) has no value (null)" in message
