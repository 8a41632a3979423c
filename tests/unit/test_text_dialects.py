"""csv as people write it: quotes, escapes, comments, encodings, decimal commas, and what hints."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from embertide.io.readers import text as read_text
from embertide.io.storage.protocol import Storage
from tests.support.edge_files import COMPRESS, edge_input, read_all, rows_of

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
    "escapes within quotes": ({"escapechar": "\\", "doublequote": False}, {"escape": "\\"}),
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


@pytest.mark.tier(2)
def test_polars(tmp_path: Path, storage: Storage) -> None:
    import polars

    frame = polars.DataFrame(ROWS, schema=["src", "dst", "w"], orient="row")
    frame.write_csv(tmp_path / "e.csv", separator="|", quote_char="'")
    found = read(storage, tmp_path / "e.csv", delimiter="|", dialect={"quote": "'"})
    assert found == ROWS
