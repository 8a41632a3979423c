"""Numbers of the non-zeros of a pattern, which its blocks set and read: scores, and shares.

In memory they are in the order of the matrix, where blocks find them by positions. Of a graph on
disk they are there, too: block after block of each part, so that a group sets and reads its own in
one piece. One part is in memory at a time, and brought to the order of the matrix for what goes
over whole rows.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch

from embertide.graph.ghosts import POSITION_BYTES, GhostSources
from embertide.graph.sources import Sources
from embertide.kernels.block import Block
from embertide.kernels.ghost_store import GhostStore, GhostTensor, few_blocks
from embertide.kernels.ghosts import on_ghosts
from embertide.kernels.spilled_csr import SpilledBlock, SpilledGroup, SpilledValues

Numbered = tuple[slice, Block, torch.Tensor]
"""Rows, the block of their non-zeros, and [positions, K] with the numbers of these."""


@dataclass(frozen=True)
class EdgeValues:
    """Numbers in memory.

    Attributes:
        sources: the pattern.
        values: [nnz, K] float32 in the order of the matrix.
    """

    sources: Sources
    values: torch.Tensor

    def to_set(self, number: int | None) -> Iterator[Numbered]:
        """The rows of a group whose numbers are to be set; of the local one for None."""
        yield slice(None), self.sources.block(number), self.values

    def of(self, number: int | None) -> Iterator[Numbered]:
        """The same of numbers that are there."""
        return self.to_set(number)


@dataclass(frozen=True)
class SpilledEdgeValues:
    """Numbers on disk."""

    sources: Sources
    values: SpilledValues

    @classmethod
    def room(cls, sources: Sources, columns: int) -> SpilledEdgeValues:
        """Files for [nnz, K] numbers.

        Raises:
            StorageError: the disk has no room.
        """
        values = SpilledValues(sources.on_disk.scratch, columns)
        for edges in sources.part_edges():
            values.make_room(edges)
        return cls(sources, values)

    def to_set(self, number: int | None) -> Iterator[Numbered]:
        """As of :class:`EdgeValues`; those of a part are written when the next one is asked for.

        Raises:
            StorageError: the disk cannot be read or written.
        """
        block = self._block(number)
        for (rows, own), (part, some) in zip(block.each(), block.places(), strict=True):
            values = torch.empty(own.nnz, self.values.width)
            yield rows, own, values
            self.values.write(part, some.start, values)
            del values

    def of(self, number: int | None) -> Iterator[Numbered]:
        """As of :class:`EdgeValues`; the next part is read while one is gone over.

        Raises:
            StorageError: the disk cannot be read.
        """
        block = self._block(number)
        parts = zip(block.each(), self.values.each(block.places()), strict=True)
        yield from ((rows, own, values) for (rows, own), values in parts)

    def part(self, number: int) -> torch.Tensor:
        """[e, K] of a part, in the order of the matrix, in memory.

        Raises:
            StorageError: the disk cannot be read.
        """
        values, order = self.values.read(number), self.sources.order(number)
        if order is None:
            return values
        placed = torch.empty_like(values)
        placed[order] = values
        return placed

    def set_part(self, number: int, values: torch.Tensor) -> None:
        """Write [e, K] of a part, which are in the order of the matrix.

        Raises:
            StorageError: the disk cannot be read or written.
        """
        order = self.sources.order(number)
        self.values.write(number, 0, values if order is None else values[order])

    def _block(self, number: int | None) -> SpilledBlock | SpilledGroup:
        block = self.sources.non_zeros(number)
        assert not isinstance(block, Block)
        return block


@dataclass(frozen=True)
class GhostEdgeValues:
    """Numbers in a store: of as many parts as are in memory at a time, which stand for all."""

    sources: GhostSources
    columns: float
    _file: GhostTensor = field(init=False)

    def __post_init__(self) -> None:
        file = self._store.empty(self.sources.stored_edges, self.columns)  # type: ignore[arg-type]
        object.__setattr__(self, "_file", file)
        weakref.finalize(self, file.close)

    @property
    def _store(self) -> GhostStore:
        store = self.sources.graph.exchange.store
        assert store is not None
        return store

    def spans(self) -> Iterator[tuple[float, float]]:
        """First and last edge of some parts."""
        edges = self.sources.stored_edges
        return few_blocks(edges, max(1.0, self.sources.stored_part))  # type: ignore[arg-type]

    def to_set(self, number: int | None) -> Iterator[Numbered]:
        """As of :class:`SpilledEdgeValues`; the local group stands for all."""
        for rows, own in self.sources.non_zeros(number).each():
            for first, last in self.spans() if number is None else ():
                values = self._store.room(last - first, self.columns)  # type: ignore[arg-type]
                yield rows, own, values
                self._file.write_rows(first, values)
                del values

    def of(self, number: int | None) -> Iterator[Numbered]:
        """As of :class:`SpilledEdgeValues`; the local group stands for all."""
        for rows, own in self.sources.non_zeros(number).each():
            spans = self.spans() if number is None else ()
            with self._store.mover() as mover:
                for values in mover.ahead(partial(self._file.read_rows, *span) for span in spans):
                    yield rows, own, values

    def part(self, first: float, last: float) -> torch.Tensor:
        """As of :class:`SpilledEdgeValues`."""
        values, order = self._file.read_rows(first, last), self._order(first, last)
        return values if order is None else torch.empty_like(values)

    def set_part(self, first: float, values: torch.Tensor) -> None:
        """As of :class:`SpilledEdgeValues`."""
        order = self._order(first, first + values.shape[0])
        self._file.write_rows(first, values if order is None else torch.empty_like(values))

    def _order(self, first: float, last: float) -> torch.Tensor | None:
        if not self.sources.remote:
            return None
        exchange = self.sources.graph.exchange
        self._store.moved(read=0.0 if first else POSITION_BYTES * self.sources.stored_edges)
        read = exchange.tensor(last - first, dtype=torch.int32)
        return read.long()


AnyEdgeValues = EdgeValues | SpilledEdgeValues | GhostEdgeValues


def _ghost_room(like: torch.Tensor, sources: Sources, columns: int) -> AnyEdgeValues:
    assert isinstance(sources, GhostSources)
    if sources.graph.is_stored:
        return GhostEdgeValues(sources, columns)
    return EdgeValues(sources, like.new_empty(sources.nnz, columns))


@on_ghosts(_ghost_room)
def room_for(like: torch.Tensor, sources: Sources, columns: int) -> AnyEdgeValues:
    """[nnz, K] numbers of a pattern's non-zeros that are to be set, on disk where these are.

    Args:
        like: of the device and type of those in memory.

    Raises:
        StorageError: the disk has no room.
    """
    if isinstance(sources.local, SpilledBlock):
        return SpilledEdgeValues.room(sources, columns)
    return EdgeValues(sources, like.new_empty(sources.nnz, columns))
