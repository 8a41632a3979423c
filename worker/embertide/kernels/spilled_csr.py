"""Compressed sparse rows whose edges are on disk: for a graph that does not fit in memory.

The rows are cut into *parts* of consecutive rows, each with its own file, which is read and
written as a whole. Where a row ends is in memory. What goes over the edges takes one part after
the other, and a part is a :class:`~embertide.kernels.csr.Csr`, so that it runs the same code as a
graph in memory.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise

import torch

from embertide.footprint import FLOAT_BYTES
from embertide.kernels.block import Block
from embertide.kernels.csr import Csr
from embertide.kernels.disk_threads import DiskThreads
from embertide.kernels.scratch import Scratch, ScratchTensor

Span = slice
"""Consecutive rows, or values."""
Place = tuple[int, Span]
"""The number of a part, and which of its values."""


class _Records:
    """Arrays of 4 or 8 bytes a value in a file, which goes when nothing refers to them.

    Args:
        records: arrays [n], or None, that are read together.

    Raises:
        StorageError: the disk has no room, or cannot be written.
    """

    def __init__(self, scratch: Scratch, records: Sequence[Sequence[torch.Tensor | None]]) -> None:
        self._kinds = [
            [None if array is None else (array.dtype, len(array)) for array in record]
            for record in records
        ]
        words = [
            [array.contiguous().view(torch.float32) for array in record if array is not None]
            for record in records
        ]
        self._cuts = [0, *accumulate(sum(map(len, record)) for record in words)]
        self._file: ScratchTensor | None = None
        if self._cuts[-1]:
            self._file = scratch.empty(self._cuts[-1], 1)
            weakref.finalize(self, self._file.close)
            for at, record in zip(self._cuts, words, strict=False):
                if record:
                    joined = record[0] if len(record) == 1 else torch.cat(record)
                    self._file.write_rows(at, joined.view(-1, 1))

    def read(self, number: int) -> list[torch.Tensor | None]:
        """A record, in memory.

        Raises:
            StorageError: the disk cannot be read.
        """
        words, at = torch.empty(0), 0
        if self._file is not None:
            words = self._file.read_rows(*self._cuts[number : number + 2]).view(-1)
        arrays: list[torch.Tensor | None] = []
        for kind in self._kinds[number]:
            if kind is None:
                arrays.append(None)
                continue
            size = kind[1] * kind[0].itemsize // FLOAT_BYTES
            arrays.append(words[at : at + size].view(kind[0]))
            at += size
        return arrays


class SpilledRows:
    """The edges of some consecutive rows on disk.

    Attributes:
        nnz: edges.
        kind: type of the sources' ids.
    """

    def __init__(
        self, scratch: Scratch, columns: torch.Tensor, weights: torch.Tensor | None = None
    ) -> None:
        """Write the edges.

        Raises:
            StorageError: the disk has no room, or cannot be written.
        """
        self.nnz, self.kind = len(columns), columns.dtype
        self._records = _Records(scratch, [[columns], *([] if weights is None else [[weights]])])

    def columns(self) -> torch.Tensor:
        """[nnz] the sources of the edges, in memory.

        Raises:
            StorageError: the disk cannot be read.
        """
        return self._read(0)

    def weights(self) -> torch.Tensor:
        """[nnz] float32, in memory, of a graph that has weights.

        Raises:
            StorageError: the disk cannot be read.
        """
        return self._read(1)

    def _read(self, number: int) -> torch.Tensor:
        (array,) = self._records.read(number)
        assert array is not None
        return array


class SpilledValues:
    """[nnz, K] float32 of the edges of a graph on disk, in files that go when nothing refers to
    them, one for each part.

    Those of a part are in the order of its edges; or where it is cut into blocks by groups of
    sources, block after block.
    """

    def __init__(self, scratch: Scratch, width: int) -> None:
        """K is ``width``; no part is there yet."""
        self.width, self.scratch = width, scratch
        self._files: list[ScratchTensor | None] = []
        self._ends = [0]

    @classmethod
    def of(cls, scratch: Scratch, width: int, parts: Iterable[torch.Tensor]) -> SpilledValues:
        """Write those of parts that follow each other; one is in memory at a time.

        Raises:
            StorageError: the disk has no room, or cannot be written.
        """
        made = cls(scratch, width)
        for values in parts:
            made.add(values)
        return made

    def add(self, values: torch.Tensor) -> None:
        """Write [e, K] of the next part.

        Raises:
            StorageError: the disk has no room, or cannot be written.
        """
        self.make_room(len(values))
        self.write(len(self._files) - 1, 0, values)

    def make_room(self, edges: int) -> None:
        """The next part has so many edges, whose values are still to be written.

        Raises:
            StorageError: the disk has no room.
        """
        self._ends.append(self._ends[-1] + edges)
        file = self.scratch.empty(edges, self.width) if edges else None
        if file is not None:
            weakref.finalize(self, file.close)
        self._files.append(file)

    def write(self, part: int, first: int, values: torch.Tensor) -> None:
        """Set [e, K] of a part from number ``first`` on.

        Raises:
            StorageError: the disk cannot be written.
        """
        file = self._files[part]
        if file is not None and len(values):
            file.write_rows(first, values)

    def read(self, part: int, some: slice | None = None) -> torch.Tensor:
        """[e, K] of a part, or some of them, in memory.

        Raises:
            StorageError: the disk cannot be read.
        """
        file, edges = self._files[part], self._ends[part + 1] - self._ends[part]
        some = some or slice(0, edges)
        if file is None or some.start == some.stop:
            return torch.empty(0, self.width)
        return file.read_rows(some.start, some.stop)

    def take(self, edges: torch.Tensor) -> torch.Tensor:
        """[k, K] of some edges, in memory; parts that have some of them are read.

        Args:
            edges: [k] int64, their places among all, ascending.

        Raises:
            StorageError: the disk cannot be read.
        """
        taken = [torch.empty(0, self.width)]
        cuts = torch.searchsorted(edges, torch.tensor(self._ends)).tolist()
        for part, (low, high) in enumerate(pairwise(cuts)):
            if low < high:
                taken.append(self.read(part)[edges[low:high] - self._ends[part]])
        return torch.cat(taken)

    def each(self, places: Iterable[Place] | None = None) -> Iterator[torch.Tensor]:
        """[e, K] of each part, or of some places of parts; the next one is read while one is gone
        over.

        Raises:
            StorageError: the disk cannot be read.
        """
        wanted: Iterable[tuple[int] | Place] = ((part,) for part in range(len(self._files)))
        wanted = wanted if places is None else places
        with DiskThreads() as disk:
            yield from disk.ahead(partial(self.read, *place) for place in wanted)


@dataclass(frozen=True)
class SpilledCsr:
    """In-edges of consecutive rows, as a :class:`Csr` has them, whose columns are on disk.

    Attributes:
        first: node id of row 0.
        indptr: [rows + 1] int64.
        cuts: [parts + 1] the rows before each part, and all.
        spilled: the edges, part by part.
        weighted: whether edges have weights.
        scratch: where the parts are.
        features: of the edges, or None.
    """

    first: int
    indptr: torch.Tensor
    cuts: tuple[int, ...]
    spilled: tuple[SpilledRows, ...]
    weighted: bool
    scratch: Scratch
    features: SpilledValues | None = None

    @classmethod
    def write(cls, scratch: Scratch, first: int, rows: int, parts: Iterable[Csr]) -> SpilledCsr:
        """Write parts that follow each other from node ``first`` on; one is in memory at a time.

        Args:
            rows: of all parts.

        Raises:
            StorageError: the disk has no room, or cannot be written.
        """
        indptr, weighted = torch.zeros(rows + 1, dtype=torch.int64), False
        spilled: list[SpilledRows] = []
        features: SpilledValues | None = None
        cuts, nnz = [0], 0
        for csr in parts:
            start, stop = cuts[-1], cuts[-1] + csr.rows
            spilled.append(SpilledRows(scratch, csr.cols, csr.weights))
            torch.add(csr.indptr[1:], nnz, out=indptr[start + 1 : stop + 1])
            if csr.features is not None:
                features = features or SpilledValues(scratch, csr.features.shape[1])
                features.add(csr.features)
            weighted, nnz = csr.weighted, nnz + csr.nnz
            cuts.append(stop)
        assert cuts[-1] == rows
        return cls(first, indptr, tuple(cuts), tuple(spilled), weighted, scratch, features)

    @property
    def rows(self) -> int:
        """Rows, with edges or without."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Edges, the non-zeros of all rows."""
        return int(self.indptr[-1])

    def parts(self, wanted: torch.Tensor | None = None) -> Iterator[tuple[Span, Csr]]:
        """The rows of each part and their edges; the next part is read while one is gone over.

        Args:
            wanted: [rows] bool; parts without any of these are left out. None: all are wanted.

        Raises:
            StorageError: the disk cannot be read.
        """
        every = enumerate(self._spans())
        some = [own for own in every if wanted is None or bool(wanted[own[1]].any())]
        with DiskThreads() as disk:
            reads = (partial(self._read, number) for number, _ in some)
            for (_, rows), csr in zip(some, disk.ahead(reads), strict=True):
                yield rows, csr

    def read_rows(self, start: int, stop: int) -> Csr:
        """Rows ``start..stop`` in memory; the parts that have some of them are read.

        Raises:
            StorageError: the disk cannot be read.
        """
        read = [
            self._read(number).slice(max(0, start - rows.start), min(stop, rows.stop) - rows.start)
            for number, rows in enumerate(self._spans())
            if start < rows.stop and stop > rows.start
        ]
        weights = [torch.empty(0), *(own.weights for own in read if own.weights is not None)]
        features = None
        if self.features is not None:
            own_features = [own.features for own in read if own.features is not None]
            features = torch.cat([torch.empty(0, self.features.width), *own_features])
        return Csr(
            self.first + start,
            self.indptr[start : stop + 1] - self.indptr[start],
            torch.cat([torch.empty(0, dtype=torch.int32), *(own.cols for own in read)]),
            torch.cat(weights) if self.weighted else None,
            features,
        )

    def slice(self, start: int, stop: int) -> SpilledCsr:
        """Rows ``start..stop`` of whole parts, in the same files; without features."""
        some = self.parts_of(start, stop)
        return SpilledCsr(
            self.first + start,
            self.indptr[start : stop + 1] - self.indptr[start],
            tuple(cut - start for cut in self.cuts[some.start : some.stop + 1]),
            self.spilled[some.start : some.stop],
            self.weighted,
            self.scratch,
        )

    def parts_of(self, start: int, stop: int) -> range:
        """Numbers of the parts that rows ``start..stop`` are cut into; of no rows at most one."""
        first, last = bisect_right(self.cuts, start) - 1, bisect_left(self.cuts, stop)
        if start == stop:
            first, last = last, min(first, last + 1)
        assert (self.cuts[first], self.cuts[last]) == (start, stop), "no whole parts"
        return range(first, last)

    def rewritten(self, change: Callable[[Csr], Csr]) -> SpilledCsr:
        """The graph that ``change`` makes of each part, in new files.

        Raises:
            StorageError: the disk has no room, or cannot be read or written.
        """
        parts = (change(part) for _, part in self.parts())
        return self.write(self.scratch, self.first, self.rows, parts)

    def without_columns(self) -> SpilledCsr:
        """The rows and weights alone, of which nothing will read a column again.

        Weights are in the files of the columns, which stay for them.
        """
        if self.weighted:
            return self.without_features()
        return replace(self, cuts=(0,), spilled=(), features=None)

    def without_features(self) -> SpilledCsr:
        """The same edges, without features."""
        return self if self.features is None else replace(self, features=None)

    def without_weights(self) -> SpilledCsr:
        """The same edges, unweighted."""
        return replace(self, weighted=False)

    def _spans(self) -> Iterator[Span]:
        """The rows of each part."""
        return (Span(*bounds) for bounds in pairwise(self.cuts))

    def _read(self, number: int) -> Csr:
        rows, part = slice(*self.cuts[number : number + 2]), self.spilled[number]
        ends = self.indptr[rows.start : rows.stop + 1]
        weights = part.weights() if self.weighted else None
        features = None if self.features is None else self.features.read(number)
        return Csr(self.first + rows.start, ends - ends[0], part.columns(), weights, features)


@dataclass(frozen=True)
class SpilledBlock:
    """All non-zeros of a graph on disk, as sums over its rows take them.

    Attributes:
        place: makes rows of the source tensor of node ids; None: they are the same.
    """

    csr: SpilledCsr
    place: Callable[[torch.Tensor], torch.Tensor] | None = None

    @property
    def nnz(self) -> int:
        """Non-zeros of all rows."""
        return self.csr.nnz

    @property
    def outputs(self) -> int:
        """Rows."""
        return self.csr.rows

    def each(self) -> Iterator[tuple[slice, Block]]:
        """The rows of each part, and the block of their non-zeros.

        Raises:
            StorageError: the disk cannot be read.
        """
        for rows, part in self.csr.parts():
            indices = part.cols if self.place is None else self.place(part.cols)
            yield rows, Block(None, part.indptr, indices, part.weights)

    def places(self) -> list[Place]:
        """Where values of the parts' non-zeros are, as :meth:`each` has them."""
        return [(number, slice(0, part.nnz)) for number, part in enumerate(self.csr.spilled)]

    def ends(self) -> Block:
        """Where rows end, without what their non-zeros have."""
        return Block(None, self.csr.indptr, self.csr.indptr[:0])


class SpilledGroups:
    """The non-zeros of some consecutive rows on disk, cut into blocks by groups of sources.

    Attributes:
        span: the rows.
        local: non-zeros of the local block.
        nnz: non-zeros of each group.
        hubs: group -> [k] int64 rows with more than HUB_EDGES, of groups that have some.
    """

    def __init__(
        self, scratch: Scratch, span: slice, local: Block, blocks: Sequence[Block]
    ) -> None:
        """Write the blocks of all groups, whose rows are counted from the first of the span; of the
        local one the positions alone.

        Raises:
            StorageError: the disk has no room, or cannot be written.
        """
        self.span, self.local, self.nnz = span, local.nnz, [block.nnz for block in blocks]
        hubs = ((number, block.hubs) for number, block in enumerate(blocks))
        self.hubs = {number: rows + span.start for number, rows in hubs if len(rows)}
        # Two records of each: the rows that it touches are read by themselves, too.
        records = [both for of in blocks for both in (_touched(of), [of.indices, of.weights])]
        edges = [block.edges for block in (local, *blocks) if block.edges is not None]
        order = torch.cat(edges).to(torch.int32) if edges else None
        self._records = _Records(scratch, [*records, [order]])

    def order(self) -> torch.Tensor:
        """[e] int64 the position in the part of each of its non-zeros, block after block, of a part
        whose blocks were cut with positions.

        Raises:
            StorageError: the disk cannot be read.
        """
        (order,) = self._records.read(2 * len(self.nnz))
        assert order is not None, "the part was cut without positions"
        return order.long()

    def ends(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """[r] int32 the rows that a group touches, and the non-zeros of each.

        Raises:
            StorageError: the disk cannot be read.
        """
        rows, lengths = self._records.read(2 * number)
        assert rows is not None
        assert lengths is not None
        return rows, lengths

    def read(self, number: int) -> Block:
        """The non-zeros of a group.

        Raises:
            StorageError: the disk cannot be read.
        """
        rows, lengths = self.ends(number)
        indices, weights = self._records.read(2 * number + 1)
        assert indices is not None
        return Block(rows, _ended(lengths), indices, weights)


@dataclass(frozen=True)
class SpilledGroup:
    """The non-zeros on disk whose sources are in one group.

    Attributes:
        parts: those of all groups, part by part in the order of the rows.
        number: of the group.
    """

    parts: tuple[SpilledGroups, ...]
    number: int

    @property
    def nnz(self) -> int:
        """Non-zeros of all rows."""
        return sum(part.nnz[self.number] for part in self.parts)

    @property
    def hubs(self) -> torch.Tensor:
        """[k] int64 rows with more than HUB_EDGES, ascending."""
        found = [part.hubs[self.number] for part in self.parts if self.number in part.hubs]
        return torch.cat([torch.empty(0, dtype=torch.int64), *found])

    def each(self) -> Iterator[tuple[slice, Block]]:
        """The rows of each part that has non-zeros, and their block.

        Raises:
            StorageError: the disk cannot be read.
        """
        some = [part for part in self.parts if part.nnz[self.number]]
        with DiskThreads() as disk:
            reads = (partial(part.read, self.number) for part in some)
            yield from zip((part.span for part in some), disk.ahead(reads), strict=True)

    def places(self) -> list[Place]:
        """Where values of the parts' non-zeros are, as :meth:`each` has them."""
        firsts = [part.local + sum(part.nnz[: self.number]) for part in self.parts]
        counts = [part.nnz[self.number] for part in self.parts]
        every = enumerate(zip(firsts, counts, strict=True))
        return [(number, slice(first, first + count)) for number, (first, count) in every if count]

    def ends(self) -> Block:
        """The rows that it touches and where they end, without what their non-zeros have.

        Raises:
            StorageError: the disk cannot be read.
        """
        ends = [(part.span.start, *part.ends(self.number)) for part in self.parts]
        rows = torch.cat([start + rows for start, rows, _ in ends])
        return Block(rows, _ended(torch.cat([lengths for *_, lengths in ends])), rows[:0])


def _touched(block: Block) -> list[torch.Tensor | None]:
    assert block.rows is not None
    return [block.rows, block.indptr.diff().to(torch.int32)]


def _ended(lengths: torch.Tensor) -> torch.Tensor:
    """[r + 1] int64 where rows of so many non-zeros end."""
    indptr = torch.zeros(len(lengths) + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, out=indptr[1:])
    return indptr


AnyCsr = Csr | SpilledCsr
"""A graph in memory or on disk."""
AnyBlock = Block | SpilledBlock | SpilledGroup
"""The same of non-zeros."""
AnyFeatures = torch.Tensor | SpilledValues
"""The same of features of edges."""


def in_memory(csr: AnyCsr) -> Csr:
    """A graph whose edges are needed all at once, which no plan has with the graph on disk."""
    assert isinstance(csr, Csr), "edges on disk are gone over part by part"
    return csr
