"""Edges and features: every bad file gets a message that says where, what, and what to do.

Most of them and what is said of them are ``tests/expected/readers.txt``.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

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
from tests.support.expected import Expected, inputs
from tests.support.feature_files import feature_input
from tests.support.feature_files import refused as features_refused

# Files that are written as the cases say


CASES = inputs("readers.txt")
FILLED = {"{good}\n": "1,2,0.5\n" * 49, "{name}": "n" * 200_000, "{digits}": "1" * 5000}
"""What stands in texts for lines without a mistake, so that the one with it is line 51, and for
what is long."""

TYPES = {
    "uint64": pa.uint64(),
    "floats": pa.list_(pa.float64()),
    "two floats": pa.list_(pa.float32(), 2),
}


@dataclass
class Refusal:
    """A file, how it is given as edges or features, and how it is read."""

    csv: str | None = None
    parquet: dict[str, list[Any]] | None = None
    npy: list[Any] | None = None
    encoding: str = "utf-8"
    types: dict[str, str] = field(default_factory=dict)
    dtype: str | None = None
    group: int = 10
    edges: dict[str, Any] = field(default_factory=dict)
    features: dict[str, Any] | None = None
    ids: str = "dense"
    read: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> tuple[Path, str]:
        if self.csv is not None:
            text = self.csv
            for mark, filled in FILLED.items():
                text = text.replace(mark, filled)
            (folder / "x.csv").write_text(text, self.encoding, newline="")
            return folder / "x.csv", "csv"
        if self.parquet is not None:
            of = {name: TYPES[kind] for name, kind in self.types.items()}
            columns = {name: pa.array(held, of.get(name)) for name, held in self.parquet.items()}
            write_parquet(folder / "x.parquet", self.group, **columns)
            return folder / "x.parquet", "parquet"
        np.save(folder / "x.npy", np.array(self.npy, self.dtype))
        return folder / "x.npy", "npy"


@pytest.mark.tier(1)
@pytest.mark.parametrize("name", CASES)
def test_what_is_refused(name: str, tmp_path: Path, storage: Storage, expected: Expected) -> None:
    case = Refusal(**yaml.safe_load(CASES[name]))
    path, form = case.write(tmp_path)
    if case.features is None:
        found = refused(storage, edge_input(path, form, **case.edges), case.ids, **case.read)
    else:
        features = feature_input(path, form, **case.features)
        found = features_refused(storage, features, case.ids, **case.read)
    found = found.replace(str(tmp_path), "<folder>")
    for mark, filled in FILLED.items():
        found = found.replace(filled, mark)
    expected.check("readers.txt", name, f"{CASES[name]}--\n{found}", CASES)


# Other files


def test_missing_objects(tmp_path: Path, storage: Storage) -> None:
    with pytest.raises(ObjectMissing, match=r"none\.parquet"):
        split_edges(storage, edge_input(tmp_path / "none.parquet", "parquet"))


def test_several_columns_of_a_name(tmp_path: Path, storage: Storage) -> None:
    columns = [pa.array([1]), pa.array([2]), pa.array([3])]
    pq.write_table(pa.table(columns, names=["src", "dst", "src"]), tmp_path / "e.parquet")
    message = refused(storage, edge_input(tmp_path / "e.parquet", "parquet"))
    assert "has several columns 'src' (2), as after a join; rename all but one where" in message


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
