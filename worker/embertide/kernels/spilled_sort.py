"""Edges to compressed sparse rows by way of the disk, for more edges than fit in memory.

An external sort: the rows are cut into parts with about as many edges each. Packed edges are
collected until a batch is full, which is put in the order of its buckets, so that those of a part
are one write, to the part's place in a file. Then one part after the other is read and sorted by
:class:`~embertide.kernels.edge_sort.EdgeSorter`. The result does not depend on the parts, since
the order of edges in a row is that of their columns and weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from embertide.footprint import FLOAT_BYTES, ID_BYTES
from embertide.kernels import native
from embertide.kernels.csr import Csr, column_bits
from embertide.kernels.edge_features import Features
from embertide.kernels.edge_sort import Chunk, EdgeSorter, Keys, Weights, pack
from embertide.kernels.pages import empty_array
from embertide.kernels.scratch import Scratch, ScratchTensor

PART_EDGES = 1 << 21
"""Edges of a part, which are sorted in memory; more where there would be too many parts."""
MOST_PARTS = 64
"""With more, the writes of a batch would be short."""
READ_EDGES = 1 << 20
"""Edges that are read at a time while a part is put together."""
_KEY_WORDS = ID_BYTES // FLOAT_BYTES
_EDGE_WORDS = _KEY_WORDS + 1
"""Words of four bytes of an edge with its weight."""


def part_edges(edges: float, features: int = 0) -> int:
    """About how many of so many edges are in a part, fewer where each has K features."""
    least = PART_EDGES * _EDGE_WORDS // (_EDGE_WORDS + features)
    return max(1, least, -(-int(edges) // MOST_PARTS))


class SpilledEdgeSorter:
    """As :class:`EdgeSorter`, with the edges on disk, and its rows part by part.

    Holds a batch of edges, half as many as a part has, twice; and while parts are sorted one of
    them, see :class:`EdgeSorter`.

    Args:
        scratch: where the edges are until they are sorted.
        counts, shift, first, rows, nodes, weighted, features: as of :class:`EdgeSorter`.

    Raises:
        StorageError: the disk has no room.
    """

    def __init__(
        self,
        scratch: Scratch,
        counts: npt.NDArray[np.int64],
        shift: int,
        *,
        first: int,
        rows: int,
        nodes: int,
        weighted: bool,
        features: int = 0,
    ) -> None:
        self._counts, self._shift, self._first, self._rows = counts, shift, first, rows
        self._nodes, self._bits = nodes, column_bits(nodes)
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        edges = int(self._starts[-1])
        most = part_edges(edges, features)
        self._cuts = _cut(self._starts, most)
        self._free = self._starts[self._cuts[:-1]]
        self._keys_file = scratch.empty(edges, _KEY_WORDS)
        self._weights_file = scratch.empty(edges, 1) if weighted else None
        self._features_file = scratch.empty(edges, features) if features else None
        batch = min(edges, max(1, most // 2))
        self._keys: Keys = empty_array((batch,), np.int64)
        self._weights: Weights = empty_array((batch,), np.float32) if weighted else None
        self._features = empty_array((batch, features), np.float32) if features else None
        self._taken = 0

    def add_chunks(self, chunks: list[Chunk]) -> None:
        """Take edges by the node ids of both ends; ``chunks`` is emptied.

        Raises:
            StorageError: the disk cannot be written.
        """
        while chunks:
            rows, cols, weights, features = chunks.pop()
            self.add_keys(pack(rows - self._first, cols, self._nodes), weights, features)

    def add_keys(self, keys: Keys, weights: Weights, features: Features = None) -> None:
        """Take packed edges, rows counted from our first.

        Raises:
            StorageError: the disk cannot be written.
        """
        done = 0
        while done < len(keys):
            count = min(len(keys) - done, len(self._keys) - self._taken)
            here = slice(self._taken, self._taken + count)
            self._keys[here] = keys[done : done + count]
            if self._weights is not None and weights is not None:
                self._weights[here] = weights[done : done + count]
            if self._features is not None and features is not None:
                self._features[here] = features[done : done + count]
            self._taken, done = self._taken + count, done + count
            if self._taken == len(self._keys):
                self._write()

    def parts(self, *, remove_duplicates: bool) -> Iterator[Csr]:
        """The rows in order, some at a time, as :meth:`EdgeSorter.finish` has them; once.

        Raises:
            StorageError: the disk cannot be read or written.
        """
        self._write()
        self._keys, self._weights, self._features = np.empty(0, np.int64), None, None
        for low, high in pairwise(self._cuts.tolist()):
            if low and low << self._shift >= self._rows:
                # Buckets of workers with more rows.
                break
            yield self._read(low, high).finish(remove_duplicates=remove_duplicates)
        for file in self._files():
            file.close()

    def _write(self) -> None:
        """Put the batch in the order of its buckets, and the edges of each part in its place."""
        keys, weights, features, counts = self._in_buckets()
        ends = np.concatenate([[0], np.cumsum(counts)])[self._cuts]
        for part, (start, stop) in enumerate(pairwise(ends.tolist())):
            place = int(self._free[part])
            _write_rows(self._keys_file, place, keys[start:stop])
            if self._weights_file is not None and weights is not None:
                _write_rows(self._weights_file, place, weights[start:stop])
            if self._features_file is not None and features is not None:
                _write_rows(self._features_file, place, features[start:stop])
            self._free[part] += stop - start
        self._taken = 0

    def _in_buckets(self) -> tuple[Keys, Weights, Features, npt.NDArray[np.int64]]:
        """The batch bucket by bucket, and how many edges of it each bucket has."""
        keys = self._keys[: self._taken]
        weights = None if self._weights is None else self._weights[: self._taken]
        bucket = keys >> (self._bits + self._shift)
        counts = np.bincount(bucket, minlength=len(self._counts))
        if native.lib is None or self._features is not None:
            order = np.argsort(bucket, kind="stable")
            features = None if self._features is None else self._features[: self._taken][order]
            return keys[order], None if weights is None else weights[order], features, counts
        del bucket
        out: Keys = empty_array(keys.shape, np.int64)
        out_weights = None if weights is None else empty_array(keys.shape, np.float32)
        cursors = np.cumsum(counts) - counts
        native.lib.bucket_keys(keys, weights, self._bits, self._shift, cursors, out, out_weights)
        return out, out_weights, None, counts

    def _read(self, low: int, high: int) -> EdgeSorter:
        """All edges of buckets ``low..high``, to be sorted."""
        first = low << self._shift
        sorter = EdgeSorter(
            self._counts[low:high],
            self._shift,
            first=self._first + first,
            rows=max(0, min(self._rows, high << self._shift) - first),
            nodes=self._nodes,
            weighted=self._weights_file is not None,
            features=0 if self._features_file is None else self._features_file.width,
        )
        start, stop = int(self._starts[low]), int(self._starts[high])
        for at in range(start, stop, READ_EDGES):
            end = min(at + READ_EDGES, stop)
            keys = self._keys_file.read_rows(at, end).view(torch.int64).view(-1).numpy()
            keys -= first << self._bits
            weights = features = None
            if self._weights_file is not None:
                weights = self._weights_file.read_rows(at, end).view(-1).numpy()
            if self._features_file is not None:
                features = self._features_file.read_rows(at, end).numpy()
            sorter.add_keys(keys, weights, features)
        return sorter

    def _files(self) -> list[ScratchTensor]:
        return [self._keys_file, *filter(None, [self._weights_file, self._features_file])]


def _cut(starts: Keys, edges: int) -> npt.NDArray[np.int64]:
    """[parts + 1] first bucket of each part, with so many edges or those of a single bucket.

    Args:
        starts: [buckets + 1] edges before each bucket.
    """
    cuts = [0]
    for bucket in range(1, len(starts) - 1):
        if starts[bucket + 1] - starts[cuts[-1]] > edges:
            cuts.append(bucket)
    return np.array([*cuts, len(starts) - 1])


def _write_rows(file: ScratchTensor, first: int, values: npt.NDArray[np.generic]) -> None:
    if len(values):
        words = torch.from_numpy(values).view(torch.float32)
        file.write_rows(first, words.view(len(values), file.width))
