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
from embertide.io.readers.types import (
    holds_integers,
    holds_numbers,
    holds_text,
    holds_vectors,
    plain,
)
from embertide.io.readers.where import Where
from embertide.kernels.arrow import to_numpy

Kind = Literal["integer", "text", "id", "number", "vector", "order"]
"""What a column must hold; ``id`` is integer or text (the kind of ids is not known yet), ``order``
what rows can be put in order by."""

Int64s = npt.NDArray[np.int64]
Float32s = npt.NDArray[np.float32]

_INTEGERS = "integers, or decimals or floats that are whole numbers"
_TEXT = "strings, bytes of UTF-8 or UUIDs"
_WANTED = {
    "integer": _INTEGERS,
    "text": _TEXT,
    "id": f"{_INTEGERS}; or {_TEXT}",
    "number": "numbers",
    "vector": "lists of numbers, one vector in every row; or text such as [0.1, 0.2], or vectors of"
    " Spark ML",
    "order": "times, dates, numbers or strings",
}
_HINTS = {
    "integer": " (or set ids: string for nodes named by strings)",
    "text": " (or set ids: int64 for nodes named by integers below 2^63; larger ones: CAST(id AS"
    " VARCHAR))",
}

_SHOWN_NAME = 60


@dataclass(frozen=True)
class Column:
    """One column to read: ``field`` of the manifest asked for it by ``name`` (or index)."""

    field: str
    name: str | int
    kind: Kind

    def __str__(self) -> str:
        return f"column {self.name!r} ({self.field})"


def listed(names: Sequence[str]) -> str:
    """Names of columns for messages, the first 20 of them, and of each the first characters."""
    shown = ", ".join(
        repr(name if len(name) <= _SHOWN_NAME else f"{name[:_SHOWN_NAME]} ...")
        for name in names[:20]
    )
    return f"{shown} and {len(names) - 20} more" if len(names) > 20 else shown


def similar_hint(name: str, names: Sequence[str]) -> str:
    """The column that differs from a name by blanks around it, or by its case."""
    plain_name = name.strip().casefold()
    found = next((other for other in names if other.strip().casefold() == plain_name), None)
    if found is None:
        return ""
    return f". Is {found!r} meant, which has other case or blanks around it?"


def check_type(uri: str, column: Column, held: Any) -> None:
    """Refuse a column of arrow type ``held`` where ``column`` must be something else.

    Raises:
        InputError: names the type it has and the one it must have.
    """
    if _fits(column.kind, held):
        return
    hint = _HINTS.get(column.kind, "")
    raise InputError(
        f"{uri}: {column} holds {held}; it must hold {_WANTED[column.kind]}{hint}. Name another"
        " column, or cast this one where it is written"
    )


def _fits(kind: Kind, held: Any) -> bool:
    if pa.types.is_null(held):
        return True  # Without any value; a row of it is refused where it is read.
    if kind == "vector":
        return holds_vectors(held)
    if kind == "order":
        return holds_numbers(held) or holds_text(held) or bool(pa.types.is_temporal(held))
    if kind == "number":
        return holds_numbers(held)
    is_integer = kind != "text" and holds_integers(held)
    return is_integer or (kind != "integer" and holds_text(held))


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
    array = plain(array)
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
    array = plain(array)
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
