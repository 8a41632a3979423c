"""Our rows of a relation's graph that an earlier run has kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.engine.stages.kept_graph.form import (
    BUCKET_WORDS,
    BUCKETS,
    FEATURES,
    LENGTHS,
    SOURCES,
    WEIGHTS,
    source_words,
)
from embertide.facts.telemetry.omissions import DroppedEdges
from embertide.graph.shuffle import Edges, histogram_size
from embertide.grid import RowRanges
from embertide.io.versions.layers.seals import Damaged, KeptTensor, Seal
from embertide.io.versions.layers.some_rows import read_some
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.csr import Csr, id_type
from embertide.kernels.pages import empty_array

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SealedGraph:
    """A relation's graph that an earlier run has kept.

    Attributes:
        nodes: of the source type.
        histogram: [B] edges that were read into each bucket of destinations.
        before: [B + 1] edges of the graph before each bucket.
    """

    store: LayerStore
    seal: Seal
    nodes: int
    histogram: _Ints
    before: _Ints

    def edges(self, rank: int) -> Edges:
        """In place of our share of the edges: what is known of them, and none of them."""
        known, first = self.seal.edges, rank == 0
        assert known is not None
        shift, buckets = histogram_size(self._tensor(LENGTHS).rows)
        return Edges(
            [],
            self.histogram if first else np.zeros(buckets, np.int64),
            shift,
            weighted=self._has(WEIGHTS),
            features=self._tensor(FEATURES).width if self._has(FEATURES) else 0,
            rows=known.rows if first else 0,
            dropped=None if known.dropped is None else DroppedEdges(**known.dropped),
        )

    def read(self, ranges: RowRanges, rank: int) -> Csr:
        """Our rows.

        Args:
            ranges: of the destination type.

        Raises:
            Damaged: they are not what was written, or cannot be read.
        """
        first, last = ranges.worker(rank)
        return self.rows(first, last)

    def rows(self, first: int, last: int) -> Csr:
        """Rows ``first..last``; takes no memory that grows with the graph beside them.

        Raises:
            Damaged: they are not what was written, or cannot be read.
        """
        shift, _ = histogram_size(self._tensor(LENGTHS).rows)
        bucket = first >> shift
        low = bucket << shift
        lengths = self._words(LENGTHS, low, last).reshape(-1)
        start = int(self.before[bucket]) + int(lengths[: first - low].sum(dtype=np.int64))
        indptr: _Ints = empty_array((last - first + 1,), np.int64)
        indptr[0] = 0
        np.cumsum(lengths[first - low :], out=indptr[1:])
        stop = start + int(indptr[-1])
        kind = np.int32 if id_type(self.nodes) is torch.int32 else np.int64
        cols = self._words(SOURCES, start, stop).view(kind).reshape(-1)
        return Csr(
            first,
            torch.from_numpy(indptr),
            torch.from_numpy(cols),
            self._floats(WEIGHTS, start, stop, flat=True),
            self._floats(FEATURES, start, stop),
        )

    def some(self, wanted: npt.NDArray[np.bool_]) -> Csr:
        """All rows, of which only some have their edges: the blocks of these alone are read.

        Args:
            wanted: [N] bool.

        Raises:
            Damaged: they are not what was written, or cannot be read.
        """
        rows = np.flatnonzero(wanted)
        starts, lengths = self._places(rows)
        indptr: _Ints = np.zeros(len(wanted) + 1, np.int64)
        indptr[rows + 1] = lengths
        np.cumsum(indptr, out=indptr)
        edges = np.arange(indptr[-1]) + np.repeat(starts - indptr[rows], lengths)
        kind = np.int32 if id_type(self.nodes) is torch.int32 else np.int64
        weights = self._some(WEIGHTS, edges).view(np.float32) if self._has(WEIGHTS) else None
        features = self._some(FEATURES, edges).view(np.float32) if self._has(FEATURES) else None
        return Csr(
            0,
            torch.from_numpy(indptr),
            torch.from_numpy(self._some(SOURCES, edges).view(kind).reshape(-1)),
            None if weights is None else torch.from_numpy(weights.reshape(-1)),
            None if features is None else torch.from_numpy(features),
        )

    def _places(self, rows: _Ints) -> tuple[_Ints, _Ints]:
        """[k] the first edge of some rows, ascending, and how many each has."""
        nodes = self._tensor(LENGTHS).rows
        shift, _ = histogram_size(nodes)
        marked = np.zeros(((nodes - 1) >> shift) + 1, bool)
        marked[rows >> shift] = True
        (buckets,) = np.nonzero(marked)
        near = (buckets[:, None] << shift) + np.arange(1 << shift)
        beyond = near >= nodes
        lengths = self._some(LENGTHS, np.where(beyond, 0, near).reshape(-1)).astype(np.int64)
        lengths = np.where(beyond, 0, lengths.reshape(near.shape))
        starts = self.before[buckets][:, None] + np.cumsum(lengths, axis=1) - lengths
        at = np.searchsorted(near.reshape(-1), rows)
        return starts.reshape(-1)[at], lengths.reshape(-1)[at]

    def _some(self, name: str, rows: _Ints) -> npt.NDArray[Any]:
        """[k, words] some rows of a tensor."""
        tensor = self._tensor(name)
        out = np.empty((len(rows), tensor.width), np.int32)
        read_some(self.store, tensor, rows, out)
        return out

    def _floats(
        self, name: str, start: int, stop: int, *, flat: bool = False
    ) -> torch.Tensor | None:
        if not self._has(name):
            return None
        values = self._words(name, start, stop).view(np.float32)
        return torch.from_numpy(values.reshape(-1) if flat else values)

    def _words(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """[stop - start, words] rows of a tensor."""
        tensor = self._tensor(name)
        out = empty_array((stop - start, tensor.width), np.int32)
        self.store.read(tensor, (start, stop), (0, tensor.width), out)
        return out

    def _has(self, name: str) -> bool:
        return any(tensor.name == name for tensor in self.seal.tensors)

    def _tensor(self, name: str) -> KeptTensor:
        return _tensor(self.store, self.seal, name)


def open_graph(store: LayerStore, seal: Seal, sources: int, destinations: int) -> SealedGraph:
    """A relation's graph.

    Args:
        seal: of the graph.
        sources, destinations: nodes of either end.

    Raises:
        Damaged: it is of another form, or its histogram cannot be read.
    """
    _, count = histogram_size(destinations)
    tensor = _tensor(store, seal, BUCKETS)
    if (tensor.rows, tensor.width, tensor.dtype) != (count, BUCKET_WORDS, "int32"):
        raise Damaged(f"{store.uri}: the histogram of {seal.name} is of another graph")
    words = np.empty((count, BUCKET_WORDS), np.int32)
    store.read(tensor, (0, count), (0, BUCKET_WORDS), words)
    histogram, before = np.ascontiguousarray(words.view(np.int64).T)
    edges = _tensor(store, seal, SOURCES)
    _check(store, _tensor(store, seal, LENGTHS), destinations, 1)
    _check(store, edges, edges.rows, source_words(id_type(sources)))
    return SealedGraph(store, seal, sources, histogram, np.append(before, edges.rows))


def _check(store: LayerStore, tensor: KeptTensor, rows: int, width: int) -> None:
    if (tensor.rows, tensor.width, tensor.dtype) != (rows, width, "int32"):
        raise Damaged(f"{store.uri}: {tensor.name} are not of such a graph")


def _tensor(store: LayerStore, seal: Seal, name: str) -> KeptTensor:
    for tensor in seal.tensors:
        if tensor.name == name:
            return tensor
    raise Damaged(f"{store.uri}: {name} was not kept")
