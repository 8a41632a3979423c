"""Columns of numbers between numpy and arrow, without a copy and without pandas.

``pa.array`` and ``to_numpy`` first import pandas where it is installed, for objects that are never
given here: a fifth of a second and more, in the middle of a short run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def to_arrow(values: npt.NDArray[Any]) -> pa.Array:
    """Numbers [n] in native byte order as an array of their own type, over their memory.

    Booleans, of which arrow keeps eight in a byte, are copied, and so is what is not contiguous.
    """
    if values.dtype.kind not in "iuf":
        return pa.array(values)
    held = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(held.dtype)
    return pa.Array.from_buffers(kind, len(held), [None, pa.py_buffer(held)])


def to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    """An array without nulls as numbers [n] of its own type, over its memory; not to be
    changed.

    What numpy holds in another way, such as booleans and strings, is copied.
    """
    kind = array.type
    if array.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    return np.asarray(np.from_dlpack(array))
