"""Numeric columns that together are a vector for each row, or one column of such vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.errors import InputError
from embertide.readers.columns import Column, Float32s, as_numbers, list_widths, refuse_nulls
from embertide.readers.where import Where

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
            f"{where.row(i)}: {column} has no value (null) at position {d}; fill it in or drop "
            "the row"
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


def finite_vectors(
    arrays: list[Any], columns: Sequence[Column], width: int, where: Where
) -> Float32s:
    """Features of edges, ``float32 [n, width]``: of one list column, or of scalar ones.

    Raises:
        InputError: names row and column of the first null, NaN or Inf, or vector of another width.
    """
    if columns[0].kind == "vector":
        given = vectors(arrays[0], columns[0], width, where)
        with np.errstate(over="ignore"):
            values = given.astype(np.float32)
    else:
        values = scalars(arrays, columns, where, np.float32)
    finite = np.isfinite(values)
    if not finite.all():
        i, d = divmod(int(np.argmin(finite)), width)
        column, place = columns[0], f" at position {d}"
        if column.kind != "vector":
            column, place = columns[d], ""
        raise InputError(
            f"{where.row(i)}: {column} is {values[i, d]}{place}; features of edges must be finite"
            " float32 numbers, correct or drop the row"
        )
    return values
