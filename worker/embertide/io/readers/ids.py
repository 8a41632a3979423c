"""Node ids of any type that databases and libraries write: one rule for all formats.

Where the manifest has ``ids: string``, an id is text: a string, bytes that are UTF-8, or a UUID.
Otherwise it is a whole number: 1 as an integer, 1.00 as a decimal and 1.0 as a float are one node.
A number never becomes text, nor text of a typed format a number.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.errors import InputError
from embertide.io.readers.columns import Column, Int64s, Kind, refuse_nulls
from embertide.io.readers.types import holds_bytes, plain
from embertide.io.readers.where import Where
from embertide.kernels.arrow import to_numpy

IdKind = Literal["dense", "int64", "string"]
Ids = Int64s | Any
"""``np.int64 [n]``, or a ``pa.StringArray`` or ``pa.LargeStringArray`` of n strings."""

Mask = npt.NDArray[np.bool_]

LONGEST_ID_BYTES = 64 << 10
"""Longer text is no identifier, and would fill every report and message that names it."""
_RUN = 512
_SHOWN_BYTES = 80
"""How much of a string that is not UTF-8 a message shows."""
_EXACT = {2: 2**11, 4: 2**24, 8: 2**53}
"""The integer from which on a float of this many bytes may be another one that was rounded."""
_UUID_BYTES = 16
_DASHES = (8, 13, 18, 23)
"""Where a UUID's text of 36 characters has them."""


def id_column(field: str, name: str | int, ids: IdKind | None) -> Column:
    """A column of node ids of the given kind (None: not known yet)."""
    kinds: dict[IdKind | None, Kind] = {"string": "text", None: "id"}
    return Column(field, name, kinds.get(ids, "integer"))


def to_ids(array: Any, column: Column, ids: IdKind, where: Where, count: int | None = None) -> Ids:
    """Node ids: ``int64 [n]``, perhaps read-only, or for ``string`` an array of either arrow type.

    ``dense`` ids must be at least 0 and, when ``count`` is known, less than it. Strings are UTF-8
    already, see :func:`to_text`.

    Raises:
        InputError: names the row of the first null, of the first id out of range or that is no
            whole number, or that is too long.
    """
    array = plain(array)
    refuse_nulls(array, column, where)
    if ids == "string":
        text = array if pa.types.is_string(array.type) else array.cast(pa.large_string())
        _refuse_long(text, column, where)
        return text
    values = _to_int64(array, column, where)
    if ids == "dense" and len(values):
        _check_dense(values, column, where, count)
    return values


def to_end_ids(
    array: Any, column: Column, ids: IdKind, where: Where, count: int | None
) -> tuple[Ids, Mask | None]:
    """Ids of edges' ends as :func:`to_ids`, and which dense ones are ``count`` or more.

    Raises:
        InputError: as :func:`to_ids`, but for those; of dense ids only negative ones are refused.
    """
    if ids != "dense" or count is None:
        return to_ids(array, column, ids, where), None
    array = plain(array)
    refuse_nulls(array, column, where)
    values = _to_int64(array, column, where)
    # Seen as unsigned, negative ids are huge: one pass shows that there are neither.
    if not len(values) or values.view(np.uint64).max() < np.uint64(count):
        return values, None
    _check_dense(values, column, where, None)
    return values, values >= count


def _refuse_long(text: Any, column: Column, where: Where) -> None:
    offsets = _offsets(text)
    # Where a run of strings is short together, none of them has to be looked at.
    runs = np.diff(np.append(offsets[::_RUN], offsets[-1]))
    if int(runs.max()) <= LONGEST_ID_BYTES:
        return
    lengths = np.diff(offsets)
    if int(lengths.max()) > LONGEST_ID_BYTES:
        i = int(np.argmax(lengths > LONGEST_ID_BYTES))
        raise InputError(
            f"{where.row(i)}: {column} is {text[i].as_py()[:_SHOWN_BYTES]!r}..., {lengths[i]} bytes"
            f" long; ids may have up to {LONGEST_ID_BYTES}: name the column of ids, or write a"
            " hash of them"
        )


def _offsets(text: Any) -> npt.NDArray[Any]:
    """``[n+1]`` where each string begins, and the end of the last; in bytes of its buffer."""
    kind = np.int64 if pa.types.is_large_string(text.type) else np.int32
    bounds = text.buffers()[1]
    if bounds is None or not len(text):
        return np.zeros(1, kind)
    return np.frombuffer(bounds, kind)[text.offset : text.offset + len(text) + 1]


def _to_int64(array: Any, column: Column, where: Where) -> Int64s:
    if pa.types.is_decimal(array.type):
        return _from_decimals(array, column, where)
    held = to_numpy(array)
    if held.dtype.kind == "f":
        return whole_numbers(held, column, where)
    if held.dtype == np.uint64 and len(held) and held.max() > np.uint64(2**63 - 1):
        i = int(np.argmax(held > np.uint64(2**63 - 1)))
        raise InputError(
            f"{where.row(i)}: {column} is {held[i]}; ids must be below 2^63, renumber them, or"
            " write them as text, CAST(id AS VARCHAR), and set ids: string"
        )
    return np.asarray(held.astype(np.int64, copy=False))


def _from_decimals(array: Any, column: Column, where: Where) -> Int64s:
    try:
        return to_numpy(array.cast(pa.int64()))
    except pa.ArrowInvalid as error:
        for i, value in enumerate(array.to_pylist()):
            if value != value.to_integral_value() or not -(2**63) <= value < 2**63:
                raise InputError(
                    f"{where.row(i)}: {column} is {value}; ids must be whole numbers from -2^63 to"
                    " 2^63-1, correct the row, or write them as text and set ids: string"
                ) from error
        raise AssertionError(f"{where.uri}: arrow and Python disagree about decimals") from error


def whole_numbers(values: npt.NDArray[np.floating[Any]], column: Column, where: Where) -> Int64s:
    """Ids that are stored as floats.

    Raises:
        InputError: names the first row that is no whole number, or one that may be rounded.
    """
    limit = _EXACT[values.dtype.itemsize]
    wrong = ~((np.rint(values) == values) & (np.abs(values) < limit))
    if wrong.any():
        i = int(np.argmax(wrong))
        why = " (a missing value, as pandas writes it)" if np.isnan(values[i]) else ""
        raise InputError(
            f"{where.row(i)}: {column} is {values[i]}{why}; ids stored as {values.dtype} must be"
            f" whole numbers below {limit}, from where on floats are rounded; correct the row, or"
            " write the ids as integers"
        )
    return values.astype(np.int64)


def is_whole_number(value: float) -> bool:
    """Whether a float is an id, and no other integer can have been rounded to it."""
    return value.is_integer() and abs(value) < _EXACT[8]


def _check_dense(values: Int64s, column: Column, where: Where, count: int | None) -> None:
    # Seen as unsigned, negative ids are huge: one pass finds both kinds of offenders.
    limit = np.uint64(2**63 if count is None else count)
    unsigned = values.view(np.uint64)
    if unsigned.max() < limit:
        return
    i = int(np.argmax(unsigned >= limit))
    allowed = "0 or more" if count is None else f"from 0 to {count - 1} (count is {count})"
    raise InputError(
        f"{where.row(i)}: {column} is {values[i]}; dense ids must be {allowed}. "
        "Correct the row, or set ids: int64 for ids that are not row numbers"
    )


def to_text(array: Any, column: Column, where: Where, uuids: bool = False) -> Any:
    """A column of text that is perhaps not UTF-8, as a ``pa.StringArray`` or its large kind.

    Args:
        uuids: whether its bytes are UUIDs, which become their usual text of 36 characters.

    Raises:
        InputError: names row and bytes of the first value that is not UTF-8, and the first null
            among bytes.
    """
    array = plain(array)
    if holds_bytes(array.type):
        refuse_nulls(array, column, where)
        return _bytes_to_text(array, column, where, uuids)
    kinds = pa.string(), pa.large_string()
    text = array if array.type in kinds else array.cast(pa.large_string())
    _refuse_other_than_utf8(text, column, where)
    return text


def _bytes_to_text(array: Any, column: Column, where: Where, uuids: bool) -> Any:
    if pa.types.is_fixed_size_binary(array.type):
        rows = _fixed_rows(array)
        if uuids and array.type.byte_width == _UUID_BYTES:
            return _text_of_rows(_uuid_text(rows))
        text = _text_of_rows(rows)
    else:
        text = array.cast(pa.large_binary()).view(pa.large_string())
    _refuse_nul(text, column, where)
    _refuse_other_than_utf8(text, column, where)
    return text


def _fixed_rows(array: Any) -> npt.NDArray[np.uint8]:
    """Values of equal length as ``[n, length]`` bytes."""
    length = array.type.byte_width
    held = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    first = array.offset * length
    return held[first : first + len(array) * length].reshape(len(array), length)


def _uuid_text(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """``[n, 36]`` characters: digits in lower case, with dashes."""
    digits = np.frombuffer(rows.tobytes().hex().encode(), np.uint8).reshape(len(rows), 32)
    return np.insert(digits, [at - i for i, at in enumerate(_DASHES)], ord("-"), axis=1)


def _text_of_rows(rows: npt.NDArray[np.uint8]) -> Any:
    """``[n, length]`` bytes as n strings."""
    count, length = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * length
    data = np.ascontiguousarray(rows)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), count, buffers)


def _refuse_nul(text: Any, column: Column, where: Where) -> None:
    """Refuse bytes with a zero among them: numbers, hashes or padding, not text."""
    if (_bytes_of(text) != 0).all():
        return
    values = text.cast(pa.large_binary())
    for i, value in enumerate(values):
        held: bytes = value.as_py()
        if 0 in held:
            raise InputError(
                f"{where.row(i)}: {column} is {_around(held, held.index(0))}, bytes with a NUL,"
                " which are no text; write the ids as text (of a hash: its hex digits) or integers"
            )


def _refuse_other_than_utf8(text: Any, column: Column, where: Where) -> None:
    held = _bytes_of(text)
    # One pass at the speed of memory finds that there is nothing but ASCII.
    if not len(held) or int(held.max()) < 128:
        return
    try:
        text.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _not_utf8(text, column, where) from error


def _bytes_of(text: Any) -> npt.NDArray[np.uint8]:
    """The bytes of all strings, one after the other."""
    data = text.buffers()[2]
    bounds = _offsets(text)
    return np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]


def _not_utf8(text: Any, column: Column, where: Where) -> InputError:
    """The error for the first string that is not UTF-8."""
    is_large = pa.types.is_large_string(text.type)
    values = text.cast(pa.large_binary() if is_large else pa.binary())
    for i, value in enumerate(values):
        held: bytes = value.as_py()
        try:
            held.decode()
        except UnicodeDecodeError as error:
            return InputError(
                f"{where.row(i)}: {column} is {_around(held, error.start)}, whose byte"
                f" {error.start} (from 0) is not UTF-8; convert the ids to UTF-8 where they are"
                " written (often they are Latin-1, or a hash's bytes: write its hex digits)"
            )
    raise AssertionError(f"{where.uri}: arrow and Python disagree about UTF-8")


def _around(held: bytes, start: int) -> str:
    """Bytes for a message: all, or some before and after a position."""
    first, last = max(0, start - _SHOWN_BYTES // 2), start + _SHOWN_BYTES // 2
    before, after = "... " if first else "", " ..." if last < len(held) else ""
    return f"{before}{held[first:last]!r}{after}"
