"""The layouts that known indexes read, with the limits that their documentation states."""

from __future__ import annotations

from dataclasses import dataclass

from embertide.edge.indexes.layout import Layout, Limits

_LARGE = 512 << 20
_BULK_BYTES = 8 << 20
"""Bytes of a bulk request: managed OpenSearch takes 10 MiB on its small machines, others 100 MB."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """An index as a destination of files.

    Attributes:
        folder: folder within ``data`` that the files must be in; "" for none.
        loading: how the index reads the files, a sentence with the fields ``{folder}``,
            ``{id}``, ``{vector}``, ``{id_type}``, ``{vector_type}`` and ``{dim}``.
    """

    layout: Layout
    limits: Limits
    loading: str
    folder: str = ""


PRESETS: dict[str, Preset] = {
    "parquet": Preset(
        layout=Layout(),
        limits=Limits(),
        loading="read the parquet files below {folder}; columns {id} and {vector}",
    ),
    "milvus": Preset(
        layout=Layout(lists="list", half_bytes=True, file_bytes=_LARGE),
        limits=Limits(dim=32_768, id_bytes=65_535, files=1024, file_bytes=16 << 30),
        loading="import the files below {folder} with Milvus' bulk import (utility.do_bulk_insert"
        " or BulkImport), a file for each inner list, into a collection with the primary key {id}"
        " and the vector field {vector} ({vector_type}, dim {dim})",
    ),
    "pinecone": Preset(
        layout=Layout(lists="list", ids="text", vector_column="values", zero_rows="refuse"),
        limits=Limits(
            vectors=("float32",),
            dim=20_000,
            id_bytes=512,
            ascii_ids=True,
            files=100_000,
            file_bytes=10 << 30,
            fixed_columns=True,
        ),
        loading="start an import with the URI {folder}; each folder in it is a namespace",
        folder="__default__",
    ),
    "vertex": Preset(
        layout=Layout(format="vertex", ids="text"),
        limits=Limits(vectors=("float32",), files=5000, fixed_columns=True),
        loading="create or update a Vector Search index of {dim} dimensions with contentsDeltaUri"
        " {folder}",
    ),
    "lancedb": Preset(
        layout=Layout(lists="fixed", vector_column="vector"),
        limits=Limits(vectors=("float32", "float16")),
        loading="db.create_table(NAME, pyarrow.dataset.dataset(PATH)) with the path of {folder};"
        " searches use the column {vector}",
    ),
    "pgvector": Preset(
        layout=Layout(format="pgcopy"),
        limits=Limits(vectors=("float32", "float16"), dim=16_000, null_ids=False),
        loading="CREATE TABLE name ({id} {id_type} PRIMARY KEY, {vector} {vector_type}({dim}));"
        " then for each file of {folder}: \\copy name FROM 'FILE' WITH (FORMAT binary)",
    ),
    "opensearch": Preset(
        layout=Layout(format="opensearch", ids="text", file_bytes=_BULK_BYTES),
        limits=Limits(
            vectors=("float32", "int8"), dim=16_000, id_bytes=512, file_bytes=100_000_000
        ),
        loading="POST each file below {folder} to /INDEX/_bulk (Content-Type:"
        " application/x-ndjson); {vector} is a knn_vector of {dim} dimensions ({vector_type})."
        " Spaces that compare by cosine refuse zero vectors",
    ),
}
