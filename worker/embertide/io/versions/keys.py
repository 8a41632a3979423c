"""Ids as sort keys: rows of a version ascend by them, over all of its parts.

The key of an id is its hash, one word of an int64 and two of a string, as in
:mod:`embertide.kernels.hashing`; a dense id is its own key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embertide.kernels.hashing import Words
from embertide.kernels.ids import Ids, hash_ids

Key = tuple[int, ...]
"""The words of one key, the high one first."""
_HEX_DIGITS = 16


def key_words(ids: Ids, kind: str) -> Words:
    """[n, 1] or [n, 2] keys of [n] ids.

    Args:
        kind: one of ``spec.input.nodes[].ids``: dense, int64 or string.
    """
    if kind == "dense":
        assert isinstance(ids, np.ndarray)
        return np.ascontiguousarray(ids).view(np.uint64)[:, None]
    return hash_ids(ids)


def key_at(words: Words, row: int) -> Key:
    """The key of one row."""
    return tuple(map(int, words[row]))


def to_hex(key: Key) -> str:
    """A key as text, of which the order is that of the keys."""
    return "".join(f"{word:0{_HEX_DIGITS}x}" for word in key)


def from_hex(text: str) -> Key:
    """The key that :func:`to_hex` wrote.

    Raises:
        ValueError: it is none.
    """
    words = [text[at : at + _HEX_DIGITS] for at in range(0, len(text), _HEX_DIGITS)]
    return tuple(int(word, 16) for word in words)


@dataclass(frozen=True)
class KeyRange:
    """Keys from ``low`` on, below ``high``; None is without an end."""

    low: Key | None = None
    high: Key | None = None

    def overlaps(self, first: Key, last: Key) -> bool:
        """Whether any key from ``first`` to ``last``, both included, may be in it."""
        return (self.low is None or last >= self.low) and (self.high is None or first < self.high)

    def covers(self, first: Key, last: Key) -> bool:
        """Whether all keys from ``first`` to ``last`` are in it."""
        return (self.low is None or first >= self.low) and (self.high is None or last < self.high)

    def mask(self, words: Words) -> npt.NDArray[np.bool_]:
        """[n] which of [n, w] keys are in it."""
        inside = np.ones(len(words), bool)
        if self.low is not None:
            inside &= ~_less(words, self.low)
        if self.high is not None:
            inside &= _less(words, self.high)
        return inside


def _less(words: Words, key: Key) -> npt.NDArray[np.bool_]:
    """[n] which keys are less than one."""
    less = words[:, -1] < np.uint64(key[-1])
    for column in reversed(range(len(key) - 1)):
        word = np.uint64(key[column])
        less = (words[:, column] < word) | ((words[:, column] == word) & less)
    return less


def ranges_from(starts: list[Key | None]) -> list[KeyRange]:
    """Ranges side by side that hold all keys, one for each owner of rows.

    Args:
        starts: the first key of each owner, ascending; None for an owner without rows, whose
            range is empty.
    """
    ranges, high = [], None
    first = next((at for at, start in enumerate(starts) if start is not None), None)
    for at in reversed(range(len(starts))):
        start = starts[at]
        if start is None:
            ranges.append(KeyRange(high=(0,)))
            continue
        ranges.append(KeyRange(None if at == first else start, high))
        high = start
    return ranges[::-1]
