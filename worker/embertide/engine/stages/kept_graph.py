"""The graph of a relation, kept beside a version's layers: no edge is read where none has changed.

What is kept are tensors of words, by row, by edge and by bucket of rows. Rows are by dense id, so
any grid reads what another one has written; which worker owns which rows follows from the histogram
of destinations, which is kept too, so that it is as if edges were read. Edges that have moved since
it was written are beside it, and are put in as it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.facts.telemetry.omissions import DroppedEdges
from embertide.graph.exchange import Exchange
from embertide.graph.moved_edges import MovedEdges, patched
from embertide.graph.shuffle import Edges, histogram_size
from embertide.grid import RowRanges
from embertide.io.versions.layers.reading import Kept, Range
from embertide.io.versions.layers.seals import (
    Block,
    Damaged,
    EdgePart,
    KeptEdges,
    KeptTensor,
    kept_words,
)
from embertide.io.versions.layers.writing import Record, Writer
from embertide.kernels.csr import Csr, id_type
from embertide.kernels.pages import empty_array

PRIMITIVE = "refresh"
"""Under which the transfers are counted."""
LENGTHS, SOURCES, WEIGHTS, FEATURES, BUCKETS, GONE, CAME = (
    "lengths", "sources", "weights", "features", "buckets", "gone", "came",
)  # fmt: skip
"""In-edges of each row; the source of each edge, its weight, its features, row by row; and of each
bucket of the histogram the edges that were read into it, and those of the graph before it; and the
edges that have moved since."""
BUCKET_WORDS = 4
TOO_LONG = "a node of {relation} has 2^31 in-edges or more"
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ReadEdges:
    """What is known of the edges of a relation since they were read, beside their graph.

    Attributes:
        histogram: our share of their destinations, see :class:`embertide.graph.shuffle.Edges`.
        rows: our share of the rows of the input of their edge type.
        dropped: those that were left out, of all ranks.
        loops: our nodes of whose self-loops ``selfLoops`` has left one, and the first of them.
        parts: the parts of the objects of their edge type.
    """

    histogram: npt.NDArray[np.int64]
    rows: int
    dropped: DroppedEdges | None
    loops: tuple[int, int] | None = None
    parts: tuple[EdgePart, ...] = ()

    @classmethod
    def of(cls, edges: Edges, own: Edges, parts: Sequence[EdgePart]) -> ReadEdges:
        """What is known of a relation's edges.

        Args:
            own: the edges of its edge type as they are in the files.
        """
        return cls(edges.histogram, own.rows, own.dropped, parts=tuple(parts))


def write_graph(
    exchange: Exchange,
    writer: Writer,
    name: str,
    relation: str,
    csr: Csr,
    ranges: RowRanges,
    read: ReadEdges,
) -> Record:
    """Write our rows of a graph, without a copy of its edges; the record says whether it may be
    sealed, and why not.

    Collective: every rank must call, and all get the same answer.

    Args:
        name: of the record.
        csr: our rows.
        ranges: of the destination type.
        read: what is known of the edges that it was built from.
    """
    rank = exchange.grid.rank
    sizes = exchange.all_objects((csr.nnz, read.rows, read.loops))
    edges, at = sum(nnz for nnz, *_ in sizes), sum(nnz for nnz, *_ in sizes[:rank])
    merged = [loops for *_, loops in sizes if loops is not None]
    loops = [sum(n for n, _ in merged), min(first for _, first in merged)] if merged else None
    dropped = None if read.dropped is None else asdict(read.dropped)
    known = KeptEdges(relation, sum(rows for _, rows, _ in sizes), dropped, loops, read.parts)
    record = writer.begin(name, edges=known)
    buckets = _buckets(exchange, csr, ranges, read)

    def put(tensor: str, rows: int, values: npt.NDArray[Any], width: int, first: int) -> None:
        """``width`` values of 4 or 8 bytes of each row, as words in the same memory."""
        words = np.ascontiguousarray(values).reshape(len(values), width).view(np.int32)
        record.put(kept_words(tensor, rows, words.shape[1]), words, first)

    indptr = csr.indptr.numpy()
    lengths = np.subtract(indptr[1:], indptr[:-1], dtype=np.int32, casting="unsafe")
    if int(lengths.sum(dtype=np.int64)) != csr.nnz or (lengths < 0).any():
        record.why = TOO_LONG.format(relation=relation)
    else:
        put(LENGTHS, ranges.nodes, lengths, 1, ranges.worker(rank)[0])
        put(BUCKETS, len(buckets), buckets if rank == 0 else buckets[:0], 2, 0)
        put(SOURCES, edges, csr.cols.numpy(), 1, at)
        if csr.weights is not None:
            put(WEIGHTS, edges, csr.weights.numpy(), 1, at)
        if csr.features is not None:
            put(FEATURES, edges, csr.features.numpy(), csr.features.shape[1], at)
    record.agree()
    return record


def refer_to(writer: Writer, name: str, kept: Kept, moved: MovedEdges | None = None) -> Record:
    """The record of what an earlier run has kept, whose blocks are not written again; the record
    says why it may not be sealed.

    One rank calls.

    Args:
        kept: a graph, or edges as they were read.
        moved: since the blocks of a graph were written; None: what was kept has them.
    """
    own = [of for of in kept.seal.tensors if moved is None or of.name not in (GONE, CAME)]
    record = writer.begin(name, edges=kept.seal.edges)
    for tensor in own:
        record.put(of_key(tensor, kept.store.key, writer.store.key), None)
    for tensor_name, words in () if moved is None else ((GONE, moved.gone), (CAME, moved.came)):
        if len(moved or ()):
            record.put(kept_words(tensor_name, *words.shape), words)
    record.agree(alone=True)
    return record


def of_key(tensor: KeptTensor, earlier: str, key: str) -> KeptTensor:
    """A tensor of a record under one key, for a record under another one."""

    def moved(block: Block) -> Block:
        lies_in = block.key or earlier
        return replace(block, key="" if lies_in == key else lies_in)

    return replace(tensor, blocks=tuple(map(moved, tensor.blocks)))


def _buckets(
    exchange: Exchange, csr: Csr, ranges: RowRanges, read: ReadEdges
) -> npt.NDArray[np.int64]:
    """[B, 2] the edges of all ranks that were read into each bucket, and those of the graph before
    it. Collective: every rank must call."""
    first, last = ranges.worker(exchange.grid.rank)
    shift, count = histogram_size(ranges.nodes)
    starts = np.arange(count + 1, dtype=np.int64) << shift
    ends = csr.indptr.numpy()[np.clip(starts, first, last) - first]
    both = torch.from_numpy(np.stack([read.histogram, np.diff(ends)]))
    total = exchange.channel("world", PRIMITIVE).all_reduce(both).numpy()
    before = np.concatenate([[0], np.cumsum(total[1])[:-1]])
    return np.stack([total[0], before], axis=1).astype(np.int64)


@dataclass(frozen=True)
class SealedGraph:
    """A relation's graph that an earlier run has kept.

    Attributes:
        nodes: of the source type.
        histogram: [B] edges that were read into each bucket of destinations.
        before: [B + 1] edges of the graph before each bucket, as its blocks have it.
        moved: edges that have moved since its blocks were written.
        known: what is known of the edges since they were read.
    """

    kept: Kept
    nodes: int
    histogram: _Ints
    before: _Ints
    moved: MovedEdges
    known: KeptEdges

    def after(self, more: MovedEdges, rows: int, parts: Sequence[EdgePart]) -> SealedGraph:
        """The same after some edges have moved.

        Args:
            rows: of the input of their edge type now.
            parts: of the objects now.
        """
        shift, buckets = histogram_size(self.kept.tensor(LENGTHS).rows)
        known = replace(self.known, rows=rows, parts=tuple(parts))
        seal = replace(self.kept.seal, edges=known)
        return replace(
            self,
            kept=replace(self.kept, seal=seal),
            histogram=self.histogram + more.histogram(shift, buckets),
            moved=self.moved.then(more),
            known=known,
        )

    @property
    def count(self) -> int:
        """Edges."""
        return self.kept.tensor(SOURCES).rows + len(self.moved.came) - len(self.moved.gone)

    def edges(self, rank: int) -> Edges:
        """In place of our share of the edges: what is known of them, and none of them."""
        known, first = self.known, rank == 0
        shift, buckets = histogram_size(self.kept.tensor(LENGTHS).rows)
        return Edges(
            [],
            self.histogram if first else np.zeros(buckets, np.int64),
            shift,
            weighted=self._has(WEIGHTS),
            features=self.kept.tensor(FEATURES).width if self._has(FEATURES) else 0,
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
        shift, _ = histogram_size(self.kept.tensor(LENGTHS).rows)
        bucket = first >> shift
        low = bucket << shift
        lengths = self.words(LENGTHS, (low, last)).reshape(-1)
        start = int(self.before[bucket]) + int(lengths[: first - low].sum(dtype=np.int64))
        indptr: _Ints = empty_array((last - first + 1,), np.int64)
        indptr[0] = 0
        np.cumsum(lengths[first - low :], out=indptr[1:])
        stop = start + int(indptr[-1])
        kind = np.int32 if id_type(self.nodes) is torch.int32 else np.int64
        cols = self.words(SOURCES, (start, stop)).view(kind).reshape(-1)
        csr = Csr(
            first,
            torch.from_numpy(indptr),
            torch.from_numpy(cols),
            self._floats(WEIGHTS, (start, stop), flat=True),
            self._floats(FEATURES, (start, stop)),
        )
        return self._patched(csr, self.moved)

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
        csr = Csr(
            0,
            torch.from_numpy(indptr),
            torch.from_numpy(self.words(SOURCES, edges).view(kind).reshape(-1)),
            self._floats(WEIGHTS, edges, flat=True),
            self._floats(FEATURES, edges),
        )
        return self._patched(csr, self.moved.into_some(wanted))

    def _patched(self, csr: Csr, moved: MovedEdges) -> Csr:
        try:
            return patched(csr, self.nodes, moved)
        except ValueError as error:
            raise Damaged(f"{self.kept.store.uri}: {error}") from error

    def _places(self, rows: _Ints) -> tuple[_Ints, _Ints]:
        """[k] the first edge of some rows, ascending, and how many each has."""
        nodes = self.kept.tensor(LENGTHS).rows
        shift, _ = histogram_size(nodes)
        marked = np.zeros(((nodes - 1) >> shift) + 1, bool)
        marked[rows >> shift] = True
        (buckets,) = np.nonzero(marked)
        near = (buckets[:, None] << shift) + np.arange(1 << shift)
        beyond = near >= nodes
        lengths = self.words(LENGTHS, np.where(beyond, 0, near).reshape(-1)).astype(np.int64)
        lengths = np.where(beyond, 0, lengths.reshape(near.shape))
        starts = self.before[buckets][:, None] + np.cumsum(lengths, axis=1) - lengths
        at = np.searchsorted(near.reshape(-1), rows)
        return starts.reshape(-1)[at], lengths.reshape(-1)[at]

    def _floats(self, name: str, rows: Range | _Ints, *, flat: bool = False) -> torch.Tensor | None:
        if not self._has(name):
            return None
        values = self.words(name, rows).view(np.float32)
        return torch.from_numpy(values.reshape(-1) if flat else values)

    def words(self, name: str, rows: Range | _Ints) -> npt.NDArray[Any]:
        """[k, words] rows of a tensor."""
        count = rows[1] - rows[0] if isinstance(rows, tuple) else len(rows)
        out = empty_array((count, self.kept.tensor(name).width), np.int32)
        self.kept.get(name, rows, out)
        return out

    def _has(self, name: str) -> bool:
        return self.kept.has(name) is not None


def open_graph(kept: Kept, sources: int, destinations: int) -> SealedGraph:
    """A relation's graph.

    Args:
        kept: its record.
        sources, destinations: nodes of either end.

    Raises:
        Damaged: it is of another form, or its histogram cannot be read.
    """
    _, count = histogram_size(destinations)
    edges, of_source = kept.tensor(SOURCES).rows, 1 if id_type(sources) is torch.int32 else 2
    for name, rows, width in (
        (BUCKETS, count, BUCKET_WORDS), (LENGTHS, destinations, 1), (SOURCES, edges, of_source),
    ):  # fmt: skip
        tensor = kept.tensor(name)
        if (tensor.rows, tensor.width, tensor.dtype) != (rows, width, "int32"):
            raise Damaged(f"{kept.store.uri}: the {name} of {kept.seal.name} are of another graph")
    words = np.empty((count, BUCKET_WORDS), np.int32)
    kept.get(BUCKETS, (0, count), words)
    histogram, before = np.ascontiguousarray(words.view(np.int64).T)
    known, moved = kept.seal.edges, MovedEdges.none()
    assert known is not None, "it is of a graph"
    graph = SealedGraph(kept, sources, histogram, np.append(before, edges), moved, known)
    if kept.has(GONE) is None:
        return graph
    gone, came = (graph.words(name, (0, kept.tensor(name).rows)) for name in (GONE, CAME))
    return graph.after(MovedEdges(gone, came), known.rows, known.parts)
