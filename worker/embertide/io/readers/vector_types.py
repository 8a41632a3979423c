"""Vectors as any tool writes them, as lists of numbers.

Those of pyarrow, pandas, polars, duckdb and Spark's arrays are lists already. Spark ML's are
structs, dense or sparse; BigQuery's are lists in groups of a single field; Snowflake, pgvector and
csv have text.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.errors import InputError
from embertide.io.readers.columns import Column, Int64s, list_widths, refuse_nulls
from embertide.io.readers.types import holds_text, is_list, is_spark_vector, plain
from embertide.io.readers.where import Where
from embertide.kernels.arrow import to_numpy

_DENSE = 1
"""Spark's ``type`` of a vector; 0 is sparse."""
_BRACKETS = {"[": "]", "{": "}"}
_MISSING = ("", "null", "none", "na", "<na>")
_SHOWN_CHARACTERS = 80


def as_lists(array: Any, column: Column, where: Where) -> Any:
    """A column of vectors as an arrow array of lists of numbers, of any list type.

    Raises:
        InputError: names the row of the first null, of text that is no vector, or of a sparse
            vector that does not fit its size.
    """
    array = plain(array)
    if is_list(array.type) and not pa.types.is_struct(array.type.value_type):
        return array
    refuse_nulls(array, column, where)
    if holds_text(array.type):
        return _from_text(array, column, where)
    if is_spark_vector(array.type):
        return _from_spark(array, column, where)
    return _without_groups(array, column, where)


def _without_groups(array: Any, column: Column, where: Where) -> Any:
    while pa.types.is_struct(array.type):
        array = array.flatten()[0]
    refuse_nulls(array, column, where)
    values = array.flatten()
    while pa.types.is_struct(values.type):
        values = values.flatten()[0]
    return _lists(list_widths(array), values)


def _lists(widths: Int64s, values: Any) -> Any:
    """Lists of some lengths over values that lie one after the other."""
    offsets = np.concatenate([[0], np.cumsum(widths)])
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def _from_text(array: Any, column: Column, where: Where) -> Any:
    """Numbers between brackets or not, separated by commas, or by spaces alone."""
    texts = array.cast(pa.large_string()).to_pylist()
    rows = [_parts(text) for text in texts]
    try:
        values = np.fromiter(map(float, chain.from_iterable(rows)), np.float64)
    except ValueError as error:
        raise _no_vector(texts, rows, column, where) from error
    return _lists(np.fromiter(map(len, rows), np.int64, len(rows)), pa.array(values))


def _parts(text: str) -> list[str]:
    text = text.strip()
    if text and _BRACKETS.get(text[0]) == text[-1]:
        text = text[1:-1].strip()
    # Python would take an underscore between digits.
    text = text.replace("_", "?")
    return text.split(",") if "," in text else text.split()


def _no_vector(texts: list[str], rows: list[list[str]], column: Column, where: Where) -> InputError:
    for i, parts in enumerate(rows):
        lacking = [at for at, part in enumerate(parts) if part.strip().casefold() in _MISSING]
        if lacking:
            return InputError(
                f"{where.row(i)}: {column} is {texts[i][:_SHOWN_CHARACTERS]!r}, which has no value"
                f" at position {lacking[0]} (not NaN); fill it in or drop the row"
            )
        try:
            list(map(float, parts))
        except ValueError:
            return InputError(
                f"{where.row(i)}: {column} is {texts[i][:_SHOWN_CHARACTERS]!r}; a vector as"
                " text is [0.1, 0.2]: numbers with commas or spaces between them. Write it so, or"
                " as a list"
            )
    raise AssertionError(f"{where.uri}: Python disagrees about numbers with itself")


def _from_spark(array: Any, column: Column, where: Where) -> Any:
    """Vectors of Spark ML; zeros take the place of what a sparse one leaves out."""
    kinds, sizes, indices, values = array.flatten()
    for part in (kinds, values):
        refuse_nulls(part, column, where)
    is_dense = to_numpy(kinds) == _DENSE
    if is_dense.all():
        return values
    stored = list_widths(values)
    width = np.where(is_dense, stored, to_numpy(sizes.fill_null(-1)))
    named = np.where(to_numpy(indices.is_valid()), list_widths(indices), 0)
    wrong = (width != width[0]) | (named != np.where(is_dense, 0, stored))
    _refuse_sparse(np.flatnonzero(wrong), column, where)
    rows = np.repeat(np.arange(len(array)), stored)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(stored) - stored, stored)
    places[~is_dense[rows]] = to_numpy(indices.flatten().fill_null(-1))
    wrong = (places < 0) | (places >= width[0])
    wrong[1:] |= (rows[1:] == rows[:-1]) & (places[1:] <= places[:-1])
    _refuse_sparse(rows[wrong], column, where)
    dense = np.zeros((len(array), int(width[0])))
    dense[rows, places] = to_numpy(values.flatten())
    return _lists(np.full(len(array), width[0]), pa.array(dense.ravel()))


def _refuse_sparse(rows: npt.NDArray[Any], column: Column, where: Where) -> None:
    if len(rows):
        raise InputError(
            f"{where.row(int(rows[0]))}: {column} holds a vector of Spark ML that does not fit: its"
            " size must be that of the other rows, and where it is sparse its indices must be"
            " ascending, below the size, and as many as its values"
        )
