"""Numeric columns that together are a vector for each row, or one column of such vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.errors import InputError
from embertide.io.readers.columns import Column, Float32s, as_numbers, list_widths, refuse_nulls
from embertide.io.readers.where import Where

Numbers = npt.NDArray[Any]


def scalars(
    arrays: list[Any], columns: Sequence[Column], where: Where, dtype: type[np.floating[Any]]
) -> Numbers:
    """Scalar columns as ``[n, len(columns)]`` of ``dtype``.

    Raises:
        InputError: names the row of the first null.
    """
    values = np.empty((len(arrays[0]), len(columns)), dtype)
    for d, (array, column) in enumerate(zip(arrays, columns, strict=True)):
        refuse_nulls(array, column, where)
        with np.errstate(over="ignore"):
            values[:, d] = as_numbers(array)
    return values


def vectors(array: Any, column: Column, width: int, where: Where) -> Numbers:
    """A list column as ``[n, width]``, of its own type.

    Raises:
        InputError: names the row of the first null, or of the first vector of another width.
    """
    refuse_nulls(array, column, where)
    _check_widths(array, column, width, where)
    flat = array.flatten()
    if flat.null_count:
        i, d = divmod(int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False))), width)
        raise InputError(
            f"{where.row(i)}: {column} has no value (null, not NaN) at position {d}; fill it in or "
            "drop the row"
        )
    return as_numbers(flat).reshape(len(array), width)


def _check_widths(array: Any, column: Column, width: int, where: Where) -> None:
    widths = list_widths(array)
    if (widths == width).all():
        return
    row = int(np.argmax(widths != width))
    raise InputError(
        f"{where.row(row)}: {column} holds a vector of width {widths[row]}, but the features have"
        f" width {width} (as in the first row); all rows must have the same"
    )


def joined(
    arrays: list[Any],
    columns: Sequence[Column],
    width: int,
    where: Where,
    dtype: type[np.floating[Any]],
) -> Numbers:
    """A column of vectors, scalar columns, or the first and then the others, as ``[n, width]``.

    Args:
        dtype: of scalar columns; vectors have their own type.

    Raises:
        InputError: names the row of the first null, or of the first vector of another width.
    """
    if columns[0].kind != "vector":
        return scalars(arrays, columns, where, dtype)
    first = vectors(arrays[0], columns[0], width - len(columns) + 1, where)
    if len(columns) == 1:
        return first
    return np.concatenate([first, scalars(arrays[1:], columns[1:], where, dtype)], axis=1)


def finite_vectors(
    arrays: list[Any], columns: Sequence[Column], width: int, where: Where
) -> Float32s:
    """Features of edges, ``float32 [n, width]``, see :func:`joined`.

    Raises:
        InputError: names row and column of the first null, NaN or Inf, or vector of another width.
    """
    with np.errstate(over="ignore"):
        values = joined(arrays, columns, width, where, np.float32).astype(np.float32, copy=False)
    finite = np.isfinite(values)
    if not finite.all():
        i, d = divmod(int(np.argmin(finite)), width)
        after = d - (width - len(columns))
        column, place = columns[max(0, after)], ""
        if column.kind == "vector":
            place = f" at position {d}"
        raise InputError(
            f"{where.row(i)}: {column} is {values[i, d]}{place}; features of edges must be finite"
            " float32 numbers, correct or drop the row"
        )
    return values
