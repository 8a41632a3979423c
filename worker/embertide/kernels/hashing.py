"""Hashes of node ids and counter-based random numbers, vectorised over arrays.

Ids are hashed to 128 bits, so that two different ids never meet in practice; the mixing
function is SplitMix64's finaliser, a bijection on 64-bit words.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD1B54A32D192ED03)
_BATCH_BYTES = 1 << 24


def mix(words: Words) -> Words:
    """[n] words through SplitMix64's finaliser, a bijection on 64-bit words."""
    with np.errstate(over="ignore"):
        words = words + _GOLDEN
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))


def hash_integers(ids: npt.NDArray[np.int64]) -> tuple[Words, Words]:
    """[n] int64 -> high and low halves of their hashes."""
    words = ids.view(np.uint64)
    return mix(words), mix(words ^ _SECOND)


def hash_strings(ids: pa.Array) -> tuple[Words, Words]:
    """[n] strings -> high and low halves of their hashes, eight bytes at a time."""
    offsets, data = string_buffers(ids.cast(pa.large_string()))
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
    return high, low


def string_buffers(ids: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """[n + 1] offsets and the bytes they point into, of a large_string array."""
    if len(ids) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    buffers = ids.buffers()
    offsets = np.frombuffer(buffers[1], np.int64)[ids.offset :][: len(ids) + 1]
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
