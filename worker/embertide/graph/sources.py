"""Which source rows a rank's non-zeros need, who holds them, and in which groups they arrive.

Built once per layer graph and layout, used by every layer. Features travel, never the graph
(Deal, section 3.4, Fig. 8): each rank requests from each peer once the *unique* rows it needs.
Non-zeros are cut into one local group and remote groups by source (section 3.5, Fig. 11); a
group's receive buffer holds at most ``group_rows`` rows, whatever N is, and every peer sends a
share of every group.

They are found by :mod:`embertide.graph.finding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from embertide.graph.in_place import WindowRows
from embertide.grid import Axis, RowRanges
from embertide.kernels.block import Block, PackedBlock, unpacked
from embertide.kernels.counting import count_outside
from embertide.kernels.spilled_csr import (
    AnyBlock,
    AnyCsr,
    AnyFeatures,
    SpilledBlock,
    SpilledCsr,
    SpilledGroup,
    SpilledValues,
)
from embertide.kernels.staging import Staging

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RangeHolders:
    """Contiguous ranges: partitions for the ``tile`` layout, sub-ranges for ``rows``."""

    axis: Axis
    bounds: tuple[int, ...]

    @classmethod
    def tiles(cls, ranges: RowRanges, axis: Axis) -> RangeHolders:
        """The P partitions, over the graph axis."""
        return cls(axis, ranges.partitions)

    @classmethod
    def rows(cls, ranges: RowRanges, axis: Axis) -> RangeHolders:
        """The P*M sub-ranges, over all ranks."""
        return cls(axis, ranges.workers)


@dataclass(frozen=True)
class LoadedHolders:
    """The ranks that loaded the nodes' features.

    Attributes:
        look_up: [k] ascending node ids -> [k, 2] loader and row there. Collective:
            every rank of the axis must call.
    """

    axis: Axis
    look_up: Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Request:
    """What a peer needs.

    Attributes:
        rows: [k] of ours, int32 where ids are, in the order in which the peer takes them.
        cuts: [rounds + 1] how many of them go before each of the peer's rounds.
    """

    rows: torch.Tensor
    cuts: Counts

    def of_rounds(self, first: int, last: int) -> torch.Tensor:
        """The rows that go in rounds first..last."""
        end = len(self.cuts) - 1
        return self.rows[self.cuts[min(first, end)] : self.cuts[min(last, end)]]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The exchange pattern of one set of non-zeros.

    A *slot* is the position of a unique remote row in the order in which they arrive: round by
    round, and within a round the next peer's rows first.

    Attributes:
        axis: the ranks involved.
        local: non-zeros whose source we hold; indices are our own rows.
        remote: one block per group; indices count from the group's first slot.
        group_rows: slots per group.
        requests: axis index -> what that peer needs of us.
        cuts: [axis size, rounds + 1] how many rows of each peer arrive before each round.
        outputs: output rows of the non-zeros' matrix.
        window: where sources are that are all read in place: ``local`` has all non-zeros and
            points there, and ``remote`` is empty. None: each rank has groups of its own.
        read_in_place: non-zeros whose source another rank holds, of those read in place.
    """

    axis: Axis
    local: Block | SpilledBlock
    remote: tuple[Block | PackedBlock | SpilledGroup, ...]
    group_rows: int
    requests: dict[int, Request]
    cuts: Counts
    outputs: int
    window: WindowRows | None = None
    read_in_place: int = 0
    _ordered: WeakKeyDictionary[SpilledValues, SpilledValues] = field(
        default_factory=WeakKeyDictionary
    )

    @property
    def unique(self) -> int:
        """Remote rows received per use."""
        return int(self.cuts[:, -1].sum())

    @property
    def nnz(self) -> int:
        """Non-zeros of the matrix."""
        return self.local.nnz + sum(block.nnz for block in self.remote)

    @property
    def rounds(self) -> int:
        """Rounds in which we send or receive anything; peers may differ."""
        return max(len(cuts) - 1 for cuts in (*self.cuts, *(r.cuts for r in self._asked())))

    @property
    def whole(self) -> Block:
        """The local group's non-zeros, where they are needed all at once."""
        return self.block(None)

    def parts(self, number: int | None) -> Iterator[tuple[slice, Block]]:
        """Rows of the matrix and the block of their non-zeros: all of a group at once, or part by
        part, as they are read from the disk.

        Raises:
            StorageError: the disk cannot be read.
        """
        return self.non_zeros(number).each()

    def non_zeros(self, number: int | None) -> AnyBlock:
        """Those of a remote group of ours, unpacked; of the local one for None."""
        return self.local if number is None else unpacked(self.remote[number])

    def block(self, number: int | None) -> Block:
        """The non-zeros of a group, where they are needed all at once."""
        block = self.non_zeros(number)
        assert isinstance(block, Block), "edges on disk are gone over part by part"
        return block

    def order(self, part: int) -> torch.Tensor | None:
        """[e] int64 the position in a part of the matrix, which is on disk, of each non-zero, as
        values of the blocks follow each other; None: they are in the order of the part.

        Raises:
            StorageError: the disk cannot be read.
        """
        if not self.remote:
            return None
        group = self.remote[0]
        assert isinstance(group, SpilledGroup)
        return group.parts[part].order()

    def in_blocks(self, values: AnyFeatures) -> AnyFeatures:
        """Numbers of the non-zeros in the order of the matrix, [nnz, K], as its blocks find them:
        on disk once more, block after block, which is kept as long as they are.

        Raises:
            StorageError: the disk has no room, or cannot be read or written.
        """
        if not isinstance(values, SpilledValues) or not self.remote:
            return values
        if values not in self._ordered:
            parts = enumerate(values.each())
            ordered = (own[self.order(part)] for part, own in parts)
            self._ordered[values] = SpilledValues.of(values.scratch, values.width, ordered)
        return self._ordered[values]

    def _asked(self) -> list[Request]:
        return list(self.requests.values())

    def group(self, number: int) -> tuple[int, int]:
        """First and one-past-last slot of a group of ours."""
        start = number * self.group_rows
        return min(start, self.unique), min(start + self.group_rows, self.unique)

    def incoming(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """(axis index, start, stop) of what every peer sends of our groups first..last.

        Rows are counted peer by peer, from 0; those of one group are its slots, in order.
        """
        low, high = self._cut(first), self._cut(last)
        found, at = [], 0
        for i in self.axis.others():
            count = int(high[i] - low[i])
            if count:
                found.append((i, at, at + count))
            at += count
        return found

    def pieces(self, number: int, first: int, last: int) -> list[tuple[int, int]]:
        """(start, stop) of a group's rows, slot by slot, among those of groups first..last."""
        low, start, stop = self._cut(first), self._cut(number), self._cut(number + 1)
        starts = ((i, at - int(low[i])) for i, at, _ in self.incoming(first, last))
        pieces = ((at + int(start[i]), at + int(stop[i])) for i, at in starts)
        return [(a, b) for a, b in pieces if a < b]

    def outgoing(self, first: int, last: int) -> list[tuple[int, torch.Tensor]]:
        """(axis index, our rows) that belong to that peer's groups first..last."""
        cut = ((i, request.of_rounds(first, last)) for i, request in self.requests.items())
        return [(i, rows) for i, rows in cut if len(rows)]

    def _cut(self, number: int) -> Counts:
        """[axis size] rows of each peer that arrive before a group."""
        return self.cuts[:, min(number, self.cuts.shape[1] - 1)]


def seen_sources(block: Block | SpilledBlock, axis: Axis, window: WindowRows) -> Sources:
    """The pattern of a rank that reads every source where it stands.

    Args:
        block: all non-zeros, which point into the window.
    """
    own = window.slice(axis.index)
    return Sources(
        axis=axis,
        local=block,
        remote=(),
        group_rows=1,
        requests={},
        cuts=np.zeros((axis.size, 1), np.int64),
        outputs=block.outputs,
        window=window,
        read_in_place=sum(
            count_outside(part.indices, own.start, own.stop) for _, part in block.each()
        ),
    )


def local_sources(csr: AnyCsr, axis: Axis, staging: Staging) -> Sources:
    """The pattern of a rank that holds every source itself, in order: no communication."""
    return Sources(
        axis=axis,
        local=SpilledBlock(csr)
        if isinstance(csr, SpilledCsr)
        else Block(None, csr.indptr, csr.cols, csr.weights).upload(staging),
        remote=(),
        group_rows=1,
        requests={},
        cuts=np.zeros((1, 1), np.int64),
        outputs=csr.rows,
    )
