"""What `embertide convert` writes, read by the indexes themselves; elsewhere by published rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from embertide.edge.indexes.convert import Conversion, convert
from embertide.edge.indexes.presets import PRESETS
from embertide.io.storage.protocol import Storage
from tests.support.compared import Rows, publish_rows, random_rows
from tests.support.versions import OLD

COUNT, WIDTH = 700, 8


@pytest.fixture(params=["int64", "string"])
def kind(request: pytest.FixtureRequest) -> str:
    """Of the ids."""
    return str(request.param)


@pytest.fixture
def rows(kind: str) -> Rows:
    """What is published."""
    return random_rows(COUNT, WIDTH, 1, text=kind == "string")


def written(
    storage: Storage, output: str, tmp_path: Path, rows: Rows, kind: str, index: str, **changes: Any
) -> tuple[Conversion, list[Path]]:
    """The files for an index."""
    folder = tmp_path / "files"
    publish_rows(storage, output, OLD, rows, kind=kind, batch=200)
    layout = replace(PRESETS[index].layout, **{"file_rows": 300, **changes})
    done = convert(storage, output, f"file://{folder}", index, layout)
    return done, [folder / file.name for file in done.files]


def same(found: dict[Any, Any], rows: Rows, dtype: str = "float32") -> None:
    """Every row is there with these bits."""
    assert found.keys() == rows.keys()
    for name, vector in rows.items():
        np.testing.assert_array_equal(
            np.asarray(found[name], np.float32), vector.astype(dtype).astype(np.float32)
        )


@pytest.mark.parametrize(
    ("vectors", "of_pgvector"), [("float32", "vector"), ("float16", "halfvec")]
)
def test_postgresql_copies_the_files(
    storage: Storage, output: str, tmp_path: Path, rows: Rows, kind: str, postgres: str,
    vectors: str, of_pgvector: str,
) -> None:  # fmt: skip
    import psycopg

    done, files = written(storage, output, tmp_path, rows, kind, "pgvector", vectors=vectors)
    create = done.loading.split(";")[0]
    assert f"{of_pgvector}({WIDTH})" in create
    with psycopg.connect(postgres) as connection:
        connection.execute("DROP TABLE IF EXISTS name")
        connection.execute(create)
        for file in files:
            with connection.cursor().copy("COPY name FROM STDIN WITH (FORMAT binary)") as copy:
                copy.write(file.read_bytes())
        stored = connection.execute("SELECT id, embedding::text FROM name").fetchall()
        same({name: json.loads(text) for name, text in stored}, rows, vectors)
        connection.execute(f"CREATE INDEX ON name USING hnsw (embedding {of_pgvector}_cosine_ops)")


def test_milvus_stores_the_rows(
    storage: Storage, output: str, tmp_path: Path, rows: Rows, kind: str
) -> None:
    from pymilvus import DataType, MilvusClient
    from pymilvus.bulk_writer import BulkFileType, LocalBulkWriter

    _, files = written(storage, output, tmp_path, rows, kind, "milvus")
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    text = {"max_length": 100} if kind == "string" else {}
    of_id = DataType.VARCHAR if kind == "string" else DataType.INT64
    schema.add_field("id", of_id, is_primary=True, **text)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=WIDTH)
    # Milvus' own writer makes files with the same columns for its bulk import.
    writer = LocalBulkWriter(schema, str(tmp_path / "own"), file_type=BulkFileType.PARQUET)
    name, vector = next(iter(rows.items()))
    writer.append_row({"id": name, "embedding": vector.tolist()})
    writer.commit()
    ((own,),) = writer.batch_files
    ours = pq.read_schema(files[0])
    assert _without_names(ours) == _without_names(pq.read_schema(own))
    client = MilvusClient(str(tmp_path / "milvus.db"))
    try:
        params = client.prepare_index_params()
        params.add_index("embedding", index_type="AUTOINDEX", metric_type="COSINE")
        client.create_collection("rows", schema=schema, index_params=params)
        for file in files:
            client.insert("rows", pq.read_table(file).to_pylist())
        stored = client.query("rows", filter="", output_fields=["id", "embedding"], limit=COUNT)
        same({row["id"]: row["embedding"] for row in stored}, rows)
    finally:
        client.close()


def _without_names(schema: Any) -> list[str]:
    """Columns and their types; what parquet calls a list's element means nothing."""
    return [f"{field.name} {_element(field.type)}" for field in schema]


def _element(kind: Any) -> str:
    return f"list<{kind.value_type}>" if hasattr(kind, "value_type") else str(kind)


@pytest.mark.parametrize("vectors", ["float16", "int8"])
def test_milvus_own_writer_has_the_same_types_of_short_vectors(
    storage: Storage, output: str, tmp_path: Path, rows: Rows, kind: str, vectors: str
) -> None:
    from pymilvus.bulk_writer.constants import ARROW_TYPE_CREATOR

    done, files = written(storage, output, tmp_path, rows, kind, "milvus", vectors=vectors)
    kinds = {"float16": "FLOAT16_VECTOR", "int8": "INT8_VECTOR"}
    column = pq.read_schema(files[0]).field("embedding").type
    assert column.value_type == ARROW_TYPE_CREATOR[kinds[vectors]].value_type
    stored = {}
    for file in files:
        for row in pq.read_table(file).to_pylist():
            stored[row["id"]] = row["embedding"]
    if vectors == "float16":
        halves = {name: np.array(v, np.uint8).view(np.float16) for name, v in stored.items()}
        same(halves, rows, "float16")
    else:
        assert done.scale is not None
        for name, vector in rows.items():
            assert np.abs(np.array(stored[name]) * done.scale - vector).max() <= done.scale


@pytest.mark.parametrize("vectors", ["float32", "float16"])
def test_lancedb_makes_a_table_of_the_files(
    storage: Storage, output: str, tmp_path: Path, rows: Rows, kind: str, vectors: str
) -> None:
    import lancedb

    done, _ = written(storage, output, tmp_path, rows, kind, "lancedb", vectors=vectors)
    table = lancedb.connect(tmp_path / "lance").create_table(
        "rows", ds.dataset(done.uri.removeprefix("file://"))
    )
    stored = table.to_arrow()
    same(
        dict(zip(stored["id"].to_pylist(), stored["vector"].to_pylist(), strict=True)),
        rows,
        vectors,
    )
    name, vector = next(iter(rows.items()))
    assert table.search(vector).limit(1).to_list()[0]["id"] == name


def test_qdrant_duckdb_and_faiss_take_the_parquet_files(
    storage: Storage, output: str, tmp_path: Path
) -> None:
    import duckdb
    import faiss
    from qdrant_client import QdrantClient, models

    rows = random_rows(COUNT, WIDTH, 1)
    done, files = written(storage, output, tmp_path, rows, "int64", "parquet", normalize=True)
    folder = done.uri.removeprefix("file://")
    name, vector = next(iter(rows.items()))
    distance = (
        f"array_cosine_distance(embedding::FLOAT[{WIDTH}], {vector.tolist()}::FLOAT[{WIDTH}])"
    )
    nearest = duckdb.sql(f"SELECT id FROM '{folder}/*.parquet' ORDER BY {distance} LIMIT 1")
    assert nearest.fetchall() == [(name,)]
    table = ds.dataset(files).to_table()
    ids = table["id"].to_numpy()
    vectors = np.stack(table["embedding"].to_numpy())
    index = faiss.IndexIDMap(faiss.IndexFlatIP(WIDTH))
    index.add_with_ids(vectors, ids)
    assert index.search(vector[None], 1)[1].tolist() == [[name]]
    client = QdrantClient(":memory:")
    params = models.VectorParams(size=WIDTH, distance=models.Distance.DOT)
    client.create_collection("rows", vectors_config=params)
    client.upload_collection("rows", vectors, ids=ids.tolist())
    assert client.query_points("rows", query=vector, limit=1).points[0].id == name
    client.close()


def test_pinecone_files_are_as_its_import_wants_them(
    storage: Storage, output: str, tmp_path: Path, rows: Rows, kind: str
) -> None:
    done, files = written(storage, output, tmp_path, rows, kind, "pinecone")
    # A folder for each namespace, with parquet files of an id STRING and values LIST<FLOAT>.
    assert {file.parent.name for file in files} == {"__default__"}
    assert {file.parent.parent for file in files} == {Path(done.uri.removeprefix("file://"))}
    schema = pq.ParquetFile(files[0]).schema
    assert [schema.column(at).path for at in range(2)] == ["id", "values.list.element"]
    assert str(schema.column(0).logical_type) == "String"
    assert schema.column(1).physical_type == "FLOAT"
    table = ds.dataset(files).to_table()
    stored = dict(zip(table["id"].to_pylist(), table["values"].to_pylist(), strict=True))
    same(stored, {str(name): vector for name, vector in rows.items()})


def test_vertex_files_are_as_its_batch_root_wants_them(
    storage: Storage, output: str, tmp_path: Path, rows: Rows, kind: str
) -> None:
    _, files = written(storage, output, tmp_path, rows, kind, "vertex")
    # Nothing else may be in the folder: every .json file is data, other folders are refused.
    assert sorted((tmp_path / "files" / "data").iterdir()) == files
    stored = {}
    for file in files:
        for line in file.read_text().splitlines():
            record = json.loads(line)
            assert record.keys() == {"id", "embedding"}
            stored[record["id"]] = record["embedding"]
    same(stored, {str(name): vector for name, vector in rows.items()})


@pytest.mark.parametrize("vectors", ["float32", "int8"])
def test_opensearch_files_are_bulk_requests(
    storage: Storage, output: str, tmp_path: Path, rows: Rows, kind: str, vectors: str
) -> None:
    done, files = written(
        storage, output, tmp_path, rows, kind, "opensearch", vectors=vectors, file_rows=None,
        file_bytes=20_000,
    )  # fmt: skip
    stored = {}
    for file in files:
        data = file.read_bytes()
        assert len(data) <= 20_000
        # Every line ends with a line feed, the last one too.
        assert data.endswith(b"\n")
        lines = [json.loads(line) for line in data.splitlines()]
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            stored[action["index"]["_id"]] = document["embedding"]
    texts = {str(name): vector for name, vector in rows.items()}
    if vectors == "float32":
        same(stored, texts)
    else:
        assert all(isinstance(v, int) and -128 <= v <= 127 for row in stored.values() for v in row)
        assert stored.keys() == texts.keys()
    assert done.rows == COUNT


def test_awkward_text_ids_survive_json(storage: Storage, output: str, tmp_path: Path) -> None:
    names = ['say "hi"', "back\\slash", "line\nend", "ä\u2028ö", "tab\t", "\x7f"]
    rows = {name: np.ones(2, np.float32) for name in names}
    _, files = written(storage, output, tmp_path, rows, "string", "vertex")
    lines = [line for file in files for line in file.read_text().split("\n") if line]
    assert {json.loads(line)["id"] for line in lines} == set(names)
