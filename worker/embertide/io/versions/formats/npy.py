"""Parts in npy: an array with the values, and an object beside it with the ids of its rows.

part-00000.npy          [n, D]
part-00000.ids.npy      [n] int64, or with string ids
part-00000.ids.parquet  column id: numpy stores strings of one length only, as long as the
                        longest, or pickled
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.errors import OutputError
from embertide.io.readers.npy import Header, read_header, read_rows
from embertide.io.storage.protocol import Storage
from embertide.io.versions.formats.parquet import ParquetSink, id_batches, id_column
from embertide.io.versions.formats.protocol import PartFormat, PartShape, Sink, StoredPart
from embertide.io.versions.keys import KeyRange, key_words
from embertide.io.versions.rows import Batch, Ids, batch_rows, ids_of, table_of
from embertide.io.versions.sinks import HashedSink
from embertide.io.versions.stored import find_object, readable
from embertide.kernels.arrow import to_arrow

_TEXT_IDS = ".ids.parquet"


class NpySink:
    """One array whose shape is known from the start, in C order and little-endian.

    With ``of_ids`` it takes the ids, else the values.
    """

    def __init__(
        self, sink: HashedSink, dtype: np.dtype[Any], shape: tuple[int, ...], of_ids: bool = False
    ) -> None:
        self._sink, self._dtype, self._of_ids = sink, dtype.newbyteorder("<"), of_ids
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(sink, header)

    def write(self, ids: Any, values: npt.NDArray[Any]) -> None:
        """Append n values."""
        rows = ids if self._of_ids else values
        if len(rows):
            self._sink.write(np.ascontiguousarray(rows, self._dtype))

    def finish(self) -> None:
        """Nothing to write: the header came first and names the shape."""


class _Npy(PartFormat):
    def sinks(self, create: Callable[[str], HashedSink], shape: PartShape) -> list[Sink]:
        values = NpySink(create(".npy"), shape.dtype, (shape.rows, shape.width))
        if shape.ids_kind == "string":
            return [values, ParquetSink(create(_TEXT_IDS), "string")]
        ids = NpySink(create(".ids.npy"), np.dtype(np.int64), (shape.rows,), of_ids=True)
        return [values, ids]

    def table(self, part: StoredPart) -> Any:
        return table_of(_id_column(part), _array(part.storage, part.uri))

    def batches(self, part: StoredPart, width: int) -> Iterator[Batch]:
        storage = part.storage
        with readable(part.uri):
            info = find_object(storage, part.uri)
            header = read_header(storage, info)
            with storage.open(info.uri, info) as file:
                file.seek(header.offset)
                for ids in _id_batches(part, batch_rows(width)):
                    yield ids, _next_rows(file, header, len(ids))

    def ids(self, part: StoredPart) -> Ids:
        column = _id_column(part)
        return ids_of(column.combine_chunks() if hasattr(column, "combine_chunks") else column)

    def batches_near(
        self, part: StoredPart, width: int, kind: str, keys: KeyRange
    ) -> Iterator[Batch]:
        ids, storage = self.ids(part), part.storage
        (inside,) = np.nonzero(keys.mask(key_words(ids, kind)))
        if not len(inside):
            return
        first, last = int(inside[0]), int(inside[-1]) + 1
        with readable(part.uri):
            info = find_object(storage, part.uri)
            header = read_header(storage, info)
            for values, _ in read_rows(storage, info, header, first, last, batch_rows(width)):
                yield ids[first : first + len(values)], values.astype(np.float32, copy=False)
                first += len(values)


FORMAT = _Npy()


def _id_column(part: StoredPart) -> Any:
    """All ids as an arrow column or array."""
    uri = _ids_uri(part)
    if uri.endswith(_TEXT_IDS):
        return id_column(part.storage, uri, part.ids_size)
    return to_arrow(_array(part.storage, uri)[:, 0])


def _id_batches(part: StoredPart, rows: int) -> Iterator[Ids]:
    uri, storage = _ids_uri(part), part.storage
    if uri.endswith(_TEXT_IDS):
        yield from id_batches(storage, uri, part.ids_size, rows)
        return
    with readable(uri):
        info = find_object(storage, uri)
        header = read_header(storage, info)
        for array, _ in read_rows(storage, info, header, 0, header.rows, rows):
            yield array[:, 0]


def _ids_uri(part: StoredPart) -> str:
    if part.ids_uri is None:
        raise OutputError(
            f"the manifest of a published version names no ids for {part.uri}; go back to another"
            " version with embertide rollback, or run the job again"
        )
    return part.ids_uri


def _array(storage: Storage, uri: str) -> npt.NDArray[Any]:
    """``[n, width]`` in the stored dtype; a list of values is one column."""
    with readable(uri):
        info = find_object(storage, uri)
        header = read_header(storage, info)
        empty = np.empty((0, header.width), header.dtype)
        rows = read_rows(storage, info, header, 0, header.rows, max(1, header.rows))
        return next((array for array, _ in rows), empty)


def _next_rows(file: Any, header: Header, rows: int) -> npt.NDArray[np.float32]:
    """``float32 [rows, D]`` from where the file is."""
    values = np.empty((rows, header.width), header.dtype)
    as_bytes: Any = values.view(np.uint8)
    view = memoryview(as_bytes).cast("B")
    while len(view):
        got = file.read(len(view))
        if not got:
            raise EOFError("it ends early")
        view[: len(got)] = got
        view = view[len(got) :]
    return values.astype(np.float32, copy=False)
