"""Hashes of node ids and counter-based random numbers, vectorised over arrays.

An int64 id is hashed to 64 bits by a bijection, so that two never meet and the id can be had back;
a string to 128 bits, where two different ones never meet in practice. The mixing function is
SplitMix64's finaliser, a bijection on 64-bit words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.kernels import native
from embertide.kernels.pages import empty_array

Words = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.signedinteger[Any]]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD1B54A32D192ED03)
_FIRST_INVERSE = np.uint64(0x96DE1B173F119089)
_SECOND_INVERSE = np.uint64(0x319642B2D24D8EC3)
_BATCH_BYTES = 1 << 24


def mix(words: Words) -> Words:
    """[n] words through SplitMix64's finaliser, a bijection on 64-bit words."""
    with np.errstate(over="ignore"):
        words = words + _GOLDEN
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))


def _unmix(words: Words) -> Words:
    """[n] words -> those that :func:`mix` makes them of."""
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(31)) ^ (words >> np.uint64(62))) * _SECOND_INVERSE
        words = (words ^ (words >> np.uint64(27)) ^ (words >> np.uint64(54))) * _FIRST_INVERSE
        words = words ^ (words >> np.uint64(30)) ^ (words >> np.uint64(60))
        return words - _GOLDEN


def hash_integers(ids: npt.NDArray[np.int64], out: Words | None = None) -> Words:
    """[n] int64 -> [n] their hashes, of which no two are equal; to ``out`` if that is given."""
    words = empty_array((len(ids),), np.uint64) if out is None else out
    if native.lib is None:
        words[:] = mix(ids.view(np.uint64))
    else:
        native.lib.hash_integers(np.ascontiguousarray(ids), words)
    return words


def unhash_integers(words: Words) -> npt.NDArray[np.int64]:
    """[n] hashes -> [n] int64, the ids they are of."""
    if native.lib is None:
        return _unmix(words).view(np.int64)
    ids = empty_array((len(words),), np.int64)
    native.lib.unhash_integers(np.ascontiguousarray(words), ids)
    return ids


def hash_strings(ids: pa.Array, out: Words | None = None) -> Words:
    """[n] strings (of either arrow type) -> [n, 2] high and low halves of their hashes.

    Args:
        out: where they go; contiguous.
    """
    offsets, data = string_buffers(ids)
    return hash_bytes(offsets, data, out)


def hash_bytes(offsets: Offsets, data: npt.NDArray[np.uint8], out: Words | None = None) -> Words:
    """[n + 1] offsets into bytes -> [n, 2] hashes of what is between them, as of strings.

    Two that differ have the same hash with a probability of about 2^-128.

    Args:
        out: where they go; contiguous.
    """
    words = empty_array((len(offsets) - 1, 2), np.uint64) if out is None else out
    if native.lib is None:
        _hash_strings(offsets.astype(np.int64), data, words)
    else:
        native.lib.hash_strings(offsets, data, words.reshape(-1))
    return words


def _hash_strings(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], out: Words) -> None:
    """Eight bytes of all strings at a time."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    words = (lengths + 7) // 8
    high, low = mix(lengths.astype(np.uint64)), mix(lengths.astype(np.uint64) ^ _SECOND)
    for count in np.unique(words[words > 0]):
        members = np.flatnonzero(words == count)
        step = max(1, _BATCH_BYTES // int(count * 8))
        for at in range(0, len(members), step):
            some = members[at : at + step]
            for column in _padded(data, starts[some], lengths[some], int(count)).T:
                high[some] = mix(high[some] ^ column)
                low[some] = mix(low[some] + _SECOND ^ column)
    out[:, 0], out[:, 1] = high, low


def string_buffers(ids: pa.Array) -> tuple[Offsets, npt.NDArray[np.uint8]]:
    """[n + 1] offsets, int64 of a large_string array, else int32; and the bytes they point into."""
    kind: type[np.signedinteger[Any]] = np.int64 if pa.types.is_large_string(ids.type) else np.int32
    if len(ids) == 0:
        return np.zeros(1, kind), np.empty(0, np.uint8)
    buffers = ids.buffers()
    offsets = np.frombuffer(buffers[1], kind)[ids.offset :][: len(ids) + 1]
    return offsets, np.frombuffer(buffers[2] or b"", np.uint8)


def _padded(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    words: int,
) -> Words:
    """[n, words] the strings' bytes, zero-padded to whole words."""
    at = np.arange(words * 8)
    position = np.minimum(starts[:, None] + at, max(len(data) - 1, 0))
    filled = np.where(at < lengths[:, None], data[position], 0).astype(np.uint8)
    return np.ascontiguousarray(filled).view(np.uint64)


def random_words(seed: int, layer: int, keys: Words, counter: int) -> Words:
    """[n] random words that depend on (seed, layer, key, counter) only."""
    stream = mix(mix(np.array([seed % 2**64], np.uint64)) ^ np.uint64(layer))
    return mix(mix(keys ^ stream) + np.uint64(counter))
