"""A version as files for an index: values as they were or as options state; the sad paths."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from embertide.edge.indexes.convert import Conversion, convert
from embertide.edge.indexes.presets import PRESETS
from embertide.errors import EmbertideError, InputError, OutputError
from embertide.io.storage.protocol import Storage
from tests.support.compared import Rows, publish_rows, random_rows
from tests.support.versions import CURRENT, OLD, hooked

Cli = Callable[..., tuple[int, str, str]]
COUNT, WIDTH = 300, 6


def written(
    storage: Storage, output: str, tmp_path: Path, rows: Rows, index: str = "parquet",
    kind: str = "int64", **changes: Any,
) -> tuple[Conversion, Path]:  # fmt: skip
    """Publish the rows and convert them; the folder."""
    publish_rows(storage, output, OLD, rows, kind=kind)
    folder = tmp_path / "files"
    layout = replace(PRESETS[index].layout, **changes)
    return convert(storage, output, f"file://{folder}", index, layout), folder


def tables(done: Conversion, folder: Path) -> dict[Any, Any]:
    """Id -> vector of all parquet files."""
    found: dict[Any, Any] = {}
    for file in done.files:
        table = pq.read_table(folder / file.name)
        first, second = table.column_names
        found |= dict(zip(table[first].to_pylist(), table[second].to_pylist(), strict=True))
    return found


@pytest.mark.parametrize("lists", ["list", "fixed"])
@pytest.mark.parametrize("kind", ["dense", "int64", "string"])
def test_rows_are_written_bit_for_bit(
    storage: Storage, output: str, tmp_path: Path, kind: str, lists: str
) -> None:
    rows = random_rows(COUNT, WIDTH, 1, text=kind == "string")
    done, folder = written(storage, output, tmp_path, rows, kind=kind, lists=lists, file_rows=128)
    found = tables(done, folder)
    assert [file.rows for file in done.files] == [128, 128, 44]
    assert found.keys() == rows.keys()
    for name, vector in rows.items():
        np.testing.assert_array_equal(np.array(found[name], np.float32), vector)
    assert json.loads((folder / "_convert.json").read_text())["rows"] == COUNT
    assert not (folder / "_zero_rows.txt").exists()


def test_int8_states_its_scale_and_is_half_a_step_off_at_most(
    storage: Storage, output: str, tmp_path: Path
) -> None:
    rows = random_rows(COUNT, WIDTH, 2)
    done, folder = written(storage, output, tmp_path, rows, vectors="int8")
    assert done.scale is not None
    most = max(float(np.abs(vector).max()) for vector in rows.values())
    assert done.scale == pytest.approx(most / 127)
    found = tables(done, folder)
    for name, vector in rows.items():
        assert np.abs(np.array(found[name]) * done.scale - vector).max() <= done.scale * 0.5000001
    assert max(max(map(abs, vector)) for vector in found.values()) == 127


def test_normalized_rows_have_length_one_and_zero_rows_are_listed_and_never_divided(
    storage: Storage, output: str, tmp_path: Path
) -> None:
    rows = random_rows(COUNT, WIDTH, 3)
    names = list(rows)
    rows[names[4]], rows[names[9]] = np.zeros((2, WIDTH), np.float32)
    # Squares of these are no float32.
    rows[names[5]] = np.full(WIDTH, 1e-30, np.float32)
    rows[names[6]] = np.full(WIDTH, 3e38, np.float32)
    done, folder = written(storage, output, tmp_path, rows, normalize=True)
    found = tables(done, folder)
    lengths = {name: np.linalg.norm(np.array(vector)) for name, vector in found.items()}
    zero = {names[4], names[9]}
    assert done.zero_rows == 2
    assert set(map(int, (folder / "_zero_rows.txt").read_text().split())) == zero
    assert all(lengths[name] == 0 for name in zero)
    for name in rows.keys() - zero:
        assert lengths[name] == pytest.approx(1, abs=1e-6)
        exact = rows[name].astype(np.float64) / np.linalg.norm(rows[name].astype(np.float64))
        np.testing.assert_allclose(found[name], exact, rtol=1e-6)


def test_rows_that_rounding_makes_zero_are_listed(
    storage: Storage, output: str, tmp_path: Path
) -> None:
    rows = random_rows(COUNT, WIDTH, 3)
    small = next(iter(rows))
    rows[small] = np.full(WIDTH, 1e-9, np.float32)
    done, folder = written(storage, output, tmp_path, rows, vectors="float16", zero_rows="skip")
    assert (done.zero_rows, done.rows) == (1, COUNT - 1)
    assert (folder / "_zero_rows.txt").read_text() == f"{small}\n"


def test_integer_texts_become_integers(storage: Storage, output: str, tmp_path: Path) -> None:
    plain = random_rows(COUNT, WIDTH, 4)
    rows = {str(name): vector for name, vector in plain.items()}
    done, folder = written(storage, output, tmp_path, rows, kind="string", ids="integer")
    assert tables(done, folder).keys() == plain.keys()


def with_row(name: Any, vector: Any) -> Rows:
    """Text ids and one more row."""
    return {**random_rows(20, 2, 5, text=True), name: np.array(vector, np.float32)}


@pytest.mark.parametrize(
    ("rows", "index", "changes", "message"),
    [
        (with_row("x", [1, 7e4]), "parquet", {"vectors": "float16"},
         "the embedding of node 'x' has 70000 in column 1: float16 ends at 65504"),
        (with_row("x", [0, 9]), "parquet", {"vectors": "int8", "scale": 0.05},
         "node 'x' has 9 in column 1: int8 with the scale 0.05 ends at 6.35"),
        (with_row("x", [0, 0]), "pinecone", {}, "node 'x' is a zero vector"),
        (with_row("node/ä", [1, 0]), "pinecone", {}, "the id 'node/ä' is not ASCII"),
        (with_row("y" * 513, [1, 0]), "opensearch", {}, "is longer than the 512 bytes"),
        (with_row("a\0b", [1, 0]), "pgvector", {}, "has a NUL character"),
        (with_row("007", [1, 0]), "parquet", {"ids": "integer"}, "is no integer"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_is_named_and_nothing_stays(
    storage: Storage, output: str, tmp_path: Path, rows: Rows, index: str, changes: Any,
    message: str,
) -> None:  # fmt: skip
    if changes.get("ids") == "integer":
        rows = {name.removeprefix("node/"): vector for name, vector in rows.items()}
    with pytest.raises(OutputError) as error:
        written(storage, output, tmp_path, rows, index, kind="string", file_rows=5, **changes)
    assert message in str(error.value)
    assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []


@pytest.mark.tier(2)
def test_versions_join_in_time_by_id(storage: Storage, output: str, tmp_path: Path) -> None:
    """As feature stores do: for each id and time, the version that was the newest then."""
    import duckdb

    columns = {"created_column": "created", "version_column": "version"}
    layout = replace(PRESETS["parquet"].layout, **columns)
    versions = {OLD: random_rows(30, 2, 1), CURRENT: random_rows(30, 2, 1)}
    created = {}
    for version, rows in versions.items():
        info = publish_rows(storage, output, version, rows)
        created[version] = info.created
        convert(storage, output, f"file://{tmp_path}/{version}", "parquet", layout)
    name = next(iter(versions[OLD]))
    duckdb.sql("SET TimeZone = 'UTC'")
    for asked, expected in ((OLD, OLD), (CURRENT, CURRENT)):
        joined = duckdb.sql(
            f"SELECT r.version, r.embedding FROM (SELECT {name} AS id,"
            f" TIMESTAMPTZ '{created[asked]}' AS at) e ASOF JOIN '{tmp_path}/*/data/*.parquet' r"
            " ON e.id = r.id AND e.at >= r.created"
        ).fetchall()
        assert joined == [(expected, pytest.approx(versions[expected][name].tolist()))]


@pytest.mark.parametrize(
    ("index", "changes", "message"),
    [
        ("vertex", {"vectors": "int8"}, "--vectors is int8; vertex reads float32"),
        ("pgvector", {"vectors": "int8"}, "pgvector reads float32 or float16"),
        ("pinecone", {"ids": "integer"}, "--ids is integer; pinecone reads ids that are text"),
        ("pinecone", {"vector_column": "v"}, "have the names id and values"),
        ("milvus", {"vector_column": "id"}, "two columns have the same name among id, id"),
        ("vertex", {"created_column": "at"}, "vertex has no other columns"),
        ("pinecone", {"version_column": "v"}, "pinecone has no other columns"),
        ("opensearch", {"file_bytes": 1 << 30}, "opensearch takes files of 100000000 bytes"),
    ],
)
def test_what_an_index_does_not_read_is_refused(
    storage: Storage, output: str, tmp_path: Path, index: str, changes: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        written(storage, output, tmp_path, random_rows(5, 2, 1), index, **changes)


def test_a_folder_with_files_and_too_many_dimensions_are_refused(
    storage: Storage, output: str, tmp_path: Path
) -> None:
    rows = random_rows(5, 2, 1)
    _, folder = written(storage, output, tmp_path, rows)
    layout = PRESETS["parquet"].layout
    with pytest.raises(OutputError, match="has objects already"):
        convert(storage, output, f"file://{folder}", "parquet", layout)
    publish_rows(storage, output, CURRENT, random_rows(2, 16_001, 1))
    with pytest.raises(InputError, match="have 16001 values; pgvector takes 16000 at most"):
        convert(storage, output, f"file://{tmp_path}/b", "pgvector", PRESETS["pgvector"].layout)


def test_more_files_than_the_index_takes_are_refused(
    storage: Storage, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vertex = PRESETS["vertex"]
    monkeypatch.setitem(PRESETS, "vertex", replace(vertex, limits=replace(vertex.limits, files=3)))
    with pytest.raises(OutputError, match="the rows take more than 3 files"):
        written(storage, output, tmp_path, random_rows(40, 2, 1), "vertex", file_rows=10)


def test_a_store_that_fails_leaves_no_note(storage: Storage, output: str, tmp_path: Path) -> None:
    publish_rows(storage, output, OLD, random_rows(40, 2, 1))
    calls = []

    def fail(name: str, uri: str) -> None:
        calls.append(name)
        if name == "create" and calls.count("create") == 3:
            raise OutputError("no space")

    layout = replace(PRESETS["parquet"].layout, file_rows=10)
    with pytest.raises(EmbertideError, match="no space"):
        convert(hooked(storage, fail), output, f"file://{tmp_path}/files", "parquet", layout)
    assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []


def test_the_command_prints_what_was_written(cli: Cli, storage: Storage, tmp_path: Path) -> None:
    output = f"file://{tmp_path}/out"
    rows = random_rows(30, 2, 1)
    rows[next(iter(rows))] = np.zeros(2, np.float32)
    publish_rows(storage, output, OLD, rows)
    publish_rows(storage, output, CURRENT, random_rows(20, 2, 1), held=("edges: 3",))
    where = ("--output", output)
    code, out, _ = cli("convert", str(tmp_path / "a"), *where, "--for", "pgvector")
    assert code == 0
    assert f"30 rows of {OLD} are in file://{tmp_path}/a/data: 1 files" in out
    assert "1 rows are zero vectors; they are kept" in out
    assert "CREATE TABLE name (id bigint PRIMARY KEY, embedding vector(2))" in out
    code, out, _ = cli(
        "convert", str(tmp_path / "b"), *where, "--version", CURRENT, "--vectors", "int8", "--json"
    )
    found = json.loads(out)
    assert (found["version"], found["held"], found["rows"]) == (CURRENT, ["edges: 3"], 20)
    assert found["scale"] > 0
    assert cli("convert", str(tmp_path / "a"), *where)[0] == OutputError.exit_code
    assert cli("convert", str(tmp_path / "c"), *where, "--scale", "2")[0] == 2
