"""csv as people write it: quotes, escapes, comments, encodings, decimal commas, and what hints."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.readers import text as read_text
from embertide.storage.protocol import Storage
from tests.support.edge_files import COMPRESS, edge_input, read_all, refused, rows_of

ROWS = [("café", "b,c", 0.5), ('say "hi"', "a;b", -1.25), ("it's", "x\\y", 3.0)]


def read(storage: Storage, path: Path, **fields: Any) -> list[tuple[Any, ...]]:
    edges = edge_input(path, "csv", columns={"weight": "w"}, **fields)
    return rows_of(read_all(storage, edges, "string", target=30, rows=2))


def written(**options: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", **options)
    writer.writerow(("src", "dst", "w"))
    writer.writerows(ROWS)
    return text.getvalue()


QUOTES = {
    "double quotes": ({}, {}),
    "single quotes": ({"quotechar": "'"}, {"quote": "'"}),
    "all quoted": ({"quoting": csv.QUOTE_ALL}, {}),
    "escapes within quotes": (
        {"escapechar": "\\", "doublequote": False},
        {"escape": "\\"},
    ),
    "no quotes but escapes": (
        {"quoting": csv.QUOTE_NONE, "escapechar": "\\", "quotechar": None},
        {"quote": "", "escape": "\\"},
    ),
}


@pytest.mark.parametrize("kind", QUOTES)
@pytest.mark.parametrize("block", [40, 4 << 20])
def test_quotes_and_escapes(
    tmp_path: Path, storage: Storage, kind: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_text, "BLOCK_BYTES", block)
    options, dialect = QUOTES[kind]
    (tmp_path / "e.csv").write_text(written(**options))
    assert read(storage, tmp_path / "e.csv", dialect=dialect) == ROWS


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "latin-1", "windows-1252", "utf-8"]
)
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_encodings(tmp_path: Path, storage: Storage, encoding: str, suffix: str) -> None:
    path = tmp_path / f"e.csv{suffix}"
    path.write_bytes(COMPRESS[suffix](written().encode(encoding)))
    assert read(storage, path, dialect={"encoding": encoding}) == ROWS


def test_a_large_file_in_another_encoding(tmp_path: Path, storage: Storage) -> None:
    names = [f"n{i}é" for i in range(300_000)]
    text = "src,dst\n" + "".join(f"{name},{name}\n" for name in names)
    (tmp_path / "e.csv").write_text(text, encoding="utf-16")
    edges = edge_input(tmp_path / "e.csv", "csv", dialect={"encoding": "utf-16"})
    rows = rows_of(read_all(storage, edges, "string", rows=1 << 18))
    assert rows == [(name, name) for name in names]


def test_what_is_not_of_the_encoding(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.csv"
    path.write_bytes(written().encode("utf-16")[:-1])
    edges = edge_input(path, "csv", dialect={"encoding": "utf-16"})
    message = refused(storage, edges, "string")
    assert f"file://{path} is not utf-16 (dialect.encoding; " in message
    assert message.endswith("correct the encoding, or convert the file")


def test_line_numbers_in_another_encoding(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.csv"
    path.write_text("src,dst\n" + "1,2\n" * 70 + "1,x\n", encoding="utf-16")
    edges = edge_input(path, "csv", dialect={"encoding": "utf-16"})
    assert "e.csv line 72: column 'dst' (columns.destination) is 'x'" in refused(storage, edges)


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("target", [7, 1 << 20])
def test_comments(tmp_path: Path, storage: Storage, header: bool, target: int) -> None:
    lines = ["# made by hand, twice", "#", *(["src,dst"] if header else []), "1,2", "# x,y", "3,4"]
    path = tmp_path / "e.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode())
    edges = edge_input(path, "csv", header=header, dialect={"comment": "#"})
    assert rows_of(read_all(storage, edges, target=target)) == [(1, 2), (3, 4)]
    path.write_text("\n".join([*lines, "5,y"]))
    message = refused(storage, edges, target=target)
    assert f"e.csv line {len(lines) + 1}: column" in message
    path.write_text("\n".join([*lines, "5,-6"]))
    message = refused(storage, edges, target=target)
    assert f"e.csv line {len(lines) + 1}: column" in message


def test_an_edge_list_of_snap(tmp_path: Path, storage: Storage) -> None:
    text = "# Directed graph: wiki\n# Nodes: 3 Edges: 2\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n"
    (tmp_path / "e.txt").write_text(text)
    edges = edge_input(tmp_path / "e.txt", "tsv", header=False, dialect={"comment": "#"})
    assert rows_of(read_all(storage, edges)) == [(0, 1), (1, 2)]


def test_a_header_of_numpy(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.txt"
    np.savetxt(path, np.array([[0, 1], [1, 2]]), header="src dst")
    edges = edge_input(path, "csv", header=False, delimiter=" ", dialect={"comment": "#"})
    assert rows_of(read_all(storage, edges)) == [(0, 1), (1, 2)]


def test_decimal_commas(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.csv"
    path.write_text("src;dst;w\n1,0;3,0;0,5\n2,0;4,0;-1,25\n")  # As pandas writes them.
    given = {"delimiter": ";", "dialect": {"decimal": ","}, "columns": {"weight": "w"}}
    edges = edge_input(path, "csv", **given)
    assert rows_of(read_all(storage, edges)) == [(1, 3, 0.5), (2, 4, -1.25)]
    path.write_text("src;dst;w\n1;2;0.5\n")
    assert "line 2: column 'w' (columns.weight) is '0.5'; it must be a number" in refused(
        storage, edges
    )
    path.write_text(f"src;dst;w\n1,0;{2**53 + 1};1\n")
    assert rows_of(read_all(storage, edges)) == [(1, 2**53 + 1, 1.0)]


@pytest.mark.tier(2)
def test_polars(tmp_path: Path, storage: Storage) -> None:
    import polars

    frame = polars.DataFrame(ROWS, schema=["src", "dst", "w"], orient="row")
    frame.write_csv(tmp_path / "e.csv", separator="|", quote_char="'")
    found = read(storage, tmp_path / "e.csv", delimiter="|", dialect={"quote": "'"})
    assert found == ROWS


@pytest.mark.parametrize("header", [True, False])
def test_a_first_line_of_long_fields(tmp_path: Path, storage: Storage, header: bool) -> None:
    note = "n" * 200_000
    first = f"src,dst,{note}\n" if header else f"1,2,{note}\n"
    (tmp_path / "e.csv").write_text(f"{first}1,2,{note}\n")
    edges = edge_input(tmp_path / "e.csv", "csv", header=header)
    assert rows_of(read_all(storage, edges)) == [(1, 2)] * (2 - header)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("zeros", [1, 512, 1 << 20])
def test_zeros_after_gzip(tmp_path: Path, storage: Storage, zeros: int, encoding: str) -> None:
    """As tapes and some uploads pad; also between members, as after joining such files."""
    member = gzip.compress("src,dst\n".encode(encoding)) + bytes(zeros)
    rest = gzip.compress("1,2\n3,4\n".encode(encoding)[2 * (encoding == "utf-16") :])
    (tmp_path / "e.csv.gz").write_bytes(member + rest + bytes(zeros))
    edges = edge_input(tmp_path / "e.csv.gz", "csv", dialect={"encoding": encoding})
    assert rows_of(read_all(storage, edges)) == [(1, 2), (3, 4)]


@pytest.mark.parametrize("damage", [b"\0" * 9 + b"x", b"x", b"\x1f\x8b\x08"])
def test_anything_else_after_gzip(tmp_path: Path, storage: Storage, damage: bytes) -> None:
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(b"src,dst\n1,2\n") + damage)
    assert "cannot be decompressed as gzip" in refused(
        storage, edge_input(tmp_path / "e.csv.gz", "csv")
    )
