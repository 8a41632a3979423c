"""Rows into objects, streamed: parquet, csv and npy writers that share one small interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from embertide.io.storage.protocol import Storage

Part = tuple[int, int, int]
"""(chunk, first row, last row + 1) within one chunk of random rows."""


class Writer(Protocol):
    """Takes the rows of one object."""

    def write(self, columns: dict[str, Any]) -> None:
        """Append rows: a 1-D or (for vectors) 2-D numpy array, or an arrow array, per column."""


def plan_files(
    rows: int, chunk_rows: int, rows_per_group: int, rows_per_file: int
) -> list[list[Part]]:
    """Which parts of which chunks go to which file; a file is full at ``rows_per_file``."""
    files: list[list[Part]] = [[]]
    held = 0
    for first in range(0, rows, chunk_rows):
        size = min(chunk_rows, rows - first)
        for start in range(0, size, rows_per_group):
            stop = min(size, start + rows_per_group)
            if held >= rows_per_file:
                files.append([])
                held = 0
            files[-1].append((first // chunk_rows, start, stop))
            held += stop - start
    return files


@contextmanager
def table_writer(storage: Storage, uri: str, form: str, schema: Any) -> Iterator[Writer]:
    """A parquet or csv object with the columns of ``schema``, visible on a clean end."""
    with ExitStack() as stack:
        sink = pa.PythonFile(stack.enter_context(storage.create(uri)), mode="w")
        if form == "csv":
            yield _Table(stack.enter_context(pc.CSVWriter(sink, schema)), schema)
        else:
            # Random numbers hardly repeat or compress: dictionaries would only cost time.
            writer = pq.ParquetWriter(sink, schema, compression="snappy", use_dictionary=False)
            yield _Table(stack.enter_context(writer), schema)


class _Table:
    def __init__(self, writer: Any, schema: Any) -> None:
        self._writer = writer
        self._schema = schema

    def write(self, columns: dict[str, Any]) -> None:
        arrays = [_to_arrow(columns[field.name], field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._writer.write_batch(batch)


def _to_arrow(values: Any, held: Any) -> Any:
    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = pa.array(values.ravel())
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.array(values, held) if isinstance(values, np.ndarray) else values


@contextmanager
def npy_writer(
    storage: Storage, uri: str, shape: Sequence[int], dtype: npt.DTypeLike
) -> Iterator[BinaryIO]:
    """An npy object of known shape: write the rows' bytes in order; visible on a clean end."""
    with storage.create(uri) as file:
        header = {
            "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
            "fortran_order": False,
            "shape": tuple(shape),
        }
        np.lib.format.write_array_header_1_0(file, header)
        yield file
