"""Made-up edges and features of any size into a store, a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from embertide.edge.synth.graphs import (
    EDGE_FEATURES,
    FEATURES,
    WEIGHTS,
    Int64s,
    edge_maker,
    generator,
)
from embertide.edge.synth.options import SynthOptions
from embertide.edge.synth.tables import Part, npy_writer, plan_files, table_writer
from embertide.io.storage.protocol import Storage

CHUNK_EDGES = 1 << 20
_FEATURE_CHUNK_BYTES = 16 << 20
_FEATURE_FILE_BYTES = 256 << 20
_ID_MULTIPLIER = 0x1E3779B97F4A7C15
"""Odd, so that multiplying modulo 2**63 keeps ids apart; looks like ids of a real system."""

Progress = Callable[[str, int, int], None]
"""(what is written, rows done, rows in all), called after every group of rows."""


@dataclass(frozen=True)
class Written:
    """Objects and rows of one kind."""

    uris: tuple[str, ...]
    rows: int


def external_ids(dense: Int64s, kind: str) -> Any:
    """Ids as the outside world would have them: int64 numpy, or an arrow array of strings."""
    if kind == "dense":
        return dense
    if kind == "int64":
        mixed = dense.astype(np.uint64) * np.uint64(_ID_MULTIPLIER)
        return (mixed & np.uint64(2**63 - 1)).astype(np.int64)
    return pc.binary_join_element_wise("n", pa.array(dense).cast(pa.string()), "")


def write_edges(
    storage: Storage,
    uri: str,
    options: SynthOptions,
    progress: Progress,
    destinations: int | None = None,
) -> Written:
    """Write all edges under ``uri``; the graph does not depend on format or file sizes.

    Args:
        destinations: how many nodes there are that edges may lead to, where these are others.
    """
    files = plan_files(options.edges, CHUNK_EDGES, options.rows_per_group, options.rows_per_file)
    chunks = _Chunks(options, destinations)
    uris, done = [], 0
    for i, parts in enumerate(files):
        uris.append(f"{uri}part-{i:05}.{options.edge_format}")
        write = _edges_npy if options.edge_format == "npy" else _edges_table
        for rows in write(storage, uris[-1], options, chunks, parts):
            done += rows
            progress("edges", done, options.edges)
    return Written(tuple(uris), done)


class _Chunks:
    """Edges of a part; the chunk last drawn is kept, since parts come in order."""

    def __init__(self, options: SynthOptions, destinations: int | None) -> None:
        self._options = options
        self._make = edge_maker(options, destinations)
        self._chunk = -1
        self._edges: tuple[Int64s, Int64s] = (np.empty(0, np.int64), np.empty(0, np.int64))

    def ends(self, part: Part) -> tuple[Int64s, Int64s]:
        """Dense (sources, destinations)."""
        chunk, start, stop = part
        if chunk != self._chunk:
            size = min(CHUNK_EDGES, self._options.edges - chunk * CHUNK_EDGES)
            self._edges, self._chunk = self._make(chunk, size), chunk
        source, destination = self._edges
        return source[start:stop], destination[start:stop]

    def features(self, part: Part) -> npt.NDArray[np.float32]:
        """[edges, K] normally distributed."""
        chunk, start, stop = part
        drawn = generator(self._options.seed, EDGE_FEATURES, chunk)
        shape = (stop, self._options.edge_features)
        return drawn.standard_normal(shape, dtype=np.float32)[start:]

    def weights(self, part: Part) -> npt.NDArray[np.float32]:
        """Weights in (0, 1]."""
        chunk, start, stop = part
        drawn = generator(self._options.seed, WEIGHTS, chunk).random(stop, dtype=np.float32)
        return np.float32(1) - drawn[start:]


def _edges_table(
    storage: Storage, uri: str, options: SynthOptions, chunks: _Chunks, parts: list[Part]
) -> Iterator[int]:
    held = _id_type(options.ids)
    fields = [("src", held), ("dst", held)]
    names = (["weight"] if options.weights else []) + edge_feature_names(options)
    schema = pa.schema([*fields, *((name, pa.float32()) for name in names)])
    with table_writer(storage, uri, options.edge_format, schema) as writer:
        for part in parts:
            source, destination = chunks.ends(part)
            columns = {
                "src": external_ids(source, options.ids),
                "dst": external_ids(destination, options.ids),
            }
            if options.weights:
                columns["weight"] = chunks.weights(part)
            if options.edge_features:
                columns |= zip(edge_feature_names(options), chunks.features(part).T, strict=True)
            writer.write(columns)
            yield len(source)


def _edges_npy(
    storage: Storage, uri: str, options: SynthOptions, chunks: _Chunks, parts: list[Part]
) -> Iterator[int]:
    rows = sum(stop - start for _, start, stop in parts)
    # One array has one type: beside weights and features, ids are floats too.
    width = 2 + options.weights + options.edge_features
    dtype = np.float64 if width > 2 else np.int64
    with npy_writer(storage, uri, (rows, width), dtype) as file:
        for part in parts:
            ends = chunks.ends(part)
            values = np.empty((len(ends[0]), width), dtype)
            for column, dense in enumerate(ends):
                values[:, column] = external_ids(dense, options.ids)
            if options.weights:
                values[:, 2] = chunks.weights(part)
            if options.edge_features:
                values[:, -options.edge_features :] = chunks.features(part)
            file.write(values.data)
            yield len(values)


def edge_feature_names(options: SynthOptions) -> list[str]:
    """Names of the columns with features of edges."""
    return [f"e{number}" for number in range(options.edge_features)]


def _id_type(kind: str) -> Any:
    return pa.string() if kind == "string" else pa.int64()


def write_features(
    storage: Storage, uri: str, ids_uri: str, options: SynthOptions, progress: Progress
) -> Written:
    """Write one row of normally distributed features for every node, in order of dense ids.

    npy ids go under ``ids_uri``; dense ones need none, since rows are in their order.
    """
    row_bytes = 4 * options.width
    group = max(1, _FEATURE_CHUNK_BYTES // row_bytes)
    files = plan_files(options.nodes, group, group, max(1, _FEATURE_FILE_BYTES // row_bytes))
    uris, done = [], 0
    for i, parts in enumerate(files):
        name = f"part-{i:05}.{options.feature_format}"
        uris.append(uri + name)
        if options.feature_format == "npy":
            rows_of = _features_npy(storage, uris[-1], ids_uri + name, options, parts, group)
            uris += [ids_uri + name] if options.ids != "dense" else []
        else:
            rows_of = _features_parquet(storage, uris[-1], options, parts, group)
        for rows in rows_of:
            done += rows
            progress("features", done, options.nodes)
    return Written(tuple(uris), done)


def write_nodes(storage: Storage, uri: str, options: SynthOptions) -> Written:
    """Write the list of nodes under ``uri``, where no features name them."""
    object_uri, group = f"{uri}part-00000.parquet", CHUNK_EDGES
    schema = pa.schema([("id", _id_type(options.ids))])
    with table_writer(storage, object_uri, "parquet", schema) as writer:
        for (part,) in plan_files(options.nodes, group, group, group):
            writer.write({"id": external_ids(_dense_ids(part, group), options.ids)})
    return Written((object_uri,), options.nodes)


def _values(options: SynthOptions, part: Part) -> npt.NDArray[np.float32]:
    chunk, start, stop = part
    shape = (stop - start, options.width)
    return generator(options.seed, FEATURES, chunk).standard_normal(shape, dtype=np.float32)


def _dense_ids(part: Part, group: int) -> Int64s:
    chunk, start, stop = part
    return np.arange(chunk * group + start, chunk * group + stop, dtype=np.int64)


def _features_parquet(
    storage: Storage, uri: str, options: SynthOptions, parts: list[Part], group: int
) -> Iterator[int]:
    vector = pa.list_(pa.float32(), options.width)
    schema = pa.schema([("id", _id_type(options.ids)), ("x", vector)])
    with table_writer(storage, uri, "parquet", schema) as writer:
        for part in parts:
            ids = external_ids(_dense_ids(part, group), options.ids)
            writer.write({"id": ids, "x": _values(options, part)})
            yield part[2] - part[1]


def _features_npy(
    storage: Storage,
    uri: str,
    ids_uri: str,
    options: SynthOptions,
    parts: list[Part],
    group: int,
) -> Iterator[int]:
    rows = sum(stop - start for _, start, stop in parts)
    with npy_writer(storage, uri, (rows, options.width), np.float32) as file:
        for part in parts:
            file.write(_values(options, part).data)
            yield part[2] - part[1]
    if options.ids == "dense":
        return
    dtype = (
        np.dtype("<i8") if options.ids == "int64" else np.dtype(f"<U{len(str(options.nodes)) + 1}")
    )
    with npy_writer(storage, ids_uri, (rows,), dtype) as file:
        for part in parts:
            ids = external_ids(_dense_ids(part, group), options.ids)
            file.write(np.asarray(ids).astype(dtype).data)
