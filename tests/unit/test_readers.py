"""Files of edges, features, nodes and references: what is read of each, or a message that says
where a mistake is, what, and what to do.

Most of them and what is found are ``tests/expected/readers.txt``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from embertide.errors import EmbertideError, InputError, ObjectMissing
from embertide.io.readers import text as read_text
from embertide.io.readers.edges import edge_feature_width, read_edges, split_edges
from embertide.io.readers.nodes import read_nodes, split_nodes
from embertide.io.readers.reference import read_reference, split_reference
from embertide.io.storage.protocol import Storage
from embertide.kernels import native
from embertide.spec.manifest import NodeTable
from tests.support.edge_files import (
    COMPRESS,
    DESTINATION,
    SOURCE,
    csv_text,
    edge_input,
    read_all,
    refused,
    rows_of,
    write_parquet,
)
from tests.support.expected import Expected, inputs
from tests.support.feature_files import feature_input
from tests.support.feature_files import read_all as read_features

CASES = inputs("readers.txt")
FILLED = {"{good}\n": "1,2,0.5\n" * 49, "{name}": "n" * 200_000, "{digits}": "1" * 5000}
"""What stands in texts for lines without a mistake, so that the one with it is line 51, and for
what is long."""
FORMS = {"parquet": "parquet", "npy": "npy", "tsv": "tsv"}
"""Format of a file by the end of its name; csv of others."""


def arrow_type(text: str) -> pa.DataType:
    """A type as a call of pyarrow, such as ``list_(float32(), 2)``."""
    return eval(text, {**vars(pa)})


def column(held: list[Any], kind: str | None) -> pa.Array:
    """Values of a case; of ``A as B`` the bytes of type A are called B."""
    if kind is None:
        return pa.array(held)
    first, _, shown = kind.partition(" as ")
    of = arrow_type(first)
    if pa.types.is_binary(of) or pa.types.is_fixed_size_binary(of):
        held = [value and value.encode("latin-1") for value in held]
    elif pa.types.is_decimal(of):
        held = [Decimal(value) for value in held]
    array = pa.array(held, of)
    return array.view(pa.string()).cast(arrow_type(shown)) if shown else array


@dataclass
class File:
    """What a file holds: text, bytes, columns or an array."""

    csv: str | None = None
    encoding: str = "utf-8"
    hex: str | None = None
    parquet: dict[str, list[Any]] | None = None
    types: dict[str, str] = field(default_factory=dict)
    group: int = 10
    npy: Any = None
    dtype: str | None = None

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.hex is not None:
            path.write_bytes(bytes.fromhex(self.hex))
        elif self.csv is not None:
            text = self.csv
            for mark, filled in FILLED.items():
                text = text.replace(mark, filled)
            path.write_text(text, self.encoding, newline="")
        elif self.parquet is not None:
            columns = {name: column(of, self.types.get(name)) for name, of in self.parquet.items()}
            write_parquet(path, self.group, **columns)
        else:
            with path.open("wb") as file:
                np.save(file, np.array(self.npy, self.dtype))


@dataclass
class Case(File):
    """One file of some names, or several in a folder, and how they are read: as edges, unless
    ``features``, ``nodes`` or ``reference`` is there. ``<folder>`` is where they are."""

    names: list[str] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: dict[str, Any] = field(default_factory=dict)
    features: dict[str, Any] | None = None
    nodes: dict[str, Any] | None = None
    reference: bool = False
    ids: str = "dense"
    read: dict[str, Any] | None = None

    def outcomes(self, folder: Path, storage: Storage) -> Iterator[str]:
        """What is found in the files of each name, however much is read at a time."""
        for name, of in self.files.items():
            File(**of).write(folder / name)
        single = "csv" if self.csv is not None else "parquet" if self.parquet else "npy"
        for name in self.names or ([""] if self.files else [f"x.{single}"]):
            if not self.files:
                self.write(folder / name)
            path = folder / name
            small = {"batch": 12} if self.features is not None else {"rows": 2}
            parts = [self.read] if self.read is not None else [{}, {"target": 1, **small}]
            found = {self.outcome(storage, path, **part) for part in parts}
            assert len(found) == 1, found
            yield from found

    def outcome(self, storage: Storage, path: Path, **part: int) -> str:
        """Rows, one a line, or why there are none."""
        form = FORMS.get(path.name.rpartition(".")[2], "csv")
        uri = path.as_uri()
        try:
            if self.features is not None:
                features = feature_input(path, **{"form": form, **self.features})
                ids, values = read_features(storage, features, self.ids, **part)
                rows: Any = zip(ids, values.tolist(), strict=True)
            elif self.reference:
                found = read_reference(storage, split_reference(storage, uri, self.ids), self.ids)
                rows = zip(found.ids.tolist(), found.values.tolist(), strict=True)
            elif self.nodes is not None:
                table = NodeTable.model_validate({"uri": uri, **self.nodes})
                rows = [
                    name
                    for split in split_nodes(storage, table, ids=self.ids)
                    for batch in read_nodes(storage, table, self.ids, split)
                    for name in batch.ids.tolist()
                ]
            else:
                edges = edge_input(path, **{"form": form, **self.edges})
                batches = list(read_all(storage, edges, self.ids, **part))
                rows = rows_of(batches)
                given = [row for of in batches if of.features is not None for row in of.features]
                rows = (
                    [(*row, own.tolist()) for row, own in zip(rows, given, strict=True)]
                    if given
                    else rows
                )
        except EmbertideError as error:
            return str(error)
        return "\n".join(map(str, rows)) or "no rows"


@pytest.mark.tier(1)
@pytest.mark.parametrize("name", CASES)
def test_what_is_read_or_refused(
    name: str, tmp_path: Path, storage: Storage, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = CASES[name].replace("<folder>", str(tmp_path))
    found = list(Case(**yaml.safe_load(given)).outcomes(tmp_path, storage))
    monkeypatch.setattr(native, "lib", None)
    assert list(Case(**yaml.safe_load(given)).outcomes(tmp_path, storage)) == found
    text = "\n".join(dict.fromkeys(found)).replace(str(tmp_path), "<folder>")
    for mark, filled in FILLED.items():
        text = text.replace(filled, mark)
    expected.check("readers.txt", name, f"{CASES[name]}--\n{text}", CASES)


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


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_compression(tmp_path: Path, storage: Storage, suffix: str) -> None:
    path = tmp_path / f"e.csv{suffix}"
    whole = COMPRESS[suffix](csv_text().encode())
    path.write_bytes(whole[:-20])
    assert "cannot be decompressed as" in refused(storage, edge_input(path, "csv"))
    path.write_text("src,dst\n1,2\n")
    assert "or its name ends in a suffix" in refused(storage, edge_input(path, "csv"))


@pytest.mark.tier(2)
def test_parquet_that_arrow_has_no_types_for(tmp_path: Path, storage: Storage) -> None:
    import polars

    ids = polars.Series([1, 2], dtype=polars.Int128)
    polars.DataFrame({"src": ids, "dst": ids}).write_parquet(tmp_path / "e.parquet")
    message = refused(storage, edge_input(tmp_path / "e.parquet", "parquet"), "int64")
    assert "a column holds integers of 128 bits (polars' Int128): cast them" in message


def test_vectors_of_no_edges_have_no_width(tmp_path: Path, storage: Storage) -> None:
    ids, vectors = pa.array([], pa.int64()), pa.array([], pa.list_(pa.float32()))
    write_parquet(tmp_path / "e.parquet", src=ids, dst=ids, x=vectors)
    edges = edge_input(tmp_path / "e.parquet", "parquet", features={"vectorColumn": "x"})
    with pytest.raises(InputError, match="does not say how long its vectors are"):
        edge_feature_width(storage, edges)
