"""Edge lists: every bad one gets a message that says where, what, and what to do."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import ObjectMissing
from embertide.readers import text as read_text
from embertide.readers.edges import read_edges, split_edges
from embertide.storage.protocol import Storage
from tests.support.edge_files import (
    COMPRESS,
    DESTINATION,
    SOURCE,
    csv_text,
    edge_input,
    read_all,
    refused,
    write_parquet,
)


def test_missing_objects(tmp_path: Path, storage: Storage) -> None:
    with pytest.raises(ObjectMissing, match=r"none\.parquet"):
        split_edges(storage, edge_input(tmp_path / "none.parquet", "parquet"))


def test_missing_parquet_column(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "e.parquet", a=[1], b=[2])
    message = refused(storage, edge_input(tmp_path / "e.parquet", "parquet"))
    assert message == (
        f"file://{tmp_path}/e.parquet has no column 'src' (columns.source); its columns are "
        "'a', 'b'"
    )


@pytest.mark.parametrize("name", ["user.id", "id"])
def test_a_column_in_a_struct(tmp_path: Path, storage: Storage, name: str) -> None:
    write_parquet(tmp_path / "e.parquet", user=[{"id": 1}], dst=[2])
    edges = edge_input(tmp_path / "e.parquet", "parquet", columns={"source": name})
    assert refused(storage, edges).endswith(
        f"has no column {name!r} (columns.source); its columns are 'user', 'dst'. It is a field of"
        " the struct 'user': write it as a column of its own, in SQL SELECT user.id AS user_id, and"
        " name that"
    )


def test_several_columns_of_a_name(tmp_path: Path, storage: Storage) -> None:
    columns = [pa.array([1]), pa.array([2]), pa.array([3])]
    pq.write_table(pa.table(columns, names=["src", "dst", "src"]), tmp_path / "e.parquet")
    message = refused(storage, edge_input(tmp_path / "e.parquet", "parquet"))
    assert "has several columns 'src' (2), as after a join; rename all but one where" in message


def test_another_case(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "e.parquet", Src=[1], dst=[2])
    message = refused(storage, edge_input(tmp_path / "e.parquet", "parquet"))
    assert message.endswith("Is 'Src' meant, which has other case or blanks around it?")


def test_large_numbers_as_text(tmp_path: Path, storage: Storage) -> None:
    ids = pa.array([1, 2**63], pa.uint64())
    write_parquet(tmp_path / "e.parquet", src=ids, dst=ids)
    edges = edge_input(tmp_path / "e.parquet", "parquet")
    assert "CAST(id AS VARCHAR), and set ids: string" in refused(storage, edges, "int64")
    assert "integers below 2^63; larger ones: CAST(id AS VARCHAR)" in refused(
        storage, edges, "string"
    )


def test_column_of_the_wrong_type(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "e.parquet", src=["a"], dst=[1.5], w=["x"])
    edges = edge_input(tmp_path / "e.parquet", "parquet")
    assert (
        "column 'src' (columns.source) holds string; it must hold integers, or decimals"
        in refused(storage, edges)
    )
    assert "column 'dst' (columns.destination) holds double; it must hold strings" in refused(
        storage, edges, "string"
    )
    write_parquet(tmp_path / "e.parquet", src=[1], dst=[2], w=["x"])
    weighted = edge_input(tmp_path / "e.parquet", "parquet", columns={"weight": "w"})
    assert "column 'w' (columns.weight) holds string; it must hold numbers" in refused(
        storage, weighted
    )


@pytest.mark.parametrize("keep", [0, 3, 100, -1])
def test_truncated_parquet(tmp_path: Path, storage: Storage, keep: int) -> None:
    path = tmp_path / "e.parquet"
    write_parquet(path, src=SOURCE, dst=DESTINATION)
    path.write_bytes(path.read_bytes()[:keep])
    message = refused(storage, edge_input(path, "parquet"))
    assert message.startswith(f"file://{path} is not readable as parquet (")
    assert "truncated, damaged or in another format" in message


def test_damaged_parquet_page(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.parquet"
    write_parquet(path, 1000, src=SOURCE, dst=DESTINATION)
    data = bytearray(path.read_bytes())
    data[4:400] = b"\xff" * 396
    path.write_bytes(bytes(data))
    assert "is not readable as parquet (" in refused(storage, edge_input(path, "parquet"))


def test_null_in_parquet(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "e.parquet", 10, src=[1] * 25, dst=[1] * 23 + [None, 1])
    message = refused(storage, edge_input(tmp_path / "e.parquet", "parquet"), target=1, rows=4)
    assert message == (
        f"file://{tmp_path}/e.parquet row 23 (from 0): column 'dst' (columns.destination) has no "
        "value (null); fill it in or drop the row"
    )


def test_negative_dense_id(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "e.parquet", 10, src=[0] * 12 + [-7], dst=[0] * 13)
    message = refused(storage, edge_input(tmp_path / "e.parquet", "parquet"))
    assert "e.parquet row 12 (from 0): column 'src' (columns.source) is -7; dense ids" in message
    assert "must be 0 or more" in message


def test_dense_id_beyond_count(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "e.parquet", src=[0, 9], dst=[9, 10])
    edges = edge_input(tmp_path / "e.parquet", "parquet")
    (split,) = split_edges(storage, edges)
    (batch,) = read_edges(storage, edges, ("dense", "dense"), split, counts=(10, 10))
    sources, destinations = batch.beyond
    assert sources is None
    assert destinations is not None
    assert destinations.tolist() == [False, True]
    (batch,) = read_edges(storage, edges, ("dense", "dense"), split, counts=(10, 11))
    assert batch.beyond == (None, None)


def test_unsigned_id_beyond_int64(tmp_path: Path, storage: Storage) -> None:
    ids = pa.array([1, 2**63], pa.uint64())
    write_parquet(tmp_path / "e.parquet", src=ids, dst=ids)
    message = refused(storage, edge_input(tmp_path / "e.parquet", "parquet"), "int64")
    assert "row 1 (from 0): column 'src' (columns.source) is 9223372036854775808" in message


@pytest.mark.parametrize(("bad", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (1e300, "1e+300")])
def test_weight_that_is_not_finite(
    tmp_path: Path, storage: Storage, bad: float, shown: str
) -> None:
    write_parquet(tmp_path / "e.parquet", src=[1, 2], dst=[1, 2], w=[0.5, bad])
    edges = edge_input(tmp_path / "e.parquet", "parquet", columns={"weight": "w"})
    message = refused(storage, edges)
    assert f"row 1 (from 0): column 'w' (columns.weight) is {shown}; weights must be" in message


def bad_csv(
    tmp_path: Path, storage: Storage, body: str | bytes, ids: Any = "dense", **fields: Any
) -> str:
    """The message for a bad line 51 in the middle of a file that is read in many splits."""
    text = body.encode() if isinstance(body, str) else body
    good = b"1,2,0.5\n"
    (tmp_path / "e.csv").write_bytes(b"src,dst,w\n" + good * 49 + text + b"\n" + good * 50)
    edges = edge_input(tmp_path / "e.csv", "csv", columns={"weight": "w"}, **fields)
    message = refused(storage, edges, ids, target=100, rows=7)
    assert message.startswith(f"file://{tmp_path}/e.csv line 51: ")
    return message.split(": ", 1)[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,x7,1", "column 'dst' (columns.destination) is 'x7'; ids must be integers"),
        ("1.5,2,1", "column 'src' (columns.source) is '1.5'; ids must be integers"),
        ("1,99999999999999999999,1", "is '99999999999999999999'; ids must be integers from -2^63"),
        (",2,1", "column 'src' (columns.source) has no value (null)"),
        ("1,2,heavy", "column 'w' (columns.weight) is 'heavy'; it must be a number"),
        ("1,2,nan", "column 'w' (columns.weight) is nan; weights must be finite"),
        ("1,2,", "column 'w' (columns.weight) has no value (null)"),
        ("1,2", "has 2 fields, but the first line has 3: '1,2'; correct the line"),
        ("1,2,3,4", "has 4 fields, but the first line has 3: '1,2,3,4'; correct the line"),
        ("-3,2,1", "column 'src' (columns.source) is -3; dense ids must be 0 or more"),
        ('1,2,"0.5', "unterminated quoted field: '1,2,\"0.5'"),
        ("1,2,0.5\r1,2,0.5", "contains a carriage return; end lines with"),
    ],
)
def test_bad_csv_line(tmp_path: Path, storage: Storage, line: str, message: str) -> None:
    assert message in bad_csv(tmp_path, storage, line)


def test_csv_line_that_is_not_utf8(tmp_path: Path, storage: Storage) -> None:
    assert "is not UTF-8" in bad_csv(tmp_path, storage, b"a\xff,b,1", "string")


def test_empty_string_id_in_csv(tmp_path: Path, storage: Storage) -> None:
    assert "column 'dst' (columns.destination) has no value" in bad_csv(
        tmp_path, storage, 'a,"",1', "string"
    )


def test_quoted_line_end_is_found_whatever_the_cut(tmp_path: Path, storage: Storage) -> None:
    lines = ["src,dst,note"] + ["1,2,x"] * 40 + ['1,2,"two', 'lines"'] + ["1,2,x"] * 40
    path = tmp_path / "e.csv"
    path.write_text("\n".join(lines) + "\n")
    for target in range(5, 400, 31):
        message = refused(storage, edge_input(path, "csv"), target=target)
        assert "line 42: unterminated quoted field" in message


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_line_numbers_count_blank_lines_and_blocks(
    tmp_path: Path, storage: Storage, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_text, "BLOCK_BYTES", 64)
    text = "src,dst\n" + "1,2\n\n\r\n" * 50 + "1,-2\n"
    path = tmp_path / f"e.csv{suffix}"
    path.write_bytes(COMPRESS[suffix](text.encode()))
    assert f"e.csv{suffix} line 152: column 'dst'" in refused(storage, edge_input(path, "csv"))
    path.write_bytes(COMPRESS[suffix](text.replace("-2", "z").encode()))
    assert f"e.csv{suffix} line 152: column 'dst'" in refused(storage, edge_input(path, "csv"))


def test_missing_csv_column(tmp_path: Path, storage: Storage) -> None:
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")
    assert refused(storage, edge_input(tmp_path / "e.csv", "csv")) == (
        f"file://{tmp_path}/e.csv has no column 'src' (columns.source); the columns in its first "
        "line are 'a', 'b' (wrong delimiter? no header? then set header: false)"
    )
    (tmp_path / "e.csv").write_text("src,src,dst\n1,2,3\n")
    assert "has several columns 'src'" in refused(storage, edge_input(tmp_path / "e.csv", "csv"))
    (tmp_path / "e.csv").write_text("")
    assert "has no header line" in refused(storage, edge_input(tmp_path / "e.csv", "csv"))
    headless = edge_input(tmp_path / "e.csv", "csv", header=False)
    (tmp_path / "e.csv").write_text("\n1,2\n")
    assert "line 1 is empty, so the columns cannot be counted" in refused(storage, headless)
    (tmp_path / "e.csv").write_text('src,"dst\n1,2\n')
    named = edge_input(tmp_path / "e.csv", "csv")
    assert "line 1: unterminated quoted field" in refused(storage, named)
    (tmp_path / "e.csv").write_text("1\n")
    assert "the lines have 1 fields, 0 to 0; correct the index" in refused(storage, headless)


def packed(pack: Callable[[Path, Path], None], folder: Path) -> bytes:
    """An archive of one csv."""
    (folder / "in.csv").write_bytes(b"src,dst\n1,2\n")
    pack(folder / "archive", folder / "in.csv")
    return (folder / "archive").read_bytes()


def tarred(archive: Path, path: Path) -> None:
    with tarfile.open(archive, "w") as file:
        file.add(path, "e.csv")


def zipped(archive: Path, path: Path) -> None:
    with zipfile.ZipFile(archive, "w") as file:
        file.write(path, "e.csv")


_UNPACKED = "decompress it, or compress csv and tsv as .gz or .zst, and name it so"
_TAKEN_OUT = "unpack it, and name the file in it that is meant"
CSV = b"src,dst\n" + b"1,2\n" * 20
_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"
_ANNEX = b"/annex/objects/SHA256E-s12--4d7a.parquet\n"
KINDS: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "gzip": (lambda _: gzip.compress(CSV), "is gzip, not {}; correct format or name"),
    "zstd": (
        lambda _: pa.compress(CSV, "zstd", asbytes=True),
        "is zstd, not {}; correct format or name",
    ),
    "bzip2": (lambda _: bz2.compress(CSV), f"is compressed by bzip2, not {{}}; {_UNPACKED}"),
    "empty bzip2": (lambda _: bz2.compress(b""), "is compressed by bzip2, not {}"),
    "xz": (lambda _: lzma.compress(CSV), f"is compressed by xz, not {{}}; {_UNPACKED}"),
    "lzma": (lambda _: lzma.compress(CSV, lzma.FORMAT_ALONE), "is compressed by lzma, not {}"),
    "lz4": (lambda _: bytes(pa.compress(CSV, "lz4")), "is compressed by lz4, not {}"),
    "snappy": (lambda _: b"\xff\x06\0\0sNaPpY" + CSV, "is compressed by snappy, not {}"),
    "zip": (lambda folder: packed(zipped, folder), f"is a zip archive, not {{}}; {_TAKEN_OUT}"),
    "7z": (lambda _: b"7z\xbc\xaf\x27\x1c\0\x04" + CSV, "is a 7z archive, not {}"),
    "tar": (lambda folder: packed(tarred, folder), f"is a tar archive, not {{}}; {_TAKEN_OUT}"),
    "Git LFS": (
        lambda _: _LFS,
        "is a pointer of Git LFS, in place of the data that it stands for, not {}; git lfs pull",
    ),
    "git-annex": (lambda _: _ANNEX, "is a pointer of git-annex, in place of the data"),
    "a link of git-annex": (
        lambda _: b"../.git/annex/objects/Kx/wq/SHA256E-s12--4d.csv/SHA256E-s12--4d.csv",
        "is a pointer of git-annex, in place of the data",
    ),
    "a web page": (lambda _: b"<!DOCTYPE html>\n<html>", "is a web page or XML, not {}"),
    "ORC": (lambda _: b"ORC\x01\x03\0\0", "is ORC, not {}; write the data as parquet, csv"),
    "feather": (lambda _: b"ARROW1\0\0\xff\xff", "is Arrow IPC (feather), not {}"),
    "encrypted": (
        lambda _: b"PARE\x2c\x01\0\0" + bytes(range(60)) + b"PARE",
        "is encrypted parquet, not {}; write a copy without encryption",
    ),
}
"""What a file may be instead of what the manifest says, and how the message begins."""


_RIGHT = [("csv.gz", "gzip")]


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        (form, kind)
        for form in ("csv", "parquet", "npy", "csv.gz")
        for kind in KINDS
        if (form, kind) not in _RIGHT
    ],
)
def test_another_kind_of_file(tmp_path: Path, storage: Storage, form: str, kind: str) -> None:
    make, message = KINDS[kind]
    path = tmp_path / f"e.{form}"
    path.write_bytes(make(tmp_path))
    wanted = {"csv": "plain csv or tsv", "csv.gz": "gzip, as its name says"}.get(form, form)
    refusal = refused(storage, edge_input(path, form.removesuffix(".gz")))
    assert message.format(wanted) in refusal


@pytest.mark.parametrize("form", ["parquet", "npy"])
def test_another_format_called_csv(tmp_path: Path, storage: Storage, form: str) -> None:
    path = tmp_path / "e.csv"
    if form == "parquet":
        write_parquet(path, src=SOURCE, dst=DESTINATION)
    else:
        with path.open("wb") as file:
            np.save(file, SOURCE)
    assert f"is {form}, not plain csv or tsv" in refused(storage, edge_input(path, "csv"))


@pytest.mark.parametrize("name", ["PARENT", "PAR1", "ORC_id", "BZh", "ARROW1", "outs", "7z"])
def test_names_of_columns_that_begin_like_a_format(
    tmp_path: Path, storage: Storage, name: str
) -> None:
    path = tmp_path / "e.csv"
    path.write_text(f"{name},dst\n1,2\n")
    edges = edge_input(path, "csv", columns={"source": name})
    assert [len(batch) for batch in read_all(storage, edges)] == [1]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_compression(tmp_path: Path, storage: Storage, suffix: str) -> None:
    path = tmp_path / f"e.csv{suffix}"
    whole = COMPRESS[suffix](csv_text().encode())
    path.write_bytes(whole[:-20])
    assert "cannot be decompressed as" in refused(storage, edge_input(path, "csv"))
    path.write_text("src,dst\n1,2\n")
    assert "or its name ends in a suffix" in refused(storage, edge_input(path, "csv"))


def bad_npy(tmp_path: Path, storage: Storage, array: Any, **columns: int) -> str:
    np.save(tmp_path / "e.npy", array)
    return refused(storage, edge_input(tmp_path / "e.npy", "npy", columns=columns), "int64")


def test_bad_npy(tmp_path: Path, storage: Storage) -> None:
    two = np.zeros((2, 50), np.int64)
    assert "has shape [2, 50]; an edge list is [edges, 2]" in bad_npy(tmp_path, storage, two)
    assert "has no column 1 (columns.destination): its shape is [7]" in bad_npy(
        tmp_path, storage, np.zeros(7, np.int64)
    )
    assert "has no column 2 (columns.weight)" in bad_npy(tmp_path, storage, two.T, weight=2)
    assert "column 0 (columns.source) holds <U1; it must hold integers, or floats" in bad_npy(
        tmp_path, storage, two.T.astype("U1")
    )
    halves = np.array([[1, 2, 3], [1, 2.5, 3]])
    assert (
        "row 1 (from 0): column 1 (columns.destination) is 2.5; ids stored as float64"
        in bad_npy(tmp_path, storage, halves, weight=2)
    )
    large = np.array([[1, 2**24 + 2, 3]], np.float32)
    assert "must be whole numbers below 16777216" in bad_npy(tmp_path, storage, large, weight=2)
    assert "must be a list of rows" in bad_npy(tmp_path, storage, np.zeros((2, 2, 2), int))


def test_npy_of_python_objects_is_never_loaded(tmp_path: Path, storage: Storage) -> None:
    np.save(tmp_path / "e.npy", np.array([[1, "a"]], object), allow_pickle=True)
    message = refused(storage, edge_input(tmp_path / "e.npy", "npy"))
    assert "holds Python objects (pickle), which are never loaded" in message


def test_damaged_npy(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.npy"
    np.save(path, np.zeros((10, 2), np.int64))
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    assert "is truncated: an array [10, 2] of int64 takes 288 bytes, the object has 280" in refused(
        storage, edge_input(path, "npy")
    )
    path.write_bytes(whole + b"x")
    assert "has bytes after its end" in refused(storage, edge_input(path, "npy"))
    for data in (b"", whole[:20], b"src,dst\n1,2\n", np.arange(20.0).tobytes()):
        path.write_bytes(data)
        message = refused(storage, edge_input(path, "npy"))
        assert "is not readable as npy (" in message
        assert "(the file of a numpy.memmap is plain values, without type and shape)" in message


@pytest.mark.tier(2)
def test_parquet_that_arrow_has_no_types_for(tmp_path: Path, storage: Storage) -> None:
    import polars

    ids = polars.Series([1, 2], dtype=polars.Int128)
    polars.DataFrame({"src": ids, "dst": ids}).write_parquet(tmp_path / "e.parquet")
    message = refused(storage, edge_input(tmp_path / "e.parquet", "parquet"), "int64")
    assert "a column holds integers of 128 bits (polars' Int128): cast them" in message
