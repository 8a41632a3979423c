"""Scores of pairs in a published version: parquet parts with the ids of both nodes.

    _scores/part-00000.parquet   columns source, destination, score (float32, or
                                 fixed_size_list[k] where a pair gets several numbers)

The underscore keeps the folder out of what readers of a version's folder take for its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from embertide.errors import InputError, OutputError
from embertide.io.readers.splits import map_objects
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import latest
from embertide.io.versions.manifest import read_manifest, score_digests
from embertide.io.versions.parts import PartDigest, verify_object
from embertide.io.versions.sinks import HashedSink
from embertide.io.versions.stored import find_object, readable
from embertide.kernels.arrow import to_arrow
from embertide.spec.version_names import version_uri

FOLDER = "_scores"
ScoredBatch = tuple[Any, Any, npt.NDArray[np.float32]]
"""(sources, destinations, scores): ids ``np.int64 [n]`` or arrow strings, ``float32 [n, k]``."""


def write_scores(
    storage: Storage,
    version: str,
    rank: int,
    kinds: tuple[str, str],
    width: int,
    batches: Iterable[ScoredBatch],
) -> PartDigest:
    """Write a worker's scores, read them back, and return their digest.

    Args:
        version: URI of the version.
        kinds: of the ids of both ends: ``dense``, ``int64`` or ``string``.
        width: k, numbers of a pair.

    Raises:
        OutputError, StorageError: the part cannot be written, or is not as written.
    """  # fmt: skip
    name = f"{FOLDER}/part-{rank:05d}.parquet"
    schema, rows = _schema(kinds, width), 0
    with storage.create(f"{version}/{name}") as stream:
        sink = HashedSink(stream)
        writer = pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd")
        for sources, destinations, scores in batches:
            columns = [_ids(sources), _ids(destinations), _scores(scores, schema.field(2).type)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            rows += len(scores)
        writer.close()
    verify_object(storage, f"{version}/{name}", sink.size, sink.checksum)
    return PartDigest(name, rows, sink.size, sink.sha256)


def _schema(kinds: tuple[str, str], width: int) -> Any:
    ids = [pa.large_string() if kind == "string" else pa.int64() for kind in kinds]
    element = pa.field("element", pa.float32(), nullable=False)
    score = pa.float32() if width == 1 else pa.list_(element, width)
    fields = zip(("source", "destination", "score"), (*ids, score), strict=True)
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


def _ids(ids: Any) -> Any:
    if isinstance(ids, np.ndarray):
        return to_arrow(ids.astype(np.int64, copy=False))
    return ids.cast(pa.large_string())


def _scores(values: npt.NDArray[np.float32], kind: Any) -> Any:
    flat = to_arrow(np.ascontiguousarray(values).reshape(-1))
    return flat if kind == pa.float32() else pa.FixedSizeListArray.from_arrays(flat, type=kind)


def read_score_table(storage: Storage, output_uri: str, version: str | None = None) -> Any:
    """All scores of a version (default: the current one) as a ``pyarrow.Table``.

    The columns are ``source``, ``destination`` and ``score``; rows are in the order of the pairs.

    Raises:
        InputError: the version has none.
        ObjectMissing: no such version; lists those there are.
        OutputError: a part is missing or damaged.
    """
    version = version if version is not None else latest(storage, output_uri).version
    manifest, _ = read_manifest(storage, output_uri, version)
    uri, parts = version_uri(output_uri, version), score_digests(manifest)
    if not parts:
        raise InputError(f"{uri} has no scores: its job had no spec.input.pairs")
    return pa.concat_tables(map_objects(parts, lambda part: _table(storage, uri, part)))


def _table(storage: Storage, uri: str, part: PartDigest) -> Any:
    place = f"{uri}/{part.name}"
    with readable(place):
        info = find_object(storage, place)
        with storage.open(place, info) as raw:
            table = pq.ParquetFile(pa.PythonFile(raw, mode="r")).read(use_threads=False)
    if table.num_rows != part.rows:
        raise OutputError(f"{place} has {table.num_rows} rows, {part.rows} were written")
    return table


def batches_of(
    sources: Any, destinations: Any, scores: Iterable[npt.NDArray[np.float32]]
) -> Iterator[ScoredBatch]:
    """Ids beside the scores that belong to them, batch by batch."""
    first = 0
    for values in scores:
        last = first + len(values)
        yield sources[first:last], destinations[first:last], values
        first = last
