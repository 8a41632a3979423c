"""Tensors of peers on this host, read in place.

Where all ranks of an axis can map each other's memory, nothing is packed, sent or received: a rank
*shares* its tensor, maps those of the others next to its own, and reads any row of theirs like one
of its own. The others may change or free their tensors once this rank is done.

In such a *window* the rows of each rank begin at a multiple of ``SPAN_ROWS``, so that a tensor of
any width begins at a page there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from embertide.graph.exchange import Channel
from embertide.kernels import memory
from embertide.kernels.csr import id_type
from embertide.kernels.owners import shift_nodes

SPAN_ROWS = 1 << 19
"""Huge pages begin at every multiple of so many rows, whatever four-byte values a row has."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WindowRows:
    """Where the rows of each rank of an axis are in a window.

    Attributes:
        bounds: [ranks + 1] the nodes that each rank owns.
    """

    bounds: Counts

    @property
    def starts(self) -> Counts:
        """[ranks] the first row of each rank."""
        spans: Counts = -(-np.diff(self.bounds) // SPAN_ROWS) * SPAN_ROWS
        ends: Counts = np.cumsum(spans)
        return ends - spans

    @property
    def end(self) -> int:
        """One past the last row."""
        return int(self.starts[-1] + self.bounds[-1] - self.bounds[-2])

    def slice(self, index: int) -> slice:
        """The rows of a rank."""
        start = int(self.starts[index])
        return slice(start, start + int(self.bounds[index + 1] - self.bounds[index]))

    def copy(self, source: torch.Tensor) -> torch.Tensor:
        """A window's rows in memory of our own; between them is nothing, but it may be touched."""
        copy = source.new_empty(source.shape)
        for index in range(len(self.bounds) - 1):
            rows = self.slice(index)
            copy[rows] = source[rows]
        return copy

    def of_nodes(self, nodes: torch.Tensor) -> torch.Tensor:
        """[k] the row of each node, int32 where that holds all."""
        kind = id_type(self.end) if nodes.dtype == torch.int32 else torch.int64
        return shift_nodes(nodes, self.bounds, self.starts, kind)

    def of_rows(self, at: torch.Tensor, others: WindowRows) -> torch.Tensor:
        """[k] the row of each row of another window of the same nodes, int32 where it holds all.

        Args:
            at: [k] rows of ``others``.
        """
        kind = at.dtype if at.dtype == id_type(self.end) else torch.int64
        cuts = np.unique(np.concatenate([self.bounds, others.bounds]))
        begins = cuts[:-1]
        owners, ours = (
            np.searchsorted(window.bounds, begins, "right") - 1 for window in (others, self)
        )
        starts = self.starts[ours] + begins - self.bounds[ours]
        bounds = others.starts[owners] + begins - others.bounds[owners]
        return shift_nodes(at, np.append(bounds, others.end), starts, kind)

    def of_places(self, places: torch.Tensor) -> torch.Tensor:
        """[k] the row of each pair of places, int32 where that holds all.

        Args:
            places: [k, 2] rank, and which of its rows.
        """
        rank, row = places.numpy().T
        kind = id_type(self.end)
        starts = self.starts.astype(np.int32 if kind == torch.int32 else np.int64)
        return torch.from_numpy(starts.take(rank) + row).to(kind)


@dataclass(frozen=True)
class SharedTensor:
    """A tensor of each rank of an axis, shared for reading.

    Attributes:
        own: ours, in the shared file.
        files: axis index -> descriptor of that rank's file.
        places: axis index -> the parts of the file that its tensor is.
    """

    own: torch.Tensor
    files: dict[int, int]
    places: dict[int, list[memory.Place]]

    def of(self, index: int, columns: int) -> torch.Tensor:
        """[n, columns] a rank's tensor."""
        size = sum(size for _, size in self.places[index])
        rows = size // (self.own.element_size() * columns) if columns else 0
        return memory.window((rows, columns), self.own.dtype, self._parts(index, 0))

    def window(self, rows: WindowRows) -> torch.Tensor:
        """[rows.end, width] the tensors of all ranks, which have the same width."""
        row = math.prod(self.own.shape[1:]) * self.own.element_size()
        parts = [part for i, at in enumerate(rows.starts) for part in self._parts(i, int(at) * row)]
        return memory.window((rows.end, *self.own.shape[1:]), self.own.dtype, parts)

    def _parts(self, index: int, at: int) -> list[tuple[int, int, int, int]]:
        """The parts of a rank, from byte ``at`` of a window on."""
        sizes = [size for _, size in self.places[index]]
        starts = accumulate(sizes, initial=at)
        return [
            (self.files[index], place, size, start)
            for (place, size), start in zip(self.places[index], starts, strict=False)
        ]


@contextmanager
def shared(channel: Channel, tensors: Sequence[torch.Tensor]) -> Iterator[list[SharedTensor]]:
    """Share tensors with the other ranks of an axis, and read theirs, in the body of a ``with``.

    Collective: every rank of the axis must call. The body must not exchange anything on this axis.
    """
    links, axis, recorder = channel.links(), channel.axis, channel.exchange.recorder
    others, placed = axis.others(), [memory.place_in_file(tensor) for tensor in tensors]
    file = memory.shared_file()
    assert file is not None
    start = time.perf_counter()
    sent = [links[i].share(tensor, parts) for tensor, parts in placed for i in others]
    seen = []
    for own, own_places in placed:
        files, places = {axis.index: file}, {axis.index: own_places}
        for i in others:
            peer = links[i].file
            assert peer is not None
            files[i], places[i] = peer, links[i].peer_places()
        seen.append(SharedTensor(own, files, places))
    recorder.waited(channel.label, time.perf_counter() - start)
    yield seen
    start = time.perf_counter()
    for _ in placed:
        for i in others:
            links[i].release_reads()
    for offer in sent:
        offer.wait()
    recorder.waited(channel.label, time.perf_counter() - start)
