"""A job for edges that are there: which columns they have, and which nodes there are."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from embertide.errors import InputError, OutputError
from embertide.io.readers.edges import read_edges, split_edges
from embertide.io.readers.npy import read_header
from embertide.io.readers.objects import list_objects
from embertide.io.readers.parquet import parquet_file
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import StorageSettings
from embertide.spec.nodes import IdKind

ENDS = (("src", "dst"), ("source", "target"), ("source", "destination"), ("from", "to"))
"""Names of columns that are taken for the ends of edges; else the first two are."""
WEIGHT = ("weight", "w")
_LINE_BYTES = 1 << 16
_DENSE_SHARE = 0.5
"""The least share of 0 to the largest id that has to be there for ids to be counted."""
Column = str | int


@dataclass(frozen=True)
class Columns:
    """Which columns hold what: names, or numbers where there are no names."""

    source: Column
    destination: Column
    weight: Column | None


@dataclass(frozen=True)
class Begun:
    """What was found and written.

    Attributes:
        nodes: node type -> how many there are.
        ids: node type -> what they are.
    """

    job_uri: str
    edges: int
    columns: Columns
    nodes: dict[str, int]
    ids: dict[str, IdKind]


def begin_job(
    storage: Storage,
    edges_uri: str,
    folder: str,
    *,
    columns: tuple[str, str] | None = None,
    weight: str | None = None,
    types: tuple[str, str] | None = None,
    name: str = "embeddings",
    settings: StorageSettings | None = None,
) -> Begun:
    """Write ``job.yaml``, and node tables where ids are not counted, into a folder.

    The job computes FastRP over all edges in both directions. Reads the edges once, or twice where
    ids are text; holds the ids of all nodes.

    Args:
        columns: of both ends; found by their names by default.
        types: node types of both ends, in a graph of two; one by default.

    Raises:
        InputError: there are no edges, or they have no such columns.
        OutputError: the folder has a job.
    """
    job_uri = f"{folder.rstrip('/')}/job.yaml"
    if storage.stat(job_uri) is not None:
        raise OutputError(f"{job_uri} is there; remove it, or name another folder with --to")
    objects = list_objects(storage, edges_uri, recursive=False, field="edges")
    stated = _stated(storage, edges_uri, objects[0])
    found = _columns(stated.pop("names"), columns, weight, objects[0].uri)
    edge = stated | {"columns": _given(found), "directed": False}
    source, destination = types or ("node", "node")
    if types is not None:
        edge |= {"sourceType": source, "destinationType": destination, "reverse": "reverse"}
        del edge["directed"]
    ends, count = _ids(storage, EdgeInput.model_validate(edge))
    if not count:
        raise InputError(f"{edges_uri} has no edges")
    of_types = {source: ends[0], destination: ends[1]} if types else {source: _unique(ends)}
    nodes = [_node(storage, folder, kind, ids) for kind, ids in of_types.items()]
    spec: dict[str, Any] = {
        "input": {"edges": [edge], "nodes": nodes},
        "model": {"builtin": "fastrp"},
        "output": {"uri": f"{folder.rstrip('/')}/embeddings"},
    }
    if settings is not None:
        spec["storage"] = settings.model_dump(by_alias=True, exclude_defaults=True)
    job = {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": name},
        "spec": spec,
    }
    storage.write(job_uri, yaml.safe_dump(job, sort_keys=False).encode())
    return Begun(
        job_uri,
        count,
        found,
        {
            kind: node.get("count", len(ids))
            for (kind, ids), node in zip(of_types.items(), nodes, strict=True)
        },
        {kind: node.get("ids", "dense") for kind, node in zip(of_types, nodes, strict=True)},
    )


def _stated(storage: Storage, uri: str, first: ObjectInfo) -> dict[str, Any]:
    """The fields of an edge type that an object shows, and the names of its columns."""
    plain = first.uri.removesuffix(".gz").removesuffix(".zst").lower()
    if plain.endswith(".parquet"):
        with parquet_file(storage, first, []) as (file, _):
            return {"uri": uri, "format": "parquet", "names": file.schema_arrow.names}
    if plain.endswith(".npy"):
        width = read_header(storage, first).width
        return {"uri": uri, "format": "npy", "names": [*range(width)]}
    if not plain.endswith((".csv", ".tsv")):
        raise InputError(
            f"{first.uri} is neither parquet, csv, tsv nor npy by its name; name it so"
        )
    kind = plain[-3:]
    with storage.open(first.uri) as file:
        stream = pa.input_stream(io.BufferedReader(file), compression=_compression(first.uri))
        line = stream.read(_LINE_BYTES).split(b"\n", 1)[0].decode("utf-8", "replace").strip("\r")
    names = next(csv.reader([line], delimiter="\t" if kind == "tsv" else ","), [])
    if any(_is_number(name) for name in names):
        return {"uri": uri, "format": kind, "header": False, "names": [*range(len(names))]}
    return {"uri": uri, "format": kind, "names": names}


def _compression(uri: str) -> str | None:
    return {"gz": "gzip", "zst": "zstd"}.get(uri.rpartition(".")[2])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _columns(
    names: list[Column], ends: tuple[str, str] | None, weight: str | None, uri: str
) -> Columns:
    """Which columns are read."""
    lower = {str(name).lower(): name for name in names}
    wanted = [*(ends or ()), *([weight] if weight else [])]
    unknown = [name for name in wanted if name not in map(str, names)]
    if unknown or len(names) < 2:
        have = ", ".join(map(str, names)) or "none"
        what = f"no column {unknown[0]!r}" if unknown else "no two columns"
        raise InputError(f"{uri} has {what}; its columns are {have}")
    by_text = {str(name): name for name in names}
    if ends is None:
        known = [pair for pair in ENDS if all(name in lower for name in pair)]
        pair = (lower[known[0][0]], lower[known[0][1]]) if known else (names[0], names[1])
    else:
        pair = (by_text[ends[0]], by_text[ends[1]])
    found = [lower[name] for name in WEIGHT if name in lower]
    third = by_text[weight] if weight else found[0] if found else None
    return Columns(*pair, third)


def _given(columns: Columns) -> dict[str, Column]:
    given = {"source": columns.source, "destination": columns.destination}
    return given if columns.weight is None else given | {"weight": columns.weight}


def _ids(storage: Storage, edge: EdgeInput) -> tuple[tuple[pa.Array, pa.Array], int]:
    """Both ends' ids, each once, and how many edges there are; numbers where all are."""
    try:
        return _read_ids(storage, edge, "int64")
    except InputError as error:
        try:
            return _read_ids(storage, edge, "string")
        except InputError:
            raise error from None


def _read_ids(
    storage: Storage, edge: EdgeInput, kind: IdKind
) -> tuple[tuple[pa.Array, pa.Array], int]:
    ids: IdKind = kind
    empty = pa.array([], pa.int64() if kind == "int64" else pa.large_string())
    ends, count = (empty, empty), 0
    for split in split_edges(storage, edge, ids=(ids, ids)):
        batches = list[tuple[pa.Array, pa.Array]]()
        for batch in read_edges(storage, edge, (ids, ids), split):
            count += len(batch)
            batches.append((_unique([batch.source]), _unique([batch.destination])))
        ends = (
            _unique([ends[0], *(some for some, _ in batches)]),
            _unique([ends[1], *(some for _, some in batches)]),
        )
    return ends, count


def _unique(arrays: Iterable[Any]) -> pa.Array:
    kept = [pa.array(some) if isinstance(some, np.ndarray) else some for some in arrays]
    kept = [s.cast(pa.large_string()) if not pa.types.is_integer(s.type) else s for s in kept]
    return pc.unique(pa.chunked_array(kept))


def _node(storage: Storage, folder: str, kind: str, ids: pa.Array) -> dict[str, Any]:
    """A node type: counted where its ids nearly are, else listed in a table that is written."""
    named = {} if kind == "node" else {"name": kind}
    if pa.types.is_integer(ids.type):
        low, high = pc.min_max(ids).as_py().values()
        if low >= 0 and len(ids) >= _DENSE_SHARE * (high + 1):
            return named | {"count": high + 1}
    uri = f"{folder.rstrip('/')}/{kind}s.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ids.sort()}), sink)
    storage.write(uri, sink.getvalue().to_pybytes())
    return named | {
        "ids": "int64" if pa.types.is_integer(ids.type) else "string",
        "table": {"uri": uri},
    }
