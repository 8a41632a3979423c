"""Which source rows a worker's non-zeros need, who holds them, and in which groups they come.

Built once per layer graph and layout, used by every layer. Features travel, never the graph
(Deal, section 3.4, Fig. 8): each worker tells each peer once which *unique* rows it needs.
Non-zeros are cut into one local group and remote groups by source (section 3.5, Fig. 11); a
group's receive buffer holds at most ``group_rows`` rows, whatever N is. Peers are asked in
ring order, so that not everyone asks the same peer first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from embertide.grid import Axis, RowRanges
from embertide.kernels.block import Block
from embertide.kernels.csr import Csr, id_type
from embertide.kernels.cut import SPAN, cut_by_group
from embertide.primitives.exchange import Exchange
from embertide.telemetry.recorder import Label


class Holders(Protocol):
    """Says where source rows lie; ``direct`` when our own node i lies at row i - first."""

    @property
    def axis(self) -> Axis:
        """The workers among which the holders are."""

    def locate(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[k] ascending node ids -> ([k] axis index of the holder, [k] row there)."""


@dataclass(frozen=True)
class RangeHolders:
    """Contiguous ranges: partitions for the ``tile`` layout, sub-ranges for ``rows``."""

    axis: Axis
    bounds: tuple[int, ...]

    @classmethod
    def tiles(cls, ranges: RowRanges, axis: Axis) -> RangeHolders:
        """Partitions over the graph axis."""
        return cls(axis, ranges.partitions)

    @classmethod
    def rows(cls, ranges: RowRanges, axis: Axis) -> RangeHolders:
        """Sub-ranges over all workers."""
        return cls(axis, ranges.workers)

    def locate(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Search the bounds."""
        bounds = torch.tensor(self.bounds, dtype=torch.int64)
        holder = torch.searchsorted(bounds, nodes, right=True) - 1
        return holder, nodes - bounds[holder]


@dataclass(frozen=True)
class Ask:
    """What one peer needs of us: ``rows`` of ours, at ``offset`` in its order of slots."""

    rows: torch.Tensor
    offset: int


@dataclass(frozen=True)
class Sources:
    """The exchange pattern of one set of non-zeros.

    A *slot* is the position of a unique remote row in the order in which they arrive.

    Attributes:
        axis: the workers involved.
        local: non-zeros whose source we hold; indices are our own rows.
        remote: one block per group; indices count from the group's first slot.
        group_rows: slots per group.
        asked: axis index -> what that peer needs of us.
        slots: axis index -> [first, last) slots that this peer fills for us.
        outputs: output rows of the non-zeros' matrix.
    """

    axis: Axis
    local: Block
    remote: tuple[Block, ...]
    group_rows: int
    asked: dict[int, Ask]
    slots: dict[int, tuple[int, int]]
    outputs: int

    @property
    def unique(self) -> int:
        """Remote rows received per use."""
        return max((stop for _, stop in self.slots.values()), default=0)

    @property
    def rounds(self) -> int:
        """Rounds in which we send or receive anything; peers may differ."""
        last = [self.unique, *(ask.offset + len(ask.rows) for ask in self.asked.values())]
        return -(-max(last) // self.group_rows)

    def group(self, number: int) -> tuple[int, int]:
        """First and one-past-last slot of a group of ours."""
        start = number * self.group_rows
        return min(start, self.unique), min(start + self.group_rows, self.unique)

    def incoming(self, number: int) -> list[tuple[int, int, int]]:
        """(axis index, first slot, last slot) of every peer's part of our group."""
        start, stop = self.group(number)
        parts = ((i, max(a, start), min(b, stop)) for i, (a, b) in self.slots.items())
        return [part for part in parts if part[1] < part[2]]

    def outgoing(self, number: int) -> list[tuple[int, torch.Tensor]]:
        """(axis index, our rows) that belong to that peer's group of this number."""
        start, stop = number * self.group_rows, (number + 1) * self.group_rows
        cut = (
            (i, ask.rows[max(0, start - ask.offset) : max(0, stop - ask.offset)])
            for i, ask in self.asked.items()
        )
        return [(i, rows) for i, rows in cut if len(rows)]


def find_sources(
    exchange: Exchange,
    label: Label,
    csr: Csr,
    holders: Holders,
    nodes: int,
    group_rows: int,
    *,
    edges: bool = False,
) -> Sources:
    """Work out and tell everyone what is needed. Every member of the holders' axis must call.

    Moves 8 bytes per unique remote row and 16 per peer. Needs a table of 4 * N bytes (8 for
    2^31 nodes and more) while it runs.

    Args:
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
    asked = _tell(exchange, label, axis, row[remote], slots)
    cut = cut_by_group(csr, table, group_rows, len(remote), edges=edges)
    blocks = [block.to(exchange.device) for block in cut]
    return Sources(axis, blocks[0], tuple(blocks[1:]), group_rows, asked, slots, csr.rows)


def local_sources(exchange: Exchange, csr: Csr, axis: Axis) -> Sources:
    """The pattern of a worker that holds every source itself, in order: no communication."""
    block = Block(None, csr.indptr, csr.cols, csr.weights).to(exchange.device)
    return Sources(axis, block, (), 1, {}, {}, csr.rows)


def _slot_ranges(axis: Axis, counts: list[int]) -> dict[int, tuple[int, int]]:
    """Slots in ring order: the next member's rows first."""
    slots, at = {}, 0
    for step in range(1, axis.size):
        slots[(axis.index + step) % axis.size] = (at, at + counts[step])
        at += counts[step]
    return slots


def _tell(
    exchange: Exchange,
    label: Label,
    axis: Axis,
    rows: torch.Tensor,
    slots: dict[int, tuple[int, int]],
) -> dict[int, Ask]:
    """Send each peer the rows we need of it and where they go; learn the same from them."""
    header = torch.zeros(axis.size, 2, dtype=torch.int64)
    for i, (start, stop) in slots.items():
        header[i] = torch.tensor([stop - start, start])
    wanted = exchange.sizes(label, axis, header)
    rows = rows.to(exchange.device)
    asked = {i: Ask(rows.new_empty(int(wanted[i, 0])), int(wanted[i, 1])) for i in axis.others()}
    exchange.start(
        label,
        [(axis.ranks[i], rows[start:stop]) for i, (start, stop) in slots.items()],
        [(axis.ranks[i], asked[i].rows) for i in axis.others()],
    ).wait()
    return asked
