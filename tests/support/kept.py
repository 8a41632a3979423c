"""Records that several ranks write together, in one process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from embertide.io.versions.layers.seals import Block, Damaged, KeptTensor
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.writing import EarlierRows, Record, RowsBeside, Writer

Place = tuple[int, int, int, int]
"""First and last row and column of what a rank has."""


def write_record(
    store: LayerStore,
    name: str,
    tensor: KeptTensor,
    values: np.ndarray,
    places: Sequence[Place],
    earlier: EarlierRows | None = None,
    beside: Sequence[RowsBeside] = (),
    **fields: Any,
) -> Record:
    """A record of one tensor on which all ranks have agreed; not sealed.

    Raises:
        Damaged: it may not be.

    Args:
        beside: one of each rank.
        fields: of its seal.
    """
    results, records = list[Any](), list[Record]()
    with ExitStack() as stack:
        for rank, (first, last, left, right) in enumerate(places):
            writer = stack.enter_context(Writer(store, rank, lambda _own: results))
            record = writer.begin(name, **fields)
            own = np.ascontiguousarray(values[first:last, left:right])
            record.put(tensor, own, first, left, earlier, beside[rank : rank + 1])
            records.append(record)
        results += [record.result() for record in records]
        if why := records[0].agree():
            raise Damaged(why)
    return records[0]


def tensor_like(values: np.ndarray, name: str = "h", layout: str = "rows") -> KeptTensor:
    """A tensor with such values, without blocks."""
    return KeptTensor(
        name=name, rows=len(values), width=values.shape[1], dtype=str(values.dtype),
        layout=layout, scaled=False, blocks=(),  # type: ignore[arg-type]
    )  # fmt: skip


def spans_of(block: Block, rows: np.ndarray, page: int, gap: int) -> list[tuple[int, int]]:
    """The bytes of a block of float32 that are read for some rows: a loop over its pages.

    Args:
        gap: the most bytes between two pages that are read together.
    """
    width = 4 * (block.right - block.left)
    size, found = width * (block.last - block.first), list[tuple[int, int]]()
    wanted = set(rows.tolist())
    for start in range(0, size, page):
        stop = min(size, start + page)
        own = range(block.first + start // width, block.first + (stop - 1) // width + 1)
        if wanted.isdisjoint(own):
            continue
        if found and start - found[-1][1] <= gap:
            start = found.pop()[0]
        found.append((start, stop))
    return found
