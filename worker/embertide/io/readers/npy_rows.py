"""npy: some rows of an array alone, in ranges that are read at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.io.readers.columns import Int64s
from embertide.io.readers.npy import Header, read_range
from embertide.io.readers.splits import Split
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import GAP_BYTES, Span
from embertide.spec.schemes import is_local

LOCAL_GAP_BYTES = 4 << 10
"""Between rows of a file that are read: they take no longer than another call."""


def spans_of_rows(split: Split, rows: Int64s, header: Header) -> list[Span]:
    """Where some rows of a split lie, see :func:`some_rows_of`."""
    return [at for run in _runs(split, header, rows) for at in header.spans(*run)]


def some_rows_of(
    file: Any, header: Header, split: Split, rows: Int64s, batch_rows: int
) -> Iterator[tuple[npt.NDArray[Any], Where]]:
    """Some rows of a split of an open array, as arrays ``[n, width]`` with n <= ``batch_rows``.

    Rows with small gaps between them are read together with these.

    Args:
        rows: their numbers in the object, ascending and within the split.
    """
    for at in range(0, len(rows), batch_rows):
        some = rows[at : at + batch_rows]
        values = np.empty((len(some), header.width), header.dtype.newbyteorder("="))
        for runs in _at_once(_runs(split, header, some), batch_rows):
            begin, end = np.searchsorted(some, [runs[0][0], runs[-1][1]])
            there = np.concatenate([np.arange(*run) for run in runs])
            read = np.concatenate(
                [read_range(file, split.uri, header, first, last - first) for first, last in runs]
            )
            values[begin:end] = read[np.searchsorted(there, some[begin:end])]
        yield values, Where(split.uri, 0, rows=some)


def _at_once(runs: list[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    """Ranges together as far as they have at most so many rows; a longer one is cut."""
    found, room = list[tuple[int, int]](), most
    for first, last in runs:
        for start in range(first, last, most):
            stop = min(last, start + most)
            if stop - start > room:
                yield found
                found, room = [], most
            found.append((start, stop))
            room -= stop - start
    if found:
        yield found


def _runs(split: Split, header: Header, rows: Int64s) -> list[tuple[int, int]]:
    """Ranges that have all of some rows, ascending; one where columns lie together."""
    if header.fortran:
        return [(int(rows[0]), int(rows[-1]) + 1)] if len(rows) else []
    most = (LOCAL_GAP_BYTES if is_local(split.uri) else GAP_BYTES) // max(1, header.row_bytes)
    (cuts,) = np.nonzero(np.diff(rows) > most + 1)
    firsts, lasts = np.append(0, cuts + 1), np.append(cuts, len(rows) - 1)
    if not len(rows):
        return []
    return list(zip(rows[firsts].tolist(), (rows[lasts] + 1).tolist(), strict=True))
