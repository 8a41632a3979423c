"""Edges of some rows to compressed sparse rows, in two levels.

As edges come they are packed into one word each, (row, column), and put into buckets of
neighbouring rows, whose sizes have been counted before. Then the columns of each bucket are put row
by row where they stay, and sorted there, in the cache. That rows are sorted by column, and equal
columns by weight, makes the result independent of the order of arrival and of the number of
threads. Features, where edges have some, go with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.kernels import native
from embertide.kernels.csr import Csr, column_bits, id_type
from embertide.kernels.edge_features import Features, last_of_each, place_by, sort_buckets
from embertide.kernels.pages import empty_array

Ids = npt.NDArray[np.integer[Any]]
Keys = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32] | None

Chunk = tuple[Ids, Ids, Weights, Features]
"""Rows [e] and columns [e] of some edges by node ids, and what they carry."""

_BUCKET_BITS = 12
_NARROW_BITS = 32


def bucket_shift(rows: int) -> int:
    """Row r of ``rows`` is in bucket ``r >> shift``; there are at most 4096 buckets."""
    return max(0, (rows - 1).bit_length() - _BUCKET_BITS)


def bucket_count(rows: int) -> int:
    """Buckets of ``rows`` rows."""
    return ((rows - 1) >> bucket_shift(rows)) + 1


def key_bytes(shift: int, nodes: int, features: int = 0) -> int:
    """Bytes of a packed edge in its bucket: 4 where its column and row in the bucket fit, else 8.

    Numpy sorts all buckets at once, which takes whole words.

    Args:
        shift: see :func:`bucket_shift`.
        nodes: N, of the columns.
        features: K of each edge, with which whole words are sorted.
    """
    fits = column_bits(nodes) + shift <= _NARROW_BITS
    whole = native.lib is None or features > 0 or nodes >= 2**31
    return 4 if fits and not whole else 8


def pack(rows: Ids, cols: Ids, nodes: int) -> Keys:
    """[e] int64 keys, ordered by (row, column)."""
    keys = rows.astype(np.int64)
    keys <<= column_bits(nodes)
    keys |= cols
    return keys


def count_edges(rows: Ids, bounds: Keys, shift: int, counts: npt.NDArray[np.int64]) -> None:
    """Add to ``counts`` [ranges, buckets] how many rows are in each bucket of each range.

    Args:
        rows: [e] node ids.
        bounds: [ranges + 1] first node of each range, and one past the last.
        shift: see :func:`bucket_shift`.

    Raises:
        ValueError: a row that is in no range.
    """
    if native.lib is not None:
        native.lib.count_edges(rows, bounds, shift, counts)
        return
    owner = _owners(rows, bounds)
    bucket = (rows - bounds[owner]) >> shift
    found = np.bincount(owner * counts.shape[1] + bucket, minlength=counts.size)
    counts += found.reshape(counts.shape)


def partition_edges(
    rows: Ids,
    cols: Ids,
    weights: Weights,
    bounds: Keys,
    nodes: int,
    *,
    cursors: npt.NDArray[np.int64],
    keys: Keys,
    out_weights: Weights,
    features: Features = None,
    out_features: Features = None,
) -> None:
    """Pack edges, rows counted from their range's first, and put them range by range.

    Args:
        cursors: [ranges] next free place of each range in ``keys``; advanced.
        keys, out_weights, out_features: receive the edges of a range in any order.
    """
    if native.lib is not None and features is None:
        native.lib.partition_edges(
            rows, cols, weights, bounds, column_bits(nodes), cursors, keys, out_weights
        )
        return
    owner = _owners(rows, bounds)
    place = place_by(owner, cursors)
    keys[place] = pack(rows - bounds[owner], cols, nodes)
    for given, out in ((weights, out_weights), (features, out_features)):
        if given is not None and out is not None:
            out[place] = given


def _owners(rows: Ids, bounds: Keys) -> npt.NDArray[np.intp]:
    owner = np.searchsorted(bounds, rows, side="right") - 1
    if len(rows) and not 0 <= owner.min() <= owner.max() < len(bounds) - 1:
        raise ValueError("rows: outside all ranges")
    return owner


class EdgeSorter:
    """Takes the edges of ``rows`` rows from node ``first`` on, in any order, and sorts them.

    Holds :func:`key_bytes` per edge, 4 more with weights, and 4 for each of their features; beside
    them :meth:`finish` makes the columns.

    Args:
        counts: [buckets] edges that will come for each bucket, see :func:`bucket_shift`.
        shift: of the rows; may be that of a larger range.
        nodes: N.
        features: K of each edge; 0 without.
    """

    def __init__(
        self,
        counts: npt.NDArray[np.int64],
        shift: int,
        *,
        first: int,
        rows: int,
        nodes: int,
        weighted: bool,
        features: int = 0,
    ) -> None:
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._cursors = self._starts[:-1].copy()
        self._shift, self._first, self._rows, self._nodes = shift, first, rows, nodes
        edges = int(self._starts[-1])
        narrow = key_bytes(shift, nodes, features) == 4
        self._keys: Keys = empty_array((edges,), np.uint32 if narrow else np.int64)
        self._weights = empty_array((edges,), np.float32) if weighted else None
        self._features = empty_array((edges, features), np.float32) if features else None

    def add_edges(self, rows: Ids, cols: Ids, weights: Weights, features: Features = None) -> None:
        """Take edges by the node ids of both ends."""
        self.add_chunks([(rows, cols, weights, features)])

    def add_chunks(self, chunks: list[Chunk]) -> None:
        """Take edges by the node ids of both ends; ``chunks`` is emptied."""
        if native.lib is None or self._features is not None:
            while chunks:
                rows, cols, weights, features = chunks.pop()
                self.add_keys(pack(rows - self._first, cols, self._nodes), weights, features)
            return
        for kind in {rows.dtype for rows, *_ in chunks}:
            some = [chunk for chunk in chunks if chunk[0].dtype == kind]
            native.lib.bucket_edges(
                [rows for rows, *_ in some],
                [cols for _, cols, *_ in some],
                [weights for _, _, weights, _ in some],
                self._first,
                column_bits(self._nodes),
                self._shift,
                self._cursors,
                self._keys,
                self._weights,
            )
        chunks.clear()

    def add_keys(self, keys: Keys, weights: Weights, features: Features = None) -> None:
        """Take packed edges, rows counted from our first."""
        bits = column_bits(self._nodes)
        if features is not None and self._features is not None:
            place = place_by(keys >> (bits + self._shift), self._cursors)
            self._keys[place], self._features[place] = keys, features
            if weights is not None and self._weights is not None:
                self._weights[place] = weights
            return
        if native.lib is not None:
            native.lib.bucket_keys(
                keys, weights, bits, self._shift, self._cursors, self._keys, self._weights
            )
            return
        # Sorting all at once needs no buckets.
        at = int((self._cursors - self._starts[:-1]).sum())
        self._keys[at : at + len(keys)] = keys
        if weights is not None and self._weights is not None:
            self._weights[at : at + len(keys)] = weights
        self._cursors[0] += len(keys)

    def parts(self, *, remove_duplicates: bool) -> Iterator[Csr]:
        """All rows at once; see :meth:`finish`."""
        yield self.finish(remove_duplicates=remove_duplicates)

    def finish(self, *, remove_duplicates: bool) -> Csr:
        """The rows, each ordered by column and equal edges by weight; can be called once.

        When duplicates are removed the heaviest stays; of several the one whose features are
        last in lexicographic order.
        """
        keys, weights, features = self._keys, self._weights, self._features
        self._keys, self._weights, self._features = np.empty(0, np.int64), None, None
        if features is not None:
            sort_buckets(keys, weights, features, self._starts)
            if remove_duplicates:
                features = features[last_of_each(keys)]
        indptr = empty_array((self._rows + 1,), np.int64)
        narrow = id_type(self._nodes) is torch.int32
        cols: Ids = empty_array((len(keys),), np.int32 if narrow else np.int64)
        sort = _sort_plain if native.lib is None else native.lib.sort_buckets
        kept = sort(
            keys,
            weights,
            self._starts,
            self._nodes,
            column_bits(self._nodes),
            self._shift,
            remove_duplicates,
            indptr,
            cols,
        )
        full = kept == len(keys)
        del keys
        # A copy, since a slice would hold the memory of what was removed.
        cols = cols if full else cols[:kept].copy()
        weights = weights if full or weights is None else weights[:kept].copy()
        return Csr(
            self._first,
            torch.from_numpy(indptr),
            torch.from_numpy(cols),
            None if weights is None else torch.from_numpy(weights),
            None if features is None else torch.from_numpy(features),
        )


def _sort_plain(
    keys: Keys,
    weights: Weights,
    _starts: npt.NDArray[np.int64],
    _nodes: int,
    bits: int,
    _shift: int,
    unique: bool,
    indptr: npt.NDArray[np.int64],
    cols: Ids,
) -> int:
    """What the kernel ``sort_buckets`` does, in numpy."""
    if weights is None:
        keys.sort()
    else:
        order = np.lexsort((weights, keys))
        keys[:], weights[:] = keys[order], weights[order]
    if unique and len(keys):
        last = np.append(keys[1:] != keys[:-1], True)
        keys = keys[last]
        if weights is not None:
            weights[: len(keys)] = weights[last]
    indptr[:] = np.searchsorted(keys, np.arange(len(indptr), dtype=np.int64) << bits)
    cols[: len(keys)] = keys & ((1 << bits) - 1)
    return len(keys)
