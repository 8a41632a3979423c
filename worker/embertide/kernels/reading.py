"""What is done to a batch that was just read, in one pass and on the calling thread.

Readers have threads of their own, a batch each. All functions release the interpreter's lock.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from embertide.kernels import native
from embertide.kernels.pages import Pages

Ids = npt.NDArray[np.int64]
Float32s = npt.NDArray[np.float32]


def place_rows(to: Float32s, values: Float32s, rows: Ids | None = None) -> bool:
    """``to[rows] = values``; whether all values are finite.

    Args:
        to: [N, D].
        values: [n, D].
        rows: [n] in 0..N-1; None: 0..n-1.

    Raises:
        IndexError, ValueError: a row is outside.
    """
    if native.lib is not None:
        at = np.arange(len(values)) if rows is None else np.ascontiguousarray(rows)
        return bool(native.lib.place_rows(to, values, at))
    to[slice(len(values)) if rows is None else rows] = values
    return bool(np.isfinite(values).all())


def end_type(nodes: int) -> np.dtype[np.integer]:
    """The type that :func:`narrow_ids` makes ids of N nodes."""
    return np.dtype(np.int64 if nodes >= 2**31 else np.int32)


def narrow_ids(ids: npt.NDArray[np.integer], nodes: int, pages: Pages) -> npt.NDArray[np.integer]:
    """Ids of N nodes in the narrowest type that holds them all; the same array if it is that."""
    if nodes >= 2**31 or ids.dtype == np.int32:
        return ids
    if native.lib is None:
        return ids.astype(np.int32)
    narrow = pages.take(len(ids), np.int32)
    native.lib.narrow_ids(narrow, np.ascontiguousarray(ids))
    return narrow


def count_ids(counts: npt.NDArray[np.int64], ids: npt.NDArray[np.integer], shift: int) -> None:
    """Add to ``counts[b]`` how many ids have ``id >> shift == b``; one writer at a time."""
    if native.lib is not None:
        native.lib.count_ids(counts, ids, shift)
    else:
        counts += np.bincount(ids >> shift, minlength=len(counts))
