"""Some rows of a kept tensor: only the blocks that have one of them are read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from embertide.io.versions.layers.seals import Damaged, KeptTensor
from embertide.io.versions.layers.store import Array, LayerStore

_READERS = 4
RowNumbers = npt.NDArray[np.int64]


def read_some(store: LayerStore, tensor: KeptTensor, rows: RowNumbers, out: Array) -> None:
    """Fill [k, D] with some rows of a tensor, in the order in which they are asked for.

    Takes memory for a block of each of a few threads beside them.

    Args:
        rows: [k] dense ids as they were when the tensor was kept; each may occur several times.

    Raises:
        Damaged: a block is not what was written, or cannot be read, or the tensor has no such row.
    """
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < tensor.rows:
        raise Damaged(f"{store.uri}: {tensor.name} has {tensor.rows} rows, {int(rows.max())} is"
                      " asked for")  # fmt: skip
    order = np.argsort(rows, kind="stable")

    def read(some: RowNumbers) -> None:
        wanted = rows[some]
        first, last = int(wanted[0]), int(wanted[-1]) + 1
        part = np.empty((last - first, tensor.width), out.dtype)
        store.read(tensor, (first, last), (0, tensor.width), part)
        out[some] = part[wanted - first]

    with ThreadPoolExecutor(_READERS, "rows") as pool:
        for _ in pool.map(read, _by_block(tensor, rows, order)):
            pass


def _by_block(tensor: KeptTensor, rows: RowNumbers, order: RowNumbers) -> Iterator[RowNumbers]:
    """Runs of ``order`` whose rows are in the same blocks."""
    bounds = sorted({0, tensor.rows, *(block.first for block in tensor.blocks)})
    cuts = np.searchsorted(rows[order], bounds)
    for start, stop in pairwise(cuts.tolist()):
        if start < stop:
            yield order[start:stop]
