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
from embertide.spec.edges import EdgeInput
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


HINTS = {
    "semicolons": ("src;dst;w\n1;2;1\n", {}, "it looks like semicolons: write delimiter: ';'"),
    "tabs": ("src\tdst\tw\n1\t2\t1\n", {}, "it looks like tabs: write format: tsv"),
    "bars": ("src|dst|w\n1|2|1\n", {}, "it looks like bars: write delimiter: '|'"),
    "commas": ("src,dst,w\n", {"delimiter": ";"}, "it looks like commas: write delimiter: ','"),
    "no header": (
        "1;2;1\n",
        {"header": False, "columns": {"weight": 2}},
        "it looks like semicolons: write delimiter: ';'",
    ),
    "a comment first": (
        "# made by me, today\nsrc,dst,w\n1,2,3\n",
        {},
        "it looks like a comment: write dialect: {comment: '#'}",
    ),
    "a comment later": (
        "src,dst,w\n# end\n",
        {},
        "it looks like a comment: write dialect: {comment: '#'}",
    ),
    "a decimal comma": (
        "src;dst;w\n1;2;0,5\n",
        {"delimiter": ";"},
        "it looks like a decimal comma: write dialect: {decimal: ','}",
    ),
    "a thousands separator in an id": (
        'src,dst,w\n"1,234",2,1\n',
        {},
        "it has thousands separators: write numbers without them",
    ),
    "a point for thousands in an id": (
        "src;dst;w\n1.234;2;1\n",
        {"delimiter": ";", "dialect": {"decimal": ","}},
        "it has thousands separators: write numbers without them",
    ),
    "a thousands separator or a decimal comma": (
        'src,dst,w\n1,2,"1,234"\n',
        {},
        "it has a thousands separator (write numbers without it) or a decimal comma (write dialect:"
        " {decimal: ','})",
    ),
    "thousands separators in a weight": (
        'src,dst,w\n1,2,"1,234,567.5"\n',
        {},
        "it has thousands separators: write numbers without them",
    ),
    "Swiss thousands": ("src,dst,w\n1,2,1'234.5\n", {}, "it has thousands separators"),
    "digits that are lost": (
        "src,dst,w\n1.25018E+18,2,1\n",
        {"ids": "int64"},
        "it was rounded before it was written, as spreadsheets do; its other digits are lost: write"
        " ids as whole numbers, or as text",
    ),
    "a header within the file": (
        "src,dst,w\n1,2,1\nsrc,dst,w\n3,4,1\n",
        {},
        "line 3: column 'src' (columns.source) is 'src'; the name of the column: a header within"
        " the file, as where files were joined; remove that line",
    ),
    "a missing value": (
        "src,dst,w\nNULL,2,1\n",
        {},
        "it looks like a missing value: fill it in, or drop the line",
    ),
    "backslashes before quotes": (
        'src,dst,w\n"a\\",b",2,1\n',
        {"ids": "string"},
        "it looks like backslashes before quotes: write dialect: {escape: '\\\\'}",
    ),
    "blanks around a name": (
        "src, dst,w\n1,2,1\n",
        {},
        "Is ' dst' meant, which has other case or blanks around it?",
    ),
    "single quotes": (
        "src,dst,w\n'1','2',1\n",
        {},
        'it looks like a quote: write dialect: {quote: "\'"}',
    ),
    "a quote that is none": (
        'src,dst,w\n"1,2,1\n',
        {},
        "unterminated quoted field",
    ),
    "carriage returns alone": (
        "src,dst,w\r1,2,1\r",
        {},
        "line 1: contains a carriage return; end lines with \\n or \\r\\n (where all end with"
        " carriage returns alone: tr '\\r' '\\n')",
    ),
    "carriage returns alone, without a header": (
        "1,2,1\r3,4,1\r",
        {"header": False, "columns": {"weight": 2}},
        "line 1: contains a carriage return",
    ),
    "a carriage return in the header": (
        "src,dst,w,no\rte\n1,2,1,a\n",
        {},
        "line 1: contains a carriage return",
    ),
    "a quoted carriage return in the header": (
        'src,dst,w,"no\rte"\n1,2,1,a\n',
        {},
        "line 1: contains a carriage return",
    ),
    "a name of a column without an end": (
        f"src,dst,{'n' * 200_000}\n1,2,1\n",
        {},
        f"has no column 'w' (columns.weight); the columns in its first line are 'src', 'dst', "
        f"'{'n' * 60} ...' (wrong delimiter?",
    ),
    "an id of too many digits": (
        f"src,dst,w\n{'1' * 5000},2,1\n",
        {"ids": "int64"},
        "ids must be integers from -2^63 to 2^63-1",
    ),
    "UTF-16": (
        "src,dst,w\n1,2,1\n".encode("utf-16"),
        {},
        "the file is UTF-16 (write dialect: {encoding: utf-16})",
    ),
    "Latin-1 in the header": (
        "src,dst,w,é\n1,2,1,1\n".encode("latin-1"),
        {},
        "state the encoding, often dialect: {encoding: latin-1} or windows-1252",
    ),
    "Latin-1": (
        "src,dst,w\né,2,1\n".encode("latin-1"),
        {"ids": "string"},
        "state the encoding, often dialect: {encoding: latin-1} or windows-1252",
    ),
}


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


@pytest.mark.parametrize("kind", HINTS)
def test_hints(tmp_path: Path, storage: Storage, kind: str) -> None:
    text, fields, hint = HINTS[kind]
    path = tmp_path / "e.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    given = {"columns": {"weight": "w"}} | fields
    ids = given.pop("ids", "dense")
    assert hint in refused(storage, edge_input(path, "csv", **given), ids)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"format": "parquet", "dialect": {}}, "only csv and tsv have one, not parquet"),
        ({"dialect": {"decimal": ","}}, "is ',', the same as the delimiter; must differ"),
        ({"delimiter": "#", "dialect": {"comment": "#"}}, "is '#', the same as the delimiter"),
        ({"format": "tsv", "dialect": {"quote": "\t"}}, "the same as the delimiter; must differ"),
        ({"dialect": {"quote": "é"}}, "must be of ASCII characters that end no line"),
        ({"dialect": {"comment": "\n"}}, "must be of ASCII characters that end no line"),
        ({"dialect": {"escape": '"'}}, "the same as quote; a quote within quotes is doubled"),
        ({"dialect": {"quote": "''"}}, "at most 1 character"),
        ({"dialect": {"encoding": "utf-7"}}, "should be 'utf-8', 'utf-16', 'utf-16-le'"),
    ],
)
def test_dialects_that_no_file_has(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match="dialect") as caught:
        EdgeInput.model_validate({"uri": "file:///e", "format": "csv"} | fields)
    assert problem in str(caught.value)
