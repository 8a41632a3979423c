"""Random rows that depend on an id alone: the same wherever, whenever and beside whatever.

An entry is +s or -s with a probability of 1/6 each, else 0, where s = sqrt(3 / columns), so that
a row's length is about 1 (Achlioptas 2003; the very sparse projection of FastRP).
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from embertide.kernels import native
from embertide.kernels.hashing import Words, mix
from embertide.kernels.ids import Ids, hash_ids

_ROWS = 1 << 14
"""Rows that are drawn at a time, without native kernels."""
_SIDES = np.uint64(6)


def seed_of(seed: int, name: str) -> int:
    """A seed for what has a name, so that equal ids of two node types have different rows."""
    return seed << 32 | zlib.crc32(name.encode())


def draw_rows(
    ids: Ids, columns: int, seed: int, out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """[n] ids -> [n, columns] float32, a row of each.

    The numbers of a row's columns 2c and 2c + 1 are the halves, the lower one first, of the
    SplitMix64 generator's word c, begun at the id's hash and the seed; a number times 6, in 2^32,
    is the side of a die: 0 is +s, 1 is -s.

    Args:
        seed: below 2^64.
        out: where they go, contiguous in the columns.
    """
    rows = np.empty((len(ids), columns), np.float32) if out is None else out
    keys = _keys(hash_ids(ids), seed)
    size = np.float32(np.sqrt(3 / max(1, columns)))
    if native.lib is not None:
        native.lib.draw_rows(keys, float(size), rows)
        return rows
    for at in range(0, len(rows), _ROWS):
        rows[at : at + _ROWS] = size * _signs(keys[at : at + _ROWS], columns)
    return rows


def _keys(hashes: Words, seed: int) -> Words:
    """[n, 1] or [n, 2] hashes of ids -> [n] where each one's generator begins."""
    words = hashes[:, 0] if hashes.shape[1] == 1 else hashes[:, 0] ^ mix(hashes[:, 1])
    return mix(words ^ mix(np.array([seed], np.uint64)))


def _signs(keys: Words, columns: int) -> npt.NDArray[np.float32]:
    """[n, columns] of -1, 0 and 1."""
    with np.errstate(over="ignore"):
        steps = np.arange((columns + 1) // 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        words = mix(keys[:, None] + steps)
    halves = np.stack([words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)], axis=2)
    sides = (halves.reshape(len(keys), -1)[:, :columns] * _SIDES) >> np.uint64(32)
    signs: npt.NDArray[np.float32] = np.select([sides == 0, sides == 1], [1, -1]).astype(np.float32)
    return signs
