"""Ids by their hashes: sorted, looked up, grouped by owner; and strings taken in any order.

Hashes are ``[n, 1]`` words of int64 ids and ``[n, 2]`` of strings, see
:mod:`embertide.kernels.hashing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.kernels import native
from embertide.kernels.hashing import Words, hash_integers, hash_strings, string_buffers
from embertide.kernels.pages import Pages, empty_array, empty_bytes

Ids = npt.NDArray[np.int64] | Any
"""``np.int64 [k]``, or an arrow array of k strings."""
Positions = npt.NDArray[np.signedinteger[Any]]
Order = npt.NDArray[np.uint32]


def hash_ids(ids: Ids, out: Words | None = None) -> Words:
    """[n, 1] or [n, 2] hashes of int64 ids or of strings; to ``out`` if that is given."""
    if not isinstance(ids, np.ndarray):
        return hash_strings(ids, out)
    return hash_integers(ids, None if out is None else out[:, 0])[:, None]


def sort_words(pieces: Sequence[Words], width: int) -> tuple[Words, Order]:
    """Hashes [n, width] of all pieces in ascending order, and where each was before.

    With one word a hash says which id it is of, so there is no order: it is empty.

    Raises:
        ValueError: there are 2^32 - 1 or more.
    """
    size = sum(len(piece) for piece in pieces)
    if native.lib is None:
        joined = np.concatenate([np.empty((0, width), np.uint64), *pieces])
        by_word = np.lexsort(joined.T[::-1])
        order = by_word.astype(np.uint32)[: size if width == 2 else 0]
        return joined[by_word], order
    words = empty_array((size, width), np.uint64)
    order = empty_array((size if width == 2 else 0,), np.uint32)
    native.lib.sort_words([piece.reshape(-1) for piece in pieces], width, words.reshape(-1), order)
    return words, order


def invert_order(order: Order) -> npt.NDArray[np.int64]:
    """[n] the place of each row in an order of all n."""
    places = empty_array((len(order),), np.int64)
    if native.lib is not None:
        native.lib.invert_order(order, places)
    else:
        places[order] = np.arange(len(order))
    return places


class IdTable:
    """Positions of ids among ascending hashes.

    Natively a directory beside the hashes, about a byte an id, says where those with the
    same leading bits begin: a look-up reads two places in memory, and those of many ids overlap.

    Args:
        words: [n, 1] or [n, 2], ascending.
    """

    def __init__(self, words: Words) -> None:
        self._words = words
        width = words.shape[1]
        self._native = native.lib and native.lib.IdTable(words.reshape(-1), width)

    def find(
        self,
        ids: Ids,
        first: int,
        kind: type[np.int32] | type[np.int64] = np.int64,
        pages: Pages | None = None,
    ) -> Positions:
        """[k] positions counted from ``first``, in integers of a kind; -1 where there is none.

        Args:
            ids: strings of either arrow type, or int64.
            pages: where they are put; by default in memory of their own.
        """
        if self._native is None:
            return self._search(hash_ids(ids), first).astype(kind, copy=False)
        out = np.empty(len(ids), kind) if pages is None else pages.take(len(ids), kind)
        if isinstance(ids, np.ndarray):
            self._native.find_integers(np.ascontiguousarray(ids), first, out)
        else:
            self._native.find_strings(*string_buffers(ids), first, out)
        return out

    def find_words(self, words: Words, first: int, out: Positions) -> Positions:
        """[k] positions of hashes, as :meth:`find` gives them, to ``out``."""
        if self._native is None:
            out[:] = self._search(words, first)
        else:
            self._native.find_words(words.reshape(-1), first, out)
        return out

    def _search(self, wanted: Words, first: int) -> npt.NDArray[np.int64]:
        words = self._words
        if len(words) == 0:
            return np.full(len(wanted), -1, np.int64)
        high = words[:, 0]
        at = np.minimum(np.searchsorted(high, wanted[:, 0]), len(words) - 1)
        while True:
            # Ids with equal high halves are next to each other; step past the wrong ones.
            wrong = (high[at] == wanted[:, 0]) & (words[at] != wanted).any(axis=1)
            step = wrong & (at + 1 < len(words))
            if not step.any():
                break
            at = at + step
        return np.where((words[at] == wanted).all(axis=1), at + first, -1)


def group_words(
    words: Words, owners: int, unique: Words, position: npt.NDArray[np.int32], room: Order
) -> list[int]:
    """The different ones of [n, width] hashes, by the owner of the range of hashes they lie in.

    Args:
        unique: [n, width], from whose start on they are put.
        position: [n], now the place of each of the hashes among them.
        room: [2n], for the time of the call.

    Returns:
        how many each owner has.
    """
    if native.lib is not None:
        flat = words.reshape(-1), words.shape[1], owners, unique.reshape(-1)
        return list(native.lib.group_words(*flat, position, room))
    order = np.lexsort(words.T[::-1])
    ordered = words[order]
    new = np.ones(len(words), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    position[order] = np.cumsum(new) - 1
    different = ordered[new]
    unique[: len(different)] = different
    owner = ((different[:, 0] >> np.uint64(32)) * np.uint64(owners)) >> np.uint64(32)
    return [int(count) for count in np.bincount(owner.astype(int), minlength=owners)]


def string_lengths(pieces: Sequence[pa.Array], order: Order) -> npt.NDArray[np.int64]:
    """Bytes of rows of large_string arrays that follow each other, in any order."""
    if native.lib is None:
        lengths = [np.empty(0, np.int64)]
        lengths += [np.diff(string_buffers(piece)[0]).astype(np.int64) for piece in pieces]
        return np.concatenate(lengths)[order]
    out = np.empty(len(order), np.int64)
    native.lib.text_lengths(*_buffers(pieces), order, out)
    return out


def take_strings(pieces: Sequence[pa.Array], order: Order) -> pa.Array:
    """A large_string array of those rows."""
    if native.lib is None:
        joined = pa.concat_arrays([pa.array([], pa.large_string()), *pieces])
        return joined.take(pa.array(order))
    offsets, data = _buffers(pieces)
    bounds = empty_array((len(order) + 1,), np.int64)
    bounds[0] = 0
    native.lib.text_lengths(offsets, data, order, bounds[1:])
    np.cumsum(bounds, out=bounds)
    text = empty_bytes(int(bounds[-1]))
    native.lib.gather_text(offsets, data, order, bounds, text)
    return strings(bounds, text)


def _buffers(
    pieces: Sequence[pa.Array],
) -> tuple[list[Any], list[npt.NDArray[np.uint8]]]:
    """Offsets and bytes of each piece."""
    buffers = [string_buffers(piece) for piece in pieces]
    return [offsets for offsets, _ in buffers], [data for _, data in buffers]


def strings(bounds: npt.NDArray[np.int64], text: npt.NDArray[np.uint8]) -> pa.Array:
    """A large_string array over [n + 1] offsets and bytes, without a copy."""
    return pa.LargeStringArray.from_buffers(
        len(bounds) - 1, pa.py_buffer(bounds), pa.py_buffer(text)
    )
