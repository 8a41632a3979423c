"""Edges as they were read, part by part of their objects, kept beside the graph of their type.

A run of which some objects are others reads these alone. What was kept of those that are gone is
taken out of the graph, and what was read is put in: rows that have other in-edges are sorted again
by the kernel that sorts all, so that the graph has the bits of one that is built from all edges.

An edge is [2 or 3] int32: its destination, its source, and the bits of its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from embertide.graph.edge_log import EdgeChunk, StoredChunk
from embertide.graph.exchange import Exchange
from embertide.grid import even_bounds
from embertide.kernels.csr import Csr, column_bits
from embertide.kernels.edge_sort import EdgeSorter, bucket_count, bucket_shift
from embertide.kernels.pages import empty_array

PRIMITIVE = "refresh"
"""Under which the transfers are counted."""
READ = "read"
"""The tensor of edges as they were read."""
MOST_MOVED = 1 / 8
"""The most edges that may come and go, as a share of those of a rank, since each has them: with
more of them all are read."""
EdgeWords = npt.NDArray[np.int32]
_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ReadEdgeWords:
    """[e, 2 or 3] edges that were read, which are put together as they are taken."""

    chunks: Sequence[StoredChunk]
    weighted: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Edges, and words of each."""
        return sum(map(len, self.chunks)), 2 + self.weighted

    @property
    def itemsize(self) -> int:
        """Bytes of a word."""
        return 4

    def __getitem__(self, some: slice | _Rows) -> EdgeWords:
        """Edges that follow each other."""
        assert isinstance(some, slice), "edges are written one after another"
        low, high, _ = some.indices(self.shape[0])
        out, before = np.empty((high - low, self.shape[1]), np.int32), 0
        for chunk in self.chunks:
            first, last = max(low, before), min(high, before + len(chunk))
            if first < last:
                part = chunk.load().part(slice(first - before, last - before))
                _fill(out[first - low : last - low], part)
            before += len(chunk)
        return out


def _fill(out: EdgeWords, chunk: EdgeChunk) -> None:
    out[:, 0], out[:, 1] = chunk.destination, chunk.source
    if chunk.weight is not None:
        out[:, 2] = chunk.weight.view(np.int32)


@dataclass(frozen=True)
class MovedEdges:
    """Edges that are gone, and those that came; no edge is among both."""

    gone: EdgeWords
    came: EdgeWords

    @classmethod
    def none(cls) -> MovedEdges:
        """No edge has moved."""
        return cls(np.empty((0, 2), np.int32), np.empty((0, 2), np.int32))

    def __len__(self) -> int:
        return len(self.gone) + len(self.came)

    def turned(self) -> MovedEdges:
        """The same edges the other way round."""
        turn = [1, 0, 2][: self.gone.shape[1]]
        return MovedEdges(self.gone[:, turn], self.came[:, turn])

    def then(self, more: MovedEdges) -> MovedEdges:
        """These, and after them others."""
        if not len(self):
            return more
        return MovedEdges(*_net(*(np.concatenate(both) for both in (
            (self.gone, more.gone), (self.came, more.came),
        ))))  # fmt: skip

    def into(self, first: int, last: int) -> MovedEdges:
        """Those whose destination is in a range."""
        gone, came = (
            words[(words[:, 0] >= first) & (words[:, 0] < last)] for words in (self.gone, self.came)
        )
        return MovedEdges(gone, came)

    def into_some(self, wanted: npt.NDArray[np.bool_]) -> MovedEdges:
        """Those into some nodes; [N] bool."""
        return MovedEdges(*(words[wanted[words[:, 0]]] for words in (self.gone, self.came)))

    @property
    def rows(self) -> _Rows:
        """The nodes that have other in-edges, ascending."""
        return np.unique(np.concatenate([self.gone[:, 0], self.came[:, 0]])).astype(np.int64)

    def out_degrees(self) -> tuple[_Rows, _Rows]:
        """The nodes that have more or fewer out-edges, ascending, and how many more."""
        ends = np.concatenate([self.gone[:, 1], self.came[:, 1]])
        nodes, at = np.unique(ends, return_inverse=True)
        signs = np.repeat([-1, 1], [len(self.gone), len(self.came)])
        more = np.bincount(at, signs, len(nodes)).astype(np.int64)
        return nodes[more != 0].astype(np.int64), more[more != 0]

    def histogram(self, shift: int, buckets: int) -> _Rows:
        """[buckets] how many more edges lead into each bucket of nodes."""
        gone, came = (
            np.bincount(words[:, 0] >> shift, minlength=buckets) for words in (self.gone, self.came)
        )
        return (came - gone).astype(np.int64)


def find_moved(
    exchange: Exchange, nodes: int, edges: int, before: EdgeWords, now: EdgeWords
) -> MovedEdges | None:
    """The edges of all ranks that are gone, and those that came; None where these are too many.

    Sends each edge once, to the rank that compares those into its nodes. Collective: every rank
    must call, and all get the same answer.

    Args:
        nodes: of the destination type.
        edges: of the whole graph.
        before, now: ours, of the parts that are not the same; any rank may have any.
    """
    if exchange.grid.world == 1 and len(before) == len(now):
        # Most are where they were.
        differ = (before != now).any(axis=1)
        before, now = before[differ], now[differ]
    else:
        before, now = (_to_owners(exchange, nodes, words) for words in (before, now))
    moved = MovedEdges(*_net(before, now))
    if sum(exchange.all_objects(len(moved))) > MOST_MOVED * edges / exchange.grid.world:
        return None
    channel = exchange.channel("world", PRIMITIVE)
    return MovedEdges(*(
        torch.cat(channel.all_gather(torch.from_numpy(words))).numpy()
        for words in (moved.gone, moved.came)
    ))  # fmt: skip


def _to_owners(exchange: Exchange, nodes: int, words: EdgeWords) -> EdgeWords:
    """The edges of all ranks into our nodes, in any order. Collective: every rank must call."""
    if exchange.grid.world == 1:
        return words
    bounds = np.array(even_bounds(nodes, exchange.grid.world))
    owner = np.searchsorted(bounds, words[:, 0], "right") - 1
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=exchange.grid.world).tolist()
    sent = torch.from_numpy(words[order]).split(counts)
    return torch.cat(exchange.channel("world", PRIMITIVE).all_to_all(sent)).numpy()


def _net(before: EdgeWords, now: EdgeWords) -> tuple[EdgeWords, EdgeWords]:
    """Edges that there are fewer of, and more of; each as often as it is fewer or more."""
    words = np.concatenate([before, now])
    if not len(words):
        return before, now
    order = np.lexsort(words.T[::-1]) if words.shape[1] > 2 else np.argsort(_keys(words))
    signs = np.where(order < len(before), -1, 1)
    words = words[order]
    starts = np.flatnonzero(np.append(True, (words[1:] != words[:-1]).any(axis=1)))
    more = np.add.reduceat(signs, starts)
    of = words[starts]
    return np.repeat(of, np.maximum(-more, 0), axis=0), np.repeat(of, np.maximum(more, 0), axis=0)


def _keys(words: EdgeWords) -> _Rows:
    """[e] a word for both ends."""
    return (words[:, 0].astype(np.int64) << 32) | words[:, 1]


def patched(csr: Csr, nodes: int, moved: MovedEdges) -> Csr:
    """Rows of a graph after some edges have moved.

    Args:
        csr: consecutive rows, as they were.
        nodes: of the source type.
        moved: into these rows; others are not there.

    Raises:
        ValueError: an edge that is gone was not there.
    """
    moved = moved.into(csr.first, csr.first + csr.rows)
    if not len(moved):
        return csr
    rows = moved.rows - csr.first
    some = csr.take(rows)
    number = np.repeat(np.arange(len(rows), dtype=np.int32), some.indptr.diff().numpy())
    words = [number, some.cols.numpy()]
    words += [] if some.weights is None else [some.weights.numpy().view(np.int32)]
    gone, came = moved.gone.copy(), moved.came.copy()
    for own in (gone, came):
        own[:, 0] = np.searchsorted(rows, own[:, 0] - csr.first)
    missing, left = _net(gone, np.concatenate([np.stack(words, axis=1), came]))
    if len(missing):
        raise ValueError("edges that are gone were not in the graph")
    keys = (left[:, 0].astype(np.int64) << column_bits(nodes)) | left[:, 1]
    weights = None if some.weights is None else np.ascontiguousarray(left[:, 2]).view(np.float32)
    shift = bucket_shift(len(rows))
    counts = np.bincount(left[:, 0] >> shift, minlength=bucket_count(len(rows)))
    sorter = EdgeSorter(
        counts, shift, first=0, rows=len(rows), nodes=nodes, weighted=weights is not None
    )
    sorter.add_keys(keys, weights)
    return _replaced(csr, rows, sorter.finish(remove_duplicates=False))


def _replaced(csr: Csr, rows: _Rows, fresh: Csr) -> Csr:
    """A graph with others in place of some of its rows, ascending."""
    indptr: _Rows = empty_array((csr.rows + 1,), np.int64)
    starts, stops, bounds = (
        of.numpy() for of in (csr.indptr[rows], csr.indptr[rows + 1], fresh.indptr)
    )
    longer = np.zeros(csr.rows + 1, np.int64)
    longer[rows + 1] = np.diff(bounds) - (stops - starts)
    np.add(csr.indptr.numpy(), np.cumsum(longer), out=indptr)
    spans = list(zip([0, *stops], [*starts, csr.nnz], strict=True))

    def joined(old: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        before, new = old.numpy(), own.numpy()
        parts = [before[slice(*spans[0])]]
        for span, kept in zip(pairwise(bounds), spans[1:], strict=True):
            parts += [new[slice(*span)], before[slice(*kept)]]
        out = empty_array((int(indptr[-1]),), before.dtype)
        return torch.from_numpy(np.concatenate(parts, out=out))

    weights = None
    if csr.weights is not None and fresh.weights is not None:
        weights = joined(csr.weights, fresh.weights)
    return Csr(csr.first, torch.from_numpy(indptr), joined(csr.cols, fresh.cols), weights)
