"""How rows become bytes: parquet and npy, written front to back (S3 cannot seek)."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_128

from embertide.kernels.arrow import to_arrow

ID_COLUMN, VECTOR_COLUMN = "id", "embedding"


_ASIDE_BYTES = 256 << 10
"""From this size on it pays to hash on another thread."""


class HashedSink:
    """Counts and hashes all bytes on their way; a file that arrow can write to.

    Large pieces are hashed by a thread while they are written.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: BinaryIO | None = stream
        self._hash, self._checksum = hashlib.sha256(), xxh3_128()
        self._aside = ThreadPoolExecutor(1, "hash")
        self.size = 0
        self.closed = False

    @property
    def sha256(self) -> str:
        """The SHA-256 of everything written, in hex."""
        return self._hash.hexdigest()

    @property
    def checksum(self) -> str:
        """XXH3 with 128 bits of everything written, in hex."""
        return self._checksum.hexdigest()

    def write(self, data: Any) -> int:
        """Pass on bytes or any C-contiguous buffer; returns its length in bytes."""
        view = memoryview(data).cast("B")
        if len(view) < _ASIDE_BYTES:
            self._pass_on(view)
            self._update(view)
        else:
            hashed = self._aside.submit(self._update, view)
            try:
                self._pass_on(view)
            finally:
                # The caller may change what was written once we return.
                hashed.result()
        self.size += len(view)
        return len(view)

    def _update(self, view: memoryview) -> None:
        self._hash.update(view)
        self._checksum.update(view)

    def _pass_on(self, view: memoryview) -> None:
        if self._stream is not None:
            self._stream.write(view)

    def detach(self) -> None:
        """Ignore all that follows: arrow writes a footer even when a writer is dropped."""
        self._stream = None
        self._aside.shutdown()

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def flush(self) -> None:
        """Nothing to do: the object appears when its stream is complete."""

    def close(self) -> None:
        """Arrow is done; the stream stays open for its owner."""
        self.closed = True


class Sink(Protocol):
    """Takes rows in order."""

    def write(self, ids: Any, values: npt.NDArray[Any]) -> None:
        """Append n rows: their ids and values ``[n, D]``."""

    def finish(self) -> None:
        """All rows were written."""


def schema_of(ids_kind: str, dtype: np.dtype[Any] | None, width: int | None) -> Any:
    """The columns of a part; without ``width`` the ids alone."""
    ids = pa.large_string() if ids_kind == "string" else pa.int64()
    fields = [pa.field(ID_COLUMN, ids, nullable=False)]
    if width is not None:
        element = pa.field("element", pa.from_numpy_dtype(dtype), nullable=False)
        fields.append(pa.field(VECTOR_COLUMN, pa.list_(element, width), nullable=False))
    return pa.schema(fields)


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
