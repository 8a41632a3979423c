"""Rows as the bytes that an index reads; every format writes front to back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embertide.edge.indexes.layout import Layout
from embertide.io.versions.sinks import HashedSink
from embertide.kernels.arrow import to_arrow

_PGCOPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_PGCOPY_END = b"\xff\xff"
_LENGTH = np.dtype(">i4")


class Writer(Protocol):
    """A file that is being written."""

    def add(self, piece: Any) -> None:
        """Append rows as the format has encoded them."""

    def finish(self) -> None:
        """All rows are in it."""


class Format(Protocol):
    """A format of files.

    Attributes:
        suffix: of files' names.
        row_bytes: of one row, about.
    """

    suffix: str
    row_bytes: int

    def encode(self, ids: Any, values: npt.NDArray[Any]) -> Any:
        """Rows ready for a file: ids [n] as an arrow array, and values [n, D]."""

    def size(self, piece: Any) -> int:
        """Bytes of what was encoded, at most, within a file."""

    def open(self, sink: HashedSink) -> Writer:
        """A new file."""


def format_of(
    layout: Layout, ids: Any, dim: int, constants: Mapping[str, Any] | None = None
) -> Format:
    """The format of a layout.

    Args:
        ids: arrow type of the ids as they are written.
        dim: D.
        constants: of parquet: column -> the arrow scalar that it has in each row.
    """
    if layout.format == "parquet":
        return Parquet(layout, ids, dim, constants or {})
    if layout.format == "pgcopy":
        return PgCopy(layout, dim)
    return JsonLines(layout, dim)


class Parquet:
    """Row groups with the columns of ids and vectors, and columns of one value each."""

    suffix = ".parquet"

    def __init__(
        self, layout: Layout, ids: Any, dim: int, constants: Mapping[str, Any] | None = None
    ) -> None:
        self._constants = constants or {}
        dtype = np.dtype(layout.vectors)
        self._bytes = layout.half_bytes and layout.vectors == "float16"
        value = pa.uint8() if self._bytes else pa.from_numpy_dtype(dtype)
        self._width = dim * dtype.itemsize if self._bytes else dim
        self._fixed = layout.lists == "fixed"
        element = pa.field("element", value, nullable=False)
        vectors = pa.list_(element, self._width) if self._fixed else pa.list_(element)
        # Indexes that read lists read strings with 32-bit offsets.
        text = pa.large_string() if self._fixed else pa.string()
        self.schema = pa.schema(
            [
                pa.field(
                    layout.id_column, ids if pa.types.is_integer(ids) else text, nullable=False
                ),
                pa.field(layout.vector_column, vectors, nullable=False),
                *(pa.field(name, value.type) for name, value in self._constants.items()),
            ]
        )
        self.row_bytes = dim * dtype.itemsize + 16

    def encode(self, ids: Any, values: npt.NDArray[Any]) -> Any:
        """A record batch, which becomes a row group."""
        flat = to_arrow(
            np.ascontiguousarray(values).view(np.uint8 if self._bytes else values.dtype).reshape(-1)
        )
        kind = self.schema.field(1).type
        if self._fixed:
            vectors = pa.FixedSizeListArray.from_arrays(flat, type=kind)
        else:
            offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * self._width)
            vectors = pa.ListArray.from_arrays(offsets, flat, type=kind)
        ids = ids.cast(self.schema.field(0).type)
        same = [pa.repeat(value, len(values)) for value in self._constants.values()]
        return pa.RecordBatch.from_arrays([ids, vectors, *same], schema=self.schema)

    def size(self, piece: Any) -> int:
        """Uncompressed; what parquet adds to it is small."""
        return int(piece.nbytes)

    def open(self, sink: HashedSink) -> Writer:
        """A parquet file."""
        return _ParquetWriter(sink, self.schema)


class _ParquetWriter:
    def __init__(self, sink: HashedSink, schema: Any) -> None:
        name = schema.field(0).name
        self._writer = pq.ParquetWriter(
            pa.PythonFile(sink, mode="w"),
            schema,
            compression={name: "zstd"},
            use_dictionary=False,
            write_statistics=[name],
        )

    def add(self, piece: Any) -> None:
        self._writer.write_batch(piece)

    def finish(self) -> None:
        self._writer.close()


class _Bytes:
    """A file of plain bytes."""

    def __init__(self, sink: HashedSink, first: bytes = b"", last: bytes = b"") -> None:
        self._sink, self._last = sink, last
        self._sink.write(first)

    def add(self, piece: bytes) -> None:
        self._sink.write(piece)

    def finish(self) -> None:
        self._sink.write(self._last)


class JsonLines:
    """A line for each row: Vertex' records, or an action and a document of OpenSearch's bulk API.

    Values have as few digits as give the same float32 again.
    """

    def __init__(self, layout: Layout, dim: int) -> None:
        self.suffix = ".json" if layout.format == "vertex" else ".ndjson"
        self._line = (
            _vertex_line if layout.format == "vertex" else _bulk_lines(layout.vector_column)
        )
        self.row_bytes = dim * (4 if layout.vectors == "int8" else 13) + 64

    def encode(self, ids: Any, values: npt.NDArray[Any]) -> bytes:
        """The lines."""
        numbers = pc.cast(to_arrow(np.ascontiguousarray(values).reshape(-1)), pa.string())
        offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * values.shape[1])
        joined = pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), ",").to_pylist()
        names = map(_json_text, ids.to_pylist())
        return "".join(map(self._line, names, joined)).encode()

    def size(self, piece: bytes) -> int:
        """Exactly."""
        return len(piece)

    def open(self, sink: HashedSink) -> Writer:
        """A file of lines."""
        return _Bytes(sink)


def _json_text(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _vertex_line(name: str, values: str) -> str:
    return f'{{"id":{name},"embedding":[{values}]}}\n'


def _bulk_lines(column: str) -> Callable[[str, str], str]:
    field = _json_text(column)

    def lines(name: str, values: str) -> str:
        return f'{{"index":{{"_id":{name}}}}}\n{{{field}:[{values}]}}\n'

    return lines


class PgCopy:
    """PostgreSQL's binary COPY with an id (bigint or text) and a vector or halfvec of pgvector."""

    suffix = ".pgcopy"

    def __init__(self, layout: Layout, dim: int) -> None:
        self._dtype = np.dtype(layout.vectors).newbyteorder(">")
        self._dim = dim
        self.row_bytes = dim * self._dtype.itemsize + 24

    def encode(self, ids: Any, values: npt.NDArray[Any]) -> bytes:
        """The tuples of the rows."""
        vectors = np.empty(len(values), self._vector_type())
        vectors["length"] = 4 + self._dim * self._dtype.itemsize
        vectors["dim"], vectors["unused"], vectors["values"] = self._dim, 0, values
        if pa.types.is_integer(ids.type):
            rows = np.empty(
                len(values),
                [("head", ">i2"), ("size", ">i4"), ("id", ">i8"), ("vector", vectors.dtype)],
            )
            rows["head"], rows["size"], rows["id"], rows["vector"] = 2, 8, ids.to_numpy(), vectors
            return rows.tobytes()
        width, data = vectors.dtype.itemsize, vectors.tobytes()
        pieces = []
        for row, name in enumerate(ids.to_pylist()):
            text = name.encode()
            head = b"\0\2" + len(text).to_bytes(4, "big")
            pieces += [head, text, data[row * width : (row + 1) * width]]
        return b"".join(pieces)

    def _vector_type(self) -> np.dtype[Any]:
        return np.dtype(
            [
                ("length", _LENGTH),
                ("dim", ">i2"),
                ("unused", ">i2"),
                ("values", self._dtype, (self._dim,)),
            ]
        )

    def size(self, piece: bytes) -> int:
        """Exactly, but for the header and the end."""
        return len(piece)

    def open(self, sink: HashedSink) -> Writer:
        """A file for ``COPY ... FROM ... WITH (FORMAT binary)``."""
        return _Bytes(sink, _PGCOPY_HEADER, _PGCOPY_END)

    @staticmethod
    def framed(pieces: Any) -> Any:
        """Encoded pieces as one stream, with its header and its end."""
        yield _PGCOPY_HEADER
        yield from pieces
        yield _PGCOPY_END
