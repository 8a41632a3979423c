"""Parts in parquet: one object with the columns id and embedding (fixed_size_list[D]).

Ids alone are a part, too, without the second column.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embertide.io.storage.protocol import BLOCK_BYTES, Storage
from embertide.io.versions.formats.protocol import PartFormat, PartShape, Sink, StoredPart
from embertide.io.versions.keys import Key, KeyRange, key_at, key_words
from embertide.io.versions.rows import (
    ID_COLUMN,
    VECTOR_COLUMN,
    Batch,
    Ids,
    batch_rows,
    ids_of,
    schema_of,
    values_of,
)
from embertide.io.versions.sinks import HashedSink
from embertide.io.versions.stored import find_object, readable
from embertide.kernels.arrow import to_arrow

_BUFFER_BYTES = 1 << 20


class ParquetSink:
    """One row group for each batch; without ``width`` the ids alone."""

    def __init__(
        self,
        sink: HashedSink,
        ids_kind: str,
        dtype: np.dtype[Any] | None = None,
        width: int | None = None,
    ) -> None:
        self._schema = schema_of(ids_kind, dtype, width)
        # Embeddings are noise to a compressor: dictionaries and statistics cost time and space.
        self._writer = pq.ParquetWriter(
            pa.PythonFile(sink, mode="w"),
            self._schema,
            compression={ID_COLUMN: "zstd"},
            use_dictionary=False,
            write_statistics=[ID_COLUMN],
        )

    def write(self, ids: Any, values: npt.NDArray[Any]) -> None:
        """Append one row group."""
        columns = [to_arrow(ids) if isinstance(ids, np.ndarray) else ids]
        if len(self._schema) > 1:
            flat = to_arrow(values.reshape(-1))
            columns.append(pa.FixedSizeListArray.from_arrays(flat, type=self._schema.field(1).type))
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def finish(self) -> None:
        """Write the footer."""
        self._writer.close()


class _Parquet(PartFormat):
    def sinks(self, create: Callable[[str], HashedSink], shape: PartShape) -> list[Sink]:
        sink = create(".parquet")
        return [ParquetSink(sink, shape.ids_kind, shape.dtype, shape.width or None)]

    def table(self, part: StoredPart) -> Any:
        with _opened(part.storage, part.uri, part.size) as file:
            return file.read(use_threads=False)

    def batches(self, part: StoredPart, width: int) -> Iterator[Batch]:
        with _opened(part.storage, part.uri, part.size, buffer_size=_BUFFER_BYTES) as file:
            for batch in file.iter_batches(batch_rows(width), use_threads=False):
                yield _rows_of(batch, width)

    def ids(self, part: StoredPart) -> Ids:
        return ids_of(id_column(part.storage, part.uri, part.size).combine_chunks())

    def batches_near(
        self, part: StoredPart, width: int, kind: str, keys: KeyRange
    ) -> Iterator[Batch]:
        with _opened(part.storage, part.uri, part.size) as file:
            groups = list(_groups_near(file, kind, keys))
            for batch in file.iter_batches(batch_rows(width), groups, use_threads=False):
                yield _rows_of(batch, width)

    def rows_with(self, part: StoredPart, wanted: Any) -> Any:
        with _opened(part.storage, part.uri, part.size) as file:
            tables = [_group_with(file, group, wanted) for group in range(file.num_row_groups)]
            return pa.concat_tables([file.schema_arrow.empty_table(), *filter(None, tables)])

    def last_id(self, part: StoredPart) -> Ids:
        with _opened(part.storage, part.uri, part.size) as file:
            group = max(
                group
                for group in range(file.num_row_groups)
                if file.metadata.row_group(group).num_rows
            )
            ids = _ids_of_group(file, group).combine_chunks()
            return ids_of(ids.slice(len(ids) - 1))


FORMAT = _Parquet()


def id_column(storage: Storage, uri: str, size: int) -> Any:
    """The ids of an object of so many bytes as a column of a table.

    Raises:
        OutputError: it is missing or damaged.
    """
    with _opened(storage, uri, size) as file:
        return file.read([ID_COLUMN], use_threads=False)[ID_COLUMN]


def id_batches(storage: Storage, uri: str, size: int, rows: int) -> Iterator[Any]:
    """The ids of an object of ``size`` bytes as arrow arrays of so many rows.

    Raises:
        OutputError: it is missing or damaged.
    """
    with _opened(storage, uri, size, buffer_size=_BUFFER_BYTES) as file:
        for batch in file.iter_batches(rows, columns=[ID_COLUMN], use_threads=False):
            yield batch.column(ID_COLUMN)


@contextmanager
def _opened(storage: Storage, uri: str, size: int, buffer_size: int = 0) -> Iterator[Any]:
    """An object as a file of parquet: a small one in one request, a large one by ranges."""
    with readable(uri):
        if size <= BLOCK_BYTES:
            yield pq.ParquetFile(pa.BufferReader(storage.read(uri)), pre_buffer=False)
            return
        info = find_object(storage, uri)
        with storage.open(uri, info) as raw:
            source = pa.PythonFile(raw, mode="r")
            yield pq.ParquetFile(source, pre_buffer=False, buffer_size=buffer_size)


def _rows_of(batch: Any, width: int) -> Batch:
    return ids_of(batch.column(ID_COLUMN)), values_of(batch.column(VECTOR_COLUMN), width)


def _ids_of_group(file: Any, group: int) -> Any:
    return file.read_row_group(group, [ID_COLUMN], use_threads=False)[ID_COLUMN]


def _group_with(file: Any, group: int, wanted: Any) -> Any:
    """The ids first, which are a small part of a row group; its vectors where one is wanted."""
    mask = pc.is_in(_ids_of_group(file, group), wanted)
    if not pc.any(mask).as_py():
        return None
    return file.read_row_group(group, use_threads=False).filter(mask)


def _groups_near(file: Any, kind: str, keys: KeyRange) -> range:
    """The row groups that may have rows within a range, by bisection over their first ids."""
    groups = range(file.metadata.num_row_groups)

    def first_key(group: int) -> Key:
        ids = _ids_of_group(file, group).chunk(0).slice(0, 1)
        return key_at(key_words(ids_of(ids), kind), 0)

    low = 0 if keys.low is None else bisect.bisect_right(groups, keys.low, key=first_key) - 1
    high = (
        len(groups) if keys.high is None else bisect.bisect_left(groups, keys.high, key=first_key)
    )
    return range(max(0, low), high)
