"""Comparing the embeddings that systems wrote, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

_ROWS = 1 << 16

Values = npt.NDArray[np.float32]
Batches = Iterable[tuple[npt.NDArray[np.int64], Values]]
"""Ids of nodes, and their rows."""


def written(file: Path) -> Values:
    """A peer's npy file, row i of node i; not read before it is looked at."""
    found: Values = np.load(file, mmap_mode="r")
    return found


def batches(rows: Values) -> Batches:
    """Of an array, from its first row on."""
    for first in range(0, len(rows), _ROWS):
        ids = np.arange(first, min(first + _ROWS, len(rows)))
        yield ids, rows[first : first + _ROWS]


def published(output: Path, types: Sequence[str | None]) -> Batches:
    """What Embertide published; the ids of a node type go on where those of the last one ended."""
    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.reading import iter_embeddings

    uri = f"file://{output / 'embeddings'}"
    storage, first = open_storage(None), 0
    for of_type in types:
        count = 0
        for ids, rows in iter_embeddings(storage, uri, node_type=of_type):
            yield ids + first, rows
            count += len(ids)
        first += count


def difference(found: Batches, other: Values) -> float:
    """The largest difference between two systems' values; infinite if one has other rows."""
    largest, count = np.float64(0), 0
    for ids, rows in found:
        # Unlike Python's, this maximum is nan where a value is.
        largest = np.maximum(largest, np.abs(rows - other[ids]).max(initial=0))
        count += len(ids)
    return float(largest) if count == len(other) else float("inf")
