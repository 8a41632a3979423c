"""Columns of parquet files decoded natively: numbers and strings without nulls or nesting.

In about half of the time of pyarrow, since nothing is built value by value and what was just
unpacked is read from the cache. Without native kernels there is nothing here: readers use pyarrow,
as they do for whatever this does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from embertide.kernels import native

_WIDTHS = {
    pa.int32(): 4,
    pa.uint32(): 4,
    pa.int64(): 8,
    pa.uint64(): 8,
    pa.float32(): 4,
    pa.float64(): 8,
    pa.string(): 0,
    pa.large_string(): 0,
}
"""Bytes of a value; 0 of strings."""
_PHYSICAL = {4: ("INT32", "FLOAT"), 8: ("INT64", "DOUBLE"), 0: ("BYTE_ARRAY",)}
_ENCODINGS = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings of values and of levels that are decoded here."""


class NotDecoded(Exception):
    """A page holds what is not known here: nulls, another encoding, or damage."""


@dataclass(frozen=True)
class Stored:
    """Where a column's values in a row group are, and how they are stored.

    Attributes:
        kind: pyarrow's type of the column.
        offset, length: of the column chunk, in bytes.
        snappy: whether its pages are compressed, with Snappy.
        levels: whether its values may be null.
    """

    kind: Any
    offset: int
    length: int
    snappy: bool
    levels: bool


def stored(kind: Any, chunk: Any, column: Any) -> Stored | None:
    """How a column is stored in a row group; None where it cannot be decoded here.

    Args:
        kind: pyarrow's type of the column.
        chunk: pyarrow's metadata of its chunk.
        column: pyarrow's schema of the stored column.
    """
    width = _WIDTHS.get(kind)
    if (
        native.lib is None
        or width is None
        or chunk.physical_type not in _PHYSICAL[width]
        or chunk.compression not in ("SNAPPY", "UNCOMPRESSED")
        or not _ENCODINGS.issuperset(chunk.encodings)
        or column.max_repetition_level > 0
        or column.max_definition_level > 1
    ):
        return None
    first, last = where_stored(chunk)
    levels = column.max_definition_level == 1
    return Stored(kind, first, last - first, chunk.compression == "SNAPPY", levels)


def footer_problem(footer: bytes) -> str:
    """What is wrong in a footer over which arrow would end the process; "" for nothing, or without
    native kernels. All else that is wrong arrow refuses by itself.

    Args:
        footer: its metadata alone, without its length and the magic bytes.
    """
    return "" if native.lib is None else str(native.lib.footer_problem(footer))


def where_stored(chunk: Any) -> tuple[int, int]:
    """The first byte of a column chunk, and the one after its last."""
    first = chunk.data_page_offset
    if chunk.dictionary_page_offset:
        first = min(first, chunk.dictionary_page_offset)
    return first, first + chunk.total_compressed_size


class ColumnChunk:
    """Values of a column in a row group, from the first on.

    Args:
        descriptor: of the file, open as long as values are read.
    """

    def __init__(self, descriptor: int, at: Stored) -> None:
        self._width = _WIDTHS[at.kind]
        self._kind = at.kind
        self._chunk = native.lib.ColumnChunk(
            descriptor, at.offset, at.length, self._width, at.snappy, at.levels
        )

    def read(self, count: int) -> Any:
        """The next ``count`` values as an arrow array of the column's type.

        Raises:
            NotDecoded: there are fewer, or they cannot be decoded here.
        """
        try:
            return self._read_numbers(count) if self._width else self._read_strings(count)
        except ValueError as error:
            raise NotDecoded(str(error)) from error

    def _read_numbers(self, count: int) -> Any:
        values = pa.allocate_buffer(count * self._width)
        self._chunk.read_numbers(np.frombuffer(values, np.uint8))
        return pa.Array.from_buffers(self._kind, count, [None, values])

    def _read_strings(self, count: int) -> Any:
        offsets = pa.allocate_buffer((count + 1) * 4)
        text = pa.allocate_buffer(self._chunk.read_strings(np.frombuffer(offsets, np.int32)))
        self._chunk.read_text(np.frombuffer(text, np.uint8))
        found = pa.Array.from_buffers(pa.string(), count, [None, offsets, text])
        return found if self._kind == pa.string() else found.cast(self._kind)
