"""Which source rows a rank's non-zeros need, who holds them, and in which groups they arrive.

Built once per layer graph and layout, used by every layer. Features travel, never the graph
(Deal, section 3.4, Fig. 8): each rank requests from each peer once the *unique* rows it needs.
Non-zeros are cut into one local group and remote groups by source (section 3.5, Fig. 11); a
group's receive buffer holds at most ``group_rows`` rows, whatever N is. Rows are requested in
ring order, so that the ranks do not all start with the same peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from embertide.grid import Axis, RowRanges
from embertide.kernels.block import Block
from embertide.kernels.csr import Csr, id_type
from embertide.kernels.cut import SPAN, cut_by_group
from embertide.primitives.exchange import Channel


class Holders(Protocol):
    """Which rank of an axis holds each source row, and at which of its rows."""

    @property
    def axis(self) -> Axis:
        """The ranks among which the holders are."""

    def locate(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[k] ascending node ids -> ([k] axis index of the holder, [k] row there)."""


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

    def locate(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[k] ascending node ids -> ([k] axis index of the range, [k] row within it)."""
        bounds = torch.tensor(self.bounds, dtype=torch.int64)
        holder = torch.searchsorted(bounds, nodes, right=True) - 1
        return holder, nodes - bounds[holder]


@dataclass(frozen=True)
class Request:
    """What a peer needs: ``rows`` [k] int64 of ours, from ``offset`` in its order of slots."""

    rows: torch.Tensor
    offset: int


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The exchange pattern of one set of non-zeros.

    A *slot* is the position of a unique remote row in the order in which they arrive.

    Attributes:
        axis: the ranks involved.
        local: non-zeros whose source we hold; indices are our own rows.
        remote: one block per group; indices count from the group's first slot.
        group_rows: slots per group.
        requests: axis index -> what that peer needs of us.
        slots: axis index -> [first, last) slots that this peer fills for us.
        outputs: output rows of the non-zeros' matrix.
    """

    axis: Axis
    local: Block
    remote: tuple[Block, ...]
    group_rows: int
    requests: dict[int, Request]
    slots: dict[int, tuple[int, int]]
    outputs: int

    @property
    def unique(self) -> int:
        """Remote rows received per use."""
        return max((stop for _, stop in self.slots.values()), default=0)

    @property
    def rounds(self) -> int:
        """Rounds in which we send or receive anything; peers may differ."""
        last = [self.unique, *(r.offset + len(r.rows) for r in self.requests.values())]
        return -(-max(last) // self.group_rows)

    def group(self, number: int) -> tuple[int, int]:
        """First and one-past-last slot of a group of ours."""
        start = number * self.group_rows
        return min(start, self.unique), min(start + self.group_rows, self.unique)

    def incoming(self, number: int) -> list[tuple[int, int, int]]:
        """(axis index, first slot, last slot) of what every peer sends of our group."""
        start, stop = self.group(number)
        cut = ((i, max(a, start), min(b, stop)) for i, (a, b) in self.slots.items())
        return [(i, first, last) for i, first, last in cut if first < last]

    def outgoing(self, number: int) -> list[tuple[int, torch.Tensor]]:
        """(axis index, our rows) that belong to that peer's group of this number."""
        start, stop = number * self.group_rows, (number + 1) * self.group_rows
        cut = (
            (i, request.rows[max(0, start - request.offset) : max(0, stop - request.offset)])
            for i, request in self.requests.items()
        )
        return [(i, rows) for i, rows in cut if len(rows)]


def find_sources(
    channel: Channel, csr: Csr, holders: Holders, *, nodes: int, group_rows: int, edges: bool
) -> Sources:
    """Find the unique source rows, and request those that other ranks hold.

    Sends 8 bytes per unique remote row and 16 per peer. Needs a table of 4 * N bytes (8 for
    2^31 nodes and more) while it runs. Collective: every rank of the holders' axis must call.

    Args:
        channel: of the holders' axis.
        nodes: N.
        group_rows: slots per group.
        edges: whether blocks carry each non-zero's position in ``csr``.
    """
    axis = holders.axis
    table = torch.zeros(nodes, dtype=id_type(nodes))
    for at in range(0, csr.nnz, SPAN):
        table[csr.cols[at : at + SPAN].long()] = 1
    needed = table.nonzero().squeeze(1)
    holder, row = holders.locate(needed)
    distance = (holder - axis.index) % axis.size
    counts = torch.bincount(distance, minlength=axis.size).tolist()
    order = torch.argsort(distance * (int(row.max()) + 1 if len(row) else 1) + row)
    own, remote = order[: counts[0]], order[counts[0] :]
    table[needed[own]] = (-1 - row[own]).to(table.dtype)
    table[needed[remote]] = torch.arange(len(remote), dtype=table.dtype)
    slots = _slot_ranges(axis, counts)
    requests = _exchange_requests(channel, row[remote], slots)
    cut = cut_by_group(csr, table, group_rows, len(remote), edges=edges)
    local, *groups = (block.to(channel.device) for block in cut)
    return Sources(
        axis=axis,
        local=local,
        remote=tuple(groups),
        group_rows=group_rows,
        requests=requests,
        slots=slots,
        outputs=csr.rows,
    )


def local_sources(csr: Csr, axis: Axis, device: torch.device) -> Sources:
    """The pattern of a rank that holds every source itself, in order: no communication."""
    return Sources(
        axis=axis,
        local=Block(None, csr.indptr, csr.cols, csr.weights).to(device),
        remote=(),
        group_rows=1,
        requests={},
        slots={},
        outputs=csr.rows,
    )


def _slot_ranges(axis: Axis, counts: list[int]) -> dict[int, tuple[int, int]]:
    """Axis index -> its slots, in ring order: the rows of the next rank on the axis first."""
    slots, at = {}, 0
    for step in range(1, axis.size):
        slots[(axis.index + step) % axis.size] = (at, at + counts[step])
        at += counts[step]
    return slots


def _exchange_requests(
    channel: Channel, rows: torch.Tensor, slots: dict[int, tuple[int, int]]
) -> dict[int, Request]:
    """Send each peer the rows we need of it and their first slot; receive the same from it.

    Collective: every rank of the axis must call.
    """
    axis = channel.axis
    header = torch.zeros(axis.size, 2, dtype=torch.int64)
    for i, (start, stop) in slots.items():
        header[i] = torch.tensor([stop - start, start])
    wanted = channel.sizes(header)
    rows = rows.to(channel.device)
    requests = {
        i: Request(rows.new_empty(int(wanted[i, 0])), int(wanted[i, 1])) for i in axis.others()
    }
    channel.start(
        [(i, rows[start:stop]) for i, (start, stop) in slots.items()],
        [(i, requests[i].rows) for i in axis.others()],
    ).wait()
    return requests
