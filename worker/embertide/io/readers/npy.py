"""npy: row ranges of one array, read without mapping the file (it may lie in an object store).

The header says where every row lies, in C and in Fortran order (which ``np.save(a.T)``
writes). Arrays of Python objects are refused: reading them would run code from the file.
"""

from __future__ import annotations

import io
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.errors import InputChanged, InputError
from embertide.io.readers.archives import ZIP, Stored, find_array
from embertide.io.readers.columns import Column
from embertide.io.readers.ids import to_text
from embertide.io.readers.recognise import refuse_other
from embertide.io.readers.splits import Split, split_ranges
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import BLOCK_BYTES, ObjectInfo, Span, Storage
from embertide.kernels.arrow import to_arrow

_HEADER_BYTES = 1 << 16
_DTYPE_KINDS = {"integer": "iuf", "text": "US", "id": "iufUS", "number": "iufb"}
_INTEGERS, _TEXT = "integers, or floats that are whole numbers", "strings, or bytes of UTF-8"
_WANTED = {
    "integer": _INTEGERS,
    "text": _TEXT,
    "id": f"{_INTEGERS}; or {_TEXT}",
    "number": "numbers",
}
_SURROGATE = "[\ud800-\udfff]"

HEADERS = threading.Lock()
"""Held while numpy reads a header, which it does with Python's own parser: before Python 3.13 that
counts how deep it is in one number for all threads, and raises SystemError where two interleave
(python/cpython#106905)."""


@dataclass(frozen=True)
class Header:
    """Shape, order and type of an array, and the byte where its values begin.

    ``in_archive``: it is a part of an npz, or of a file of torch.
    """

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int
    in_archive: bool = False

    @property
    def rows(self) -> int:
        """Length of the first dimension."""
        return self.shape[0]

    @property
    def width(self) -> int:
        """Length of the second dimension (1 for a plain list of values)."""
        return self.shape[1] if len(self.shape) > 1 else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row's values."""
        return self.width * self.dtype.itemsize

    def transposed(self) -> Header:
        """The same values with rows as columns."""
        return replace(self, shape=self.shape[::-1], fortran=not self.fortran)

    def spans(self, start: int, stop: int) -> list[Span]:
        """Where the rows ``[start, stop)`` are in the object: by columns, if those lie together."""
        item, width = self.dtype.itemsize, self.width
        if not self.fortran:
            bounds = [(start * width, stop * width)]
        else:
            bounds = [
                (self.rows * column + start, self.rows * column + stop) for column in range(width)
            ]
        return [(self.offset + first * item, self.offset + last * item) for first, last in bounds]

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` is the way back."""
        return asdict(self) | {"shape": list(self.shape), "dtype": self.dtype.str}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Header:
        """The header that :meth:`to_json` described."""
        return cls(
            tuple(data["shape"]),
            data["fortran"],
            np.dtype(data["dtype"]),
            data["offset"],
            data["in_archive"],
        )


def read_header(storage: Storage, info: ObjectInfo, key: str | None = None) -> Header:
    """The header, checked against the object's size; InputError when the two disagree.

    Args:
        key: the array of an npz, or of a file of torch; None: the only one.
    """
    count = min(_HEADER_BYTES, info.size)
    with storage.open(info.uri, info, [(0, count)]) as file:
        first = file.read(count)
    if not first.startswith(ZIP):
        if key is not None:
            raise InputError(f"{info.uri} is no npz or file of torch, which have keys; omit key")
        return _parse_header(info, first)
    found = find_array(storage, info, key)
    if found.shape is None:
        count = min(_HEADER_BYTES, found.size)
        with storage.open(info.uri, info, [(found.offset, found.offset + count)]) as file:
            file.seek(found.offset)
            first = file.read(count)
        header = _parse_header(replace(info, size=found.size), first)
        return replace(header, offset=header.offset + found.offset, in_archive=True)
    fortran = _is_fortran(info.uri, found)
    header = Header(found.shape, fortran, np.dtype(found.dtype), found.offset, True)
    _check_shape(info.uri, header.shape, header.dtype)
    _check_size(replace(info, size=found.offset + found.size), header, at_most=True)
    return header


def _is_fortran(uri: str, found: Stored) -> bool:
    """Whether a tensor's columns lie together, rather than its rows."""
    assert found.shape is not None
    shape, whole = found.shape, [1]
    for size in reversed(shape[1:]):
        whole.insert(0, whole[0] * size)
    if all(a == b or n <= 1 for a, b, n in zip(found.strides, whole, shape, strict=True)):
        return False
    if len(shape) == 2 and found.strides == (1, shape[0]):
        return True
    raise InputError(
        f"{uri}: a tensor {list(shape)} is a view of parts of another one; save x.contiguous()"
    )


@contextmanager
def npy_file(
    storage: Storage, split: Split, spans_of: Callable[[Header], list[Span]] | None = None
) -> Iterator[tuple[Any, Header]]:
    """An open array, of which a split's rows are read, and its header.

    The first rows of a small one are beside the header, so that both come with one request.

    Args:
        spans_of: where what is read lies; None: all of the split's rows are.
    """
    info = split.info
    if split.array is not None:
        header = Header.from_json(split.array)
        spans = spans_of(header) if spans_of else header.spans(split.start, split.stop)
        with storage.open(info.uri, info, spans) as file:
            yield file, header
    elif split.start > 0 or info.size > BLOCK_BYTES:
        header = read_header(storage, info)
        spans = spans_of(header) if spans_of else header.spans(split.start, split.stop)
        with storage.open(info.uri, info, spans) as file:
            yield file, header
    else:
        with storage.open(info.uri, info) as file:
            yield file, _parse_header(info, file.read(min(_HEADER_BYTES, info.size)))


def _parse_header(info: ObjectInfo, first: bytes) -> Header:
    refuse_other(info.uri, first, "npy", "npy")
    held = io.BytesIO(first)
    try:
        version = np.lib.format.read_magic(held)
        parse = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        with HEADERS:
            shape, fortran, dtype = parse(held)
    except (ValueError, KeyError) as error:
        raise InputError(
            f"{info.uri} is not readable as npy ({error}): it is truncated, damaged or in another "
            "format (the file of a numpy.memmap is plain values, without type and shape); write it "
            "again with numpy.save, or correct format in the manifest"
        ) from error
    if dtype.hasobject:
        raise InputError(
            f"{info.uri} holds Python objects (pickle), which are never loaded; save it with a "
            "number or string dtype"
        )
    _check_shape(info.uri, shape, dtype)
    header = Header(shape, fortran and len(shape) > 1, dtype, held.tell())
    _check_size(info, header)
    return header


def _check_shape(uri: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if not 1 <= len(shape) <= 2 or dtype.names:
        raise InputError(
            f"{uri} has shape {shape} and dtype {dtype}; it must be a list of rows, [rows, "
            "columns], of one plain type"
        )


def _check_size(info: ObjectInfo, header: Header, *, at_most: bool = False) -> None:
    needed = header.offset + math.prod(header.shape) * header.dtype.itemsize
    if needed != info.size and not (at_most and needed < info.size):
        state = "is truncated" if info.size < needed else "has bytes after its end"
        raise InputError(
            f"{info.uri} {state}: an array {list(header.shape)} of {header.dtype} takes {needed} "
            f"bytes, the object has {info.size}; write it again"
        )


def split_npy(
    storage: Storage,
    info: ObjectInfo,
    columns: Sequence[Column],
    target_bytes: int,
    key: str | None = None,
) -> list[Split]:
    """The splits of one array; InputError when it does not have the columns.

    In an npz and a file of torch, edges may be ``[2, edges]``, as PyG's ``edge_index`` is.
    """
    header = read_header(storage, info, key)
    if len(columns) > 1 and header.in_archive and header.rows == 2:
        if header.width == 2:
            raise InputError(
                f"{info.uri} has shape [2, 2], which may be [2, edges] or [edges, 2]; save it as"
                " [edges, 2] with numpy.save"
            )
        header = header.transposed()
    check_columns(info.uri, header, columns)
    return split_rows(info, header, target_bytes)


def split_rows(info: ObjectInfo, header: Header, target_bytes: int) -> list[Split]:
    """Row ranges of one array, about ``target_bytes`` each."""
    array = header.to_json()
    return [
        replace(Split.of(info, start, stop, (stop - start) * header.row_bytes), array=array)
        for start, stop in split_ranges(header.rows, header.rows * header.row_bytes, target_bytes)
    ]


def check_columns(uri: str, header: Header, columns: Sequence[Column]) -> None:
    """InputError when the array cannot hold the wanted columns."""
    for column in columns:
        if int(column.name) >= header.width:
            turn = " (it looks transposed: save array.T)" if header.rows <= 3 < header.width else ""
            raise InputError(
                f"{uri} has no {column}: its shape is {list(header.shape)}, it must be "
                f"[rows, columns]{turn}"
            )
        # Arrow has no floats of more than 8 bytes.
        is_long = header.dtype.kind == "f" and header.dtype.itemsize > 8
        if header.dtype.kind not in _DTYPE_KINDS[column.kind] or is_long:
            raise InputError(
                f"{uri}: {column} holds {header.dtype}; it must hold {_WANTED[column.kind]}, save"
                " it as such"
            )
    if len(columns) > 1 and header.rows <= 3 < header.width:
        raise InputError(
            f"{uri} has shape {list(header.shape)}; an edge list is [edges, 2] or [edges, 3], one "
            "row for each edge: save array.T"
        )


def read_npy(
    storage: Storage, columns: Sequence[Column], split: Split, batch_rows: int
) -> Iterator[tuple[list[Any], Where]]:
    """The rows of a split in order: one arrow array per column, at most ``batch_rows`` long."""
    with npy_file(storage, split) as (file, header):
        check_columns(split.uri, header, columns)
        for rows, where in rows_of(file, header, split, batch_rows):
            yield [_to_arrow(rows[:, int(c.name)], c, where) for c in columns], where


def rows_of(
    file: Any, header: Header, split: Split, batch_rows: int
) -> Iterator[tuple[npt.NDArray[Any], Where]]:
    """The rows of a split of an open array ``[n, width]`` with n <= ``batch_rows``."""
    for first in range(split.start, split.stop, batch_rows):
        count = min(batch_rows, split.stop - first)
        yield read_range(file, split.uri, header, first, count), Where(split.uri, first)


def read_rows(
    storage: Storage, info: ObjectInfo, header: Header, start: int, stop: int, batch_rows: int
) -> Iterator[tuple[npt.NDArray[Any], Where]]:
    """Rows ``[start, stop)`` as arrays ``[n, width]`` with n <= ``batch_rows``."""
    with storage.open(info.uri, info, header.spans(start, stop)) as file:
        yield from rows_of(file, header, Split.of(info, start, stop, 0), batch_rows)


def read_range(file: Any, uri: str, header: Header, first: int, count: int) -> npt.NDArray[Any]:
    """[count, width] rows of an open array, from ``first`` on.

    Raises:
        InputChanged: it ends early.
    """
    item, width = header.dtype.itemsize, header.width
    if not header.fortran:
        flat = _read_values(file, uri, header, first * width * item, count * width)
        return flat.reshape(count, width)
    columns = [
        _read_values(file, uri, header, (c * header.rows + first) * item, count)
        for c in range(width)
    ]
    return np.stack(columns, axis=1)


def _read_values(file: Any, uri: str, header: Header, start: int, count: int) -> npt.NDArray[Any]:
    """``count`` values from byte ``start`` of the data, writable and in native byte order."""
    values = np.empty(count, header.dtype)
    # Seen as bytes, which a memoryview of strings would not take.
    as_bytes: Any = values.view(np.uint8)
    view = memoryview(as_bytes)
    file.seek(header.offset + start)
    while len(view):
        got = file.readinto(view)
        if not got:
            raise InputChanged(f"{uri} ends early: it changed while it was read; run the job again")
        view = view[got:]
    return values.astype(header.dtype.newbyteorder("="), copy=False)


def _to_arrow(values: npt.NDArray[Any], column: Column, where: Where) -> Any:
    if values.dtype.kind in "US":
        return _strings(values, column, where)
    return to_arrow(values)


def _strings(values: npt.NDArray[Any], column: Column, where: Where) -> Any:
    """Strings, or bytes of UTF-8, as arrow holds strings.

    Raises:
        InputError: names the first row that is not UTF-8, or has a surrogate, which that cannot
            hold.
    """
    if values.dtype.kind == "S":
        held = pa.array(values.tolist(), pa.large_binary())
        return to_text(held.view(pa.large_string()), column, where)
    try:
        return pa.array(values.tolist(), pa.large_string())
    except UnicodeEncodeError as error:
        i, text = next(
            (i, text) for i, text in enumerate(values.tolist()) if re.search(_SURROGATE, text)
        )
        raise InputError(
            f"{where.row(i)}: {column} is {text!a}, which holds a surrogate, half of a UTF-16"
            " character; decode the ids correctly before they are saved"
        ) from error
