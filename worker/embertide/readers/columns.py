"""From arrow columns to numpy, with every value checked where it enters the program.

All formats are read as arrow arrays, so nulls, signs, ranges and NaN are checked by one set of
rules, and every error names object, row, column, value and remedy in the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.errors import InputError
from embertide.kernels.arrow import to_numpy
from embertide.readers.where import Where

Kind = Literal["integer", "text", "id", "number", "vector"]
"""What a column must hold; ``id`` is integer or text (the kind of ids is not known yet)."""

IdKind = Literal["dense", "int64", "string"]
Int64s = npt.NDArray[np.int64]
Float32s = npt.NDArray[np.float32]
Ids = Int64s | Any
"""``np.int64 [n]``, or a ``pa.StringArray`` or ``pa.LargeStringArray`` of n strings."""

_WANTED = {
    "integer": "integers",
    "text": "strings",
    "id": "integers or strings",
    "number": "numbers",
    "vector": "lists of numbers, one vector in every row",
}
_HINTS = {
    "integer": " (or set ids: string for nodes named by strings)",
    "text": " (or set ids: int64 for nodes named by integers)",
}


_SHOWN_BYTES = 80
"""Of a string that is not UTF-8, in a message."""


@dataclass(frozen=True)
class Column:
    """One column to read: ``field`` of the manifest asked for it by ``name`` (or index)."""

    field: str
    name: str | int
    kind: Kind

    def __str__(self) -> str:
        return f"column {self.name!r} ({self.field})"


def id_column(field: str, name: str | int, ids: IdKind | None) -> Column:
    """A column of node ids of the given kind (None: not known yet)."""
    kinds: dict[IdKind | None, Kind] = {"string": "text", None: "id"}
    return Column(field, name, kinds.get(ids, "integer"))


def listed(names: Sequence[str]) -> str:
    """Names of columns for messages, the first 20 of them."""
    shown = ", ".join(repr(name) for name in names[:20])
    return f"{shown} and {len(names) - 20} more" if len(names) > 20 else shown


def check_type(uri: str, column: Column, held: Any) -> None:
    """Refuse a column of arrow type ``held`` where ``column`` must be something else.

    Raises:
        InputError: names the type it has and the one it must have.
    """
    if _fits(column.kind, held):
        return
    hint = _HINTS.get(column.kind, "")
    raise InputError(f"{uri}: {column} holds {held}; it must hold {_WANTED[column.kind]}{hint}")


def _fits(kind: Kind, held: Any) -> bool:
    types = pa.types
    if kind == "vector":
        is_list = types.is_list(held) or types.is_large_list(held) or _is_fixed(held)
        return is_list and _fits("number", held.value_type)
    integer = types.is_integer(held)
    if kind == "integer":
        return bool(integer)
    if kind == "number":
        others = types.is_floating(held) or types.is_boolean(held) or types.is_decimal(held)
        return bool(integer or others)
    if types.is_dictionary(held):
        held = held.value_type
    text = types.is_string(held) or types.is_large_string(held) or types.is_string_view(held)
    return bool(text or (kind == "id" and integer))


def _is_fixed(held: Any) -> bool:
    return bool(pa.types.is_fixed_size_list(held))


def to_ids(array: Any, column: Column, ids: IdKind, where: Where, count: int | None = None) -> Ids:
    """Node ids: ``int64 [n]``, perhaps read-only, or for ``string`` an array of either arrow type.

    ``dense`` ids must be at least 0 and, when ``count`` is known, less than it.

    Raises:
        InputError: names the row of the first null or of the first id out of range.
    """
    refuse_nulls(array, column, where)
    if ids == "string":
        return array if pa.types.is_string(array.type) else array.cast(pa.large_string())
    values = _to_int64(array, column, where)
    if ids == "dense" and len(values):
        _check_dense(values, column, where, count)
    return values


def to_text(array: Any, column: Column, where: Where) -> Any:
    """A column of strings that is perhaps not UTF-8, as a ``pa.StringArray`` or its large kind.

    Raises:
        InputError: names row and bytes of the first string that is not UTF-8.
    """
    kinds = pa.string(), pa.large_string()
    text = array if array.type in kinds else array.cast(pa.large_string())
    if not _is_ascii(text):
        try:
            text.validate(full=True)
        except pa.ArrowInvalid as error:
            raise _not_utf8(text, column, where) from error
    return text


def _is_ascii(text: Any) -> bool:
    """Whether no byte of the strings has its highest bit set: one pass at the speed of memory."""
    kind = np.int64 if pa.types.is_large_string(text.type) else np.int32
    _, offsets, data = text.buffers()
    if data is None or not len(text):
        return True
    bounds = np.frombuffer(offsets, kind)[text.offset : text.offset + len(text) + 1]
    held = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    return not len(held) or int(held.max()) < 128


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
                " written (often they are Latin-1)"
            )
    raise AssertionError(f"{where.uri}: arrow and Python disagree about UTF-8")


def _around(held: bytes, start: int) -> str:
    """Bytes for a message: all, or some before and after a position."""
    first, last = max(0, start - _SHOWN_BYTES // 2), start + _SHOWN_BYTES // 2
    before, after = "... " if first else "", " ..." if last < len(held) else ""
    return f"{before}{held[first:last]!r}{after}"


def _to_int64(array: Any, column: Column, where: Where) -> Int64s:
    held = to_numpy(array)
    if held.dtype == np.uint64 and len(held) and held.max() > np.uint64(2**63 - 1):
        i = int(np.argmax(held > np.uint64(2**63 - 1)))
        raise InputError(
            f"{where.row(i)}: {column} is {held[i]}; ids must be below 2^63, renumber them"
        )
    return np.asarray(held.astype(np.int64, copy=False))


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


def to_floats(array: Any, column: Column, where: Where) -> Float32s:
    """Numbers as ``float32 [n]``, which may hold NaN and Inf.

    Every kind of number becomes the nearest float32: false and true 0 and 1, integers beyond 2^24
    and float64 are rounded.

    Raises:
        InputError: names the row of the first null.
    """
    refuse_nulls(array, column, where)
    return as_float32(array)


def as_float32(array: Any) -> Float32s:
    """Any numeric arrow array without nulls as a writable ``float32 [n]``."""
    held = as_numbers(array)
    # What does not fit becomes Inf, which the checks for finite numbers report with its row.
    with np.errstate(over="ignore"):
        return np.asarray(held.astype(np.float32, copy=True))


def as_numbers(array: Any) -> npt.NDArray[Any]:
    """Any numeric arrow array without nulls as numbers [n] of its own type; may be read-only."""
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    return to_numpy(array)


def to_weights(array: Any, column: Column, where: Where) -> Float32s:
    """Edge weights as ``float32 [n]``.

    Raises:
        InputError: names the row of the first null, NaN or Inf.
    """
    values = to_floats(array, column, where)
    finite = np.isfinite(values)
    if not finite.all():
        i = int(np.argmin(finite))
        held = array[i].as_py()
        raise InputError(
            f"{where.row(i)}: {column} is {held!r}; weights must be finite float32 numbers, "
            "correct or drop the row"
        )
    return values


def refuse_nulls(array: Any, column: Column, where: Where) -> None:
    """Refuse a column with nulls.

    Raises:
        InputError: names the first row without a value.
    """
    if array.null_count:
        i = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(
            f"{where.row(i)}: {column} has no value (null); fill it in or drop the row"
        )


def list_widths(array: Any) -> Int64s:
    """[n] length of each list of a list column without nulls, without pyarrow's compute module."""
    if pa.types.is_fixed_size_list(array.type):
        return np.full(len(array), array.type.list_size, np.int64)
    widths: Int64s = np.diff(to_numpy(array.offsets)).astype(np.int64)
    return widths
