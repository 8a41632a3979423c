"""Edge lists: every format gives the same edges, whatever the size of the splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embertide.io.readers import text as read_text
from embertide.io.readers.dialect import Dialect
from embertide.io.readers.edges import count_edges, split_edges
from embertide.io.readers.nodes import read_nodes, split_nodes
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import NodeTable
from tests.support.edge_files import (
    COMPRESS,
    DESTINATION,
    EDGES,
    SOURCE,
    WEIGHT,
    WEIGHTED,
    csv_text,
    edge_input,
    read_all,
    rows_of,
    write_parquet,
)


@pytest.mark.parametrize("target", [1, 900, 1 << 30])
@pytest.mark.parametrize("weighted", [False, True])
def test_parquet(tmp_path: Path, storage: Storage, target: int, weighted: bool) -> None:
    columns = {"dst": DESTINATION, "other": SOURCE, "src": SOURCE, "w": WEIGHT}
    half = 500
    for name, part in {"a": slice(None, half), "b": slice(half, None)}.items():
        held = {key: values[part] for key, values in columns.items()}
        write_parquet(tmp_path / f"e/{name}.parquet", 90, **held)
    names = {"weight": "w"} if weighted else {}
    edges = edge_input(tmp_path / "e", "parquet", columns=names)
    assert rows_of(read_all(storage, edges, target=target)) == (WEIGHTED if weighted else EDGES)


@pytest.mark.parametrize(
    "held", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_parquet_of_strings(tmp_path: Path, storage: Storage, held: Any) -> None:
    ids = pa.array(["a", "é", "null"]).cast(held)
    write_parquet(tmp_path / "e.parquet", src=ids, dst=ids)
    batches = list(read_all(storage, edge_input(tmp_path / "e.parquet", "parquet"), "string"))
    # Ids are looked up in either type: offsets of 32 bits are left as they are.
    either = {pa.string(), pa.large_string()}
    assert batches[0].source.type in ({held} if held in either else either)
    assert rows_of(iter(batches)) == [("a", "a"), ("é", "é"), ("null", "null")]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("form", ["csv", "tsv"])
@pytest.mark.parametrize("header", [True, False])
def test_text(tmp_path: Path, storage: Storage, suffix: str, form: str, header: bool) -> None:
    separator = "\t" if form == "tsv" else ","
    text = csv_text(separator, header).encode()
    path = tmp_path / f"e.{form}{suffix}"
    path.write_bytes(COMPRESS[suffix](text))
    columns = {"weight": "w" if header else 2}
    edges = edge_input(path, form, header=header, columns=columns)
    assert rows_of(read_all(storage, edges, target=1000)) == WEIGHTED


@pytest.mark.tier(2)
@given(
    target=st.integers(1, 900),
    rows=st.integers(1, 300),
    block=st.integers(1, 5000),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    blanks=st.booleans(),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None
)
def test_any_split_of_csv_gives_the_same_rows(
    tmp_path: Path,
    storage: Storage,
    target: int,
    rows: int,
    block: int,
    end: str,
    last: bool,
    blanks: bool,
) -> None:
    lines = ["src,dst"] + [f"{s},{d}" for s, d in EDGES[:90]]
    text = (end * (1 + blanks)).join(lines) + (end if last else "")
    path = tmp_path / "e.csv"
    path.write_bytes(text.encode())
    edges = edge_input(path, "csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_text, "BLOCK_BYTES", block)
        batches = list(read_all(storage, edges, target=target, rows=rows))
    assert max(map(len, batches)) <= rows
    assert rows_of(iter(batches)) == EDGES[:90]


@given(target=st.integers(100, 20_000), rows=st.integers(1, 300), fortran=st.booleans())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None
)
def test_any_split_of_npy_gives_the_same_rows(
    tmp_path: Path, storage: Storage, target: int, rows: int, fortran: bool
) -> None:
    array = np.stack([SOURCE, DESTINATION], axis=1)
    np.save(tmp_path / "e.npy", np.asfortranarray(array) if fortran else array)
    batches = list(read_all(storage, edge_input(tmp_path / "e.npy", "npy"), "int64", target, rows))
    assert max(map(len, batches)) <= rows
    assert rows_of(iter(batches)) == EDGES


@given(target=st.integers(1, 2_000), rows=st.integers(1, 99), group=st.integers(1, 60))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None
)
def test_any_split_of_parquet_gives_the_same_rows(
    tmp_path: Path, storage: Storage, target: int, rows: int, group: int
) -> None:
    write_parquet(tmp_path / "e.parquet", group, src=SOURCE[:150], dst=DESTINATION[:150])
    edges = edge_input(tmp_path / "e.parquet", "parquet")
    batches = list(read_all(storage, edges, "dense", target, rows))
    assert max(map(len, batches)) <= rows
    assert rows_of(iter(batches)) == EDGES[:150]


TYPES = np.array(["VIEWS", "BUYS", "BUYS", "GIVES"])[np.arange(997) % 4]
BOUGHT = [row for row, kind in zip(WEIGHTED, TYPES, strict=True) if kind == "BUYS"]


@pytest.mark.parametrize("target", [900, 1 << 30])
@pytest.mark.parametrize("form", ["parquet", "dictionary", "csv", "no header", "numbers", "npy"])
def test_a_relation_of_several_in_one_file(
    tmp_path: Path, storage: Storage, form: str, target: int
) -> None:
    path, where, fields = tmp_path / "e", {"column": "type", "equals": "BUYS"}, {}
    numbers = (TYPES == "BUYS").astype(np.int8)
    columns: dict[str, Any] = {"weight": "w"}
    if form in ("parquet", "dictionary", "numbers"):
        held = pa.array(TYPES) if form == "parquet" else pa.array(TYPES).dictionary_encode()
        if form == "numbers":
            held, where = pa.array(numbers), {"column": "type", "equals": 1}
        write_parquet(path, src=SOURCE, dst=DESTINATION, w=WEIGHT, type=held)
        form = "parquet"
    elif form == "npy":
        ends = np.stack([SOURCE, DESTINATION, numbers], axis=1)
        np.save(tmp_path / "e.npy", ends)
        path, where, columns = tmp_path / "e.npy", {"column": 2, "equals": 1}, {}
    else:
        lines = [f"{s},{d},{w!r},{t}" for (s, d, w), t in zip(WEIGHTED, TYPES, strict=True)]
        path.write_text("\n".join([*(["src,dst,w,type"] if form == "csv" else []), *lines]))
        if form == "no header":
            where, columns = {"column": 3, "equals": "BUYS"}, {"weight": 2}
            fields, form = {"header": False}, "csv"
    edges = edge_input(path, form, columns=columns, where=where, **fields)
    expected = BOUGHT if columns else [row[:2] for row in BOUGHT]
    assert rows_of(read_all(storage, edges, target=target)) == expected
    (split,) = split_edges(storage, edges)
    assert count_edges(storage, edges, split) == len(BOUGHT)


def test_row_groups_of_other_relations_are_not_read(tmp_path: Path, storage: Storage) -> None:
    kinds = np.sort(TYPES)
    write_parquet(tmp_path / "e", 10, src=SOURCE, dst=DESTINATION, w=WEIGHT, type=kinds)
    edges = edge_input(
        tmp_path / "e",
        "parquet",
        columns={"weight": "w"},
        where={"column": "type", "equals": "GIVES"},
    )
    (first, last), expected = np.searchsorted(kinds, ["GIVES", "GIVEX"]), WEIGHTED
    splits = split_edges(storage, edges, 1)
    assert sum(split.rows for split in splits) <= last - first + 20
    assert rows_of(read_all(storage, edges, target=1)) == expected[first:last]
    assert rows_of(read_all(storage, edges)) == expected[first:last]


def test_folders_of_other_relations_are_not_read(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "type=BUYS" / "e", src=[1], dst=[2])
    write_parquet(tmp_path / "type=VIEWS" / "e", src=[3], dst=[4])
    edges = edge_input(
        tmp_path, "parquet", recursive=True, where={"column": "type", "equals": "VIEWS"}
    )
    assert [split.uri.rsplit("/", 2)[1] for split in split_edges(storage, edges)] == ["type=VIEWS"]
    assert rows_of(read_all(storage, edges)) == [(3, 4)]


def test_node_tables(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "n.parquet", 10, id=SOURCE, name=[str(i) for i in SOURCE])
    np.save(tmp_path / "n.npy", SOURCE)

    def ids(form: str, column: str, kind: Any) -> list[Any]:
        table = NodeTable.model_validate(
            {"uri": f"file://{tmp_path}/n.{form}", "format": form, "idColumn": column}
        )
        splits = split_nodes(storage, table, 500, kind)
        assert len(splits) > 1
        return [
            i
            for split in splits
            for b in read_nodes(storage, table, kind, split, 7)
            for i in b.ids.tolist()
        ]

    assert ids("parquet", "id", "int64") == SOURCE.tolist()
    assert ids("parquet", "name", "string") == [str(i) for i in SOURCE]
    assert ids("npy", "id", "int64") == SOURCE.tolist()


@given(st.lists(st.text('a",\r ', max_size=8), min_size=1, max_size=5))
def test_a_line_is_whole_when_its_quotes_end(fields: list[str]) -> None:
    written = ['"' + field.replace('"', '""') + '"' for field in fields]
    line = ",".join(written)
    dialect = Dialect(header=False, separator=",")
    assert dialect.is_whole(line.encode())
    assert not dialect.is_whole(line.encode()[:-1])


@pytest.mark.parametrize(
    ("line", "whole"),
    [(b'5" pipe,x', True), (b'"a""b,c', False), (b'"a"b,"c"', True), (b',"', False), (b"", True)],
)
def test_quotes_count_at_the_start_of_a_field(line: bytes, whole: bool) -> None:
    assert Dialect(header=False, separator=",").is_whole(line) is whole
    bars = Dialect(header=False, separator="|")
    assert bars.is_whole(line.replace(b",", b"|") + b"\n") is whole
