"""Rows that a run has computed again, kept beside the blocks of an earlier run.

Of a tensor of which few rows have moved, a run keeps these rows alone, as a *patch*: the seal
refers to the blocks of the earlier key, and to its patches. A patch that has no more rows than are
written after it is merged with them, so that a tensor has few patches, each smaller than the one
before, and a row is written again about as often as the logarithm of their rows. Once they might
have more than a share of all rows, the tensor is written whole.

The object of a block of a patch is the dense ids of its rows, [k] int64, then their values, [k, d].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.io.versions.layers.places import block_path
from embertide.io.versions.layers.seals import (
    POSITION_BYTES,
    Beside,
    Block,
    KeptTensor,
    Patch,
    PatchBlock,
)

MOST_SHARE = 0.25
"""The most rows that the patches of a tensor have, as a share of all."""
Array = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]
Part = Array | Callable[[], Array]
"""What an object of a block has, or what makes it: so only those under way take memory."""


@dataclass(frozen=True)
class EarlierRows:
    """A tensor that an earlier run has kept, of which this run has other values in some rows.

    Attributes:
        key: of the earlier run.
        moved: [N] bool, the rows with other values; the others have the bits that were kept. Rows
            are where they were.
    """

    key: str
    tensor: KeptTensor
    moved: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PatchPlan:
    """What a run refers to of an earlier tensor, and what it writes.

    Attributes:
        tensor: the earlier blocks, and the patches that stay.
        merged: patches whose rows are written again, with those that have moved.
    """

    tensor: KeptTensor
    merged: tuple[Patch, ...]


def plan_patch(tensor: KeptTensor, earlier: EarlierRows) -> PatchPlan | None:
    """How a tensor is kept beside what an earlier run has kept of it; None: it is written whole.

    The same on all ranks.

    Args:
        tensor: as this run has it, without blocks.
    """
    before, moved = earlier.tensor, int(earlier.moved.sum())
    if (before.rows, before.width, before.dtype) != (tensor.rows, tensor.width, tensor.dtype):
        return None
    stay, merged = list(before.patches), list[Patch]()
    rows = moved
    while moved and stay and rows_of(stay[-1], tensor.width) <= rows:
        merged.append(stay.pop())
        rows += rows_of(merged[-1], tensor.width)
    rows += sum(rows_of(patch, tensor.width) for patch in stay)
    if rows > MOST_SHARE * tensor.rows:
        return None
    refers = replace(
        tensor,
        blocks=tuple(replace(block, key=block.key or earlier.key) for block in before.blocks),
        patches=tuple(_of_key(patch, earlier.key) for patch in stay),
    )
    return PatchPlan(refers, tuple(_of_key(patch, earlier.key) for patch in merged))


def _of_key(patch: Patch, key: str) -> Patch:
    return tuple(replace(block, key=block.key or key) for block in patch)


def rows_of(patch: Patch, width: int) -> int:
    """How many rows a patch has; slices of columns have the same ones."""
    return sum(block.rows * (block.right - block.left) for block in patch) // max(1, width)


def patch_blocks(
    names: tuple[str, str, int, int],
    values: Array,
    rows: Positions,
    place: tuple[int, int],
    most_bytes: int,
) -> Iterator[tuple[Part, PatchBlock]]:
    """What makes the objects of a worker's part of a patch, and their blocks without checksums.

    Args:
        names: the version, the layer's name, the tensor's number, the rank.
        values: [n, d] our rows and columns of the tensor; C-contiguous.
        rows: [k] of these, ascending, from 0.
        place: dense id of our first row, and our first column.
        most_bytes: of an object.
    """
    first, left = place
    return _cut(names, values, (rows, rows + first), left, most_bytes, "")


def blocks_beside(
    names: tuple[str, str, int, int],
    values: Array,
    ids: Positions,
    left: int,
    most_bytes: int,
    beside: Beside,
) -> Iterator[tuple[Part, PatchBlock]]:
    """As :func:`patch_blocks`, for what is kept beside a tensor.

    Args:
        values: [k, d] what we have of some rows; C-contiguous.
        ids: [k] their dense ids, ascending.
        left: our first column.
    """
    return _cut(names, values, (np.arange(len(ids)), ids), left, most_bytes, beside)


def _cut(
    names: tuple[str, str, int, int],
    values: Array,
    rows: tuple[Positions, Positions],
    left: int,
    most_bytes: int,
    beside: Beside,
) -> Iterator[tuple[Part, PatchBlock]]:
    """Some rows as objects.

    Args:
        rows: where they are among the values, and their dense ids.
    """
    right = left + values.shape[1]
    row_bytes = POSITION_BYTES + values.itemsize * values.shape[1]
    at_once = max(1, most_bytes // row_bytes)
    for number, at in enumerate(range(0, len(rows[0]), at_once)):
        some, ids = (of[at : at + at_once] for of in rows)
        start, stop, path = int(ids[0]), int(ids[-1]) + 1, block_path(*names, number)
        yield (
            partial(_object, values, some, ids),
            PatchBlock(path, start, stop, left, right, "", "", len(ids), beside),
        )


def _object(values: Array, rows: Positions, ids: Positions) -> Array:
    return np.concatenate([_bytes(ids), _bytes(np.ascontiguousarray(values[rows]))])


def _bytes(values: Array) -> npt.NDArray[np.uint8]:
    return values.reshape(-1).view(np.uint8)


def split_patch(
    data: bytes | memoryview, block: PatchBlock, dtype: npt.DTypeLike
) -> tuple[Positions, Array]:
    """[k] dense ids and [k, d] values of a block's object, which has the size that it should."""
    cut = block.rows * POSITION_BYTES
    positions = np.frombuffer(data[:cut], np.int64)
    return positions, np.frombuffer(data[cut:], dtype).reshape(block.rows, -1)


def overlaps(block: Block, rows: tuple[int, int], columns: tuple[int, int]) -> bool:
    """Whether a block may have some of a range of rows and columns."""
    return (
        max(rows[0], block.first) < min(rows[1], block.last)
        and max(columns[0], block.left) < min(columns[1], block.right)
    )  # fmt: skip
