"""Which source rows a rank's non-zeros need, who holds them, and in which groups they arrive.

Built once per layer graph and layout, used by every layer. Features travel, never the graph
(Deal, section 3.4, Fig. 8): each rank requests from each peer once the *unique* rows it needs.
Non-zeros are cut into one local group and remote groups by source (section 3.5, Fig. 11); a
group's receive buffer holds at most ``group_rows`` rows, whatever N is, and every peer sends a
share of every group.

To find them nothing has a word per node: sources are bits, and where holders own ranges of nodes a
source's group and place follow from the number of sources before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from embertide.graph.exchange import Channel
from embertide.graph.in_place import WindowRows
from embertide.grid import Axis
from embertide.kernels.block import Block, PackedBlock, unpacked
from embertide.kernels.counting import count_outside
from embertide.kernels.csr import id_type
from embertide.kernels.cut import Places, RangePlaces, TablePlaces, cut_by_group, cut_on_disk
from embertide.kernels.node_set import NodeSet, unpack_bitmap
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
LOOK_UP_NODES = 1 << 20
"""Consecutive nodes whose loaders are looked up at a time."""
_PLACED_SOURCES = 1 << 18
"""Sources whose slots are found at a time."""


@dataclass(frozen=True)
class RangeHolders:
    """Contiguous ranges: partitions for the ``tile`` layout, sub-ranges for ``rows``."""

    axis: Axis
    bounds: tuple[int, ...]


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

    @property
    def on_disk(self) -> SpilledCsr:
        """The non-zeros of the local group, whose parts are those of the matrix."""
        assert isinstance(self.local, SpilledBlock), "edges are in memory"
        return self.local.csr

    def part_edges(self) -> list[int]:
        """Non-zeros of each part of the matrix, which is on disk."""
        group = self.remote[0] if self.remote else None
        groups = group.parts if isinstance(group, SpilledGroup) else ()
        remote = [sum(part.nnz) for part in groups] or [0] * len(self.on_disk.spilled)
        return [own.nnz + more for own, more in zip(self.on_disk.spilled, remote, strict=True)]

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


def find_sources(
    channel: Channel,
    csrs: Sequence[AnyCsr],
    holders: RangeHolders | LoadedHolders,
    *,
    nodes: int,
    group_rows: int,
    edges: Sequence[bool],
) -> list[Sources]:
    """Find the unique source rows of matrices with the same columns, and request them.

    All patterns that come back are of the union of these rows, which travel once for all matrices:
    a group that has arrived is read by the block of that group of each.

    Sends 8 bytes per rank to each peer, and to a peer that owns a range of nodes a bit for each
    of them or 4 bytes per row needed (8 with 2^31 nodes and more), whichever is less; to a
    loader 4 per row. While it runs it needs N / 7 bytes, at most 16 MiB more, and for loaded
    features 14 per unique source and at most 32 MiB more; of matrices on disk a part of one
    is in memory at a time. Collective: every rank of the holders' axis must call.

    Args:
        channel: of the holders' axis.
        nodes: N.
        group_rows: slots per group.
        edges: of each matrix, whether its blocks carry each non-zero's position in it.
    """
    members = NodeSet((own.cols for csr in csrs for _, own in csr.parts()), nodes)
    if isinstance(holders, RangeHolders):
        places, cuts, requests = _in_ranges(channel, members, holders, group_rows)
    else:
        loader, row, counts = _locate(members, holders)
        places, cuts, requests = _at_loaders(channel, members, loader, row, counts, group_rows)
        del loader, row
    found = []
    for csr, positions in zip(csrs, edges, strict=True):
        local, groups = _cut(channel, csr, places, positions)
        found.append(
            Sources(
                axis=holders.axis,
                local=local,
                remote=tuple(groups),
                group_rows=group_rows,
                requests=requests,
                cuts=cuts,
                outputs=csr.rows,
            )
        )
    return found


def _cut(
    channel: Channel, csr: AnyCsr, places: Places, positions: bool
) -> tuple[Block | SpilledBlock, Sequence[Block | PackedBlock | SpilledGroup]]:
    """The local block, and those of groups: on the device, or on disk where the matrix is."""
    if isinstance(csr, SpilledCsr):
        return cut_on_disk(csr, places, edges=positions)
    cut = cut_by_group(csr, places, edges=positions)
    local, *groups = (block.upload(channel.staging) for block in cut)
    assert isinstance(local, Block)
    return local, groups


def _all_counts(channel: Channel, counts: Counts) -> Counts:
    """[ranks, ranks] rows that each rank requests of each.

    Collective: every rank of the axis must call.
    """
    own = torch.from_numpy(counts).repeat(len(counts), 1)
    return channel.sizes(own).numpy()


def range_places(
    members: NodeSet, bounds: Counts, own: int, cuts: Counts, group_rows: int
) -> RangePlaces:
    """Where sources arrive of which each holder owns a range of nodes; see :class:`RangePlaces`."""
    return RangePlaces(
        members=members,
        bounds=bounds,
        own=own,
        cuts=cuts,
        before=places_before(cuts, own),
        group_rows=group_rows,
    )


def _in_ranges(
    channel: Channel, members: NodeSet, holders: RangeHolders, group_rows: int
) -> tuple[Places, Counts, dict[int, Request]]:
    """Where sources in ranges of nodes arrive, and what peers need of ours."""
    axis, bounds = holders.axis, np.array(holders.bounds, np.int64)
    counts = np.diff(members.ranks(bounds))
    counts[axis.index] = 0
    wanted = _all_counts(channel, counts)
    cuts, theirs = share_rounds(wanted, group_rows, axis.index)
    kind = id_type(members.nodes)
    rows = int(bounds[axis.index + 1] - bounds[axis.index])

    def listed(count: int, of: int) -> bool:
        return count * kind.itemsize < (of + 7) // 8

    def asked(i: int) -> torch.Tensor:
        first, last = int(bounds[i]), int(bounds[i + 1])
        if listed(int(counts[i]), last - first):
            return members.between(first, last).view(torch.uint8)
        return members.bitmap(first, last) if counts[i] else torch.empty(0, dtype=torch.uint8)

    def answer_size(i: int) -> int:
        count = int(wanted[i, axis.index])
        return min(count * kind.itemsize, (rows + 7) // 8)

    sent = [(i, asked(i)) for i in axis.others()]
    received = {i: torch.empty(answer_size(i), dtype=torch.uint8) for i in axis.others()}
    channel.start(sent, list(received.items())).wait()
    requests = {}
    for i in axis.others():
        count, found = int(wanted[i, axis.index]), received.pop(i)
        if listed(count, rows):
            own_rows = found.view(kind)
        else:
            own_rows = torch.empty(count, dtype=kind)
            unpack_bitmap(found, own_rows)
        requests[i] = Request(channel.staging.upload(own_rows), theirs[i])
    return range_places(members, bounds, axis.index, cuts, group_rows), cuts, requests


def _at_loaders(
    channel: Channel,
    members: NodeSet,
    loader: npt.NDArray[np.uint16],
    row: torch.Tensor,
    counts: Counts,
    group_rows: int,
) -> tuple[Places, Counts, dict[int, Request]]:
    """Where sources arrive that the rank that read them holds, and what peers need of ours."""
    axis, kind = channel.axis, id_type(members.nodes)
    starts = np.cumsum(counts) - counts
    remote = counts.copy()
    remote[axis.index] = 0
    wanted = _all_counts(channel, remote)
    cuts, theirs = share_rounds(wanted, group_rows, axis.index)
    before = places_before(cuts, axis.index)
    slots = torch.empty(members.count, dtype=kind)
    asked = torch.empty(members.count, dtype=kind)
    at = np.zeros(axis.size, np.int64)
    for start in range(0, members.count, _PLACED_SOURCES):
        some = slice(start, start + _PLACED_SOURCES)
        order = torch.from_numpy(np.argsort(loader[some], kind="stable")) + start
        held = np.bincount(loader[some], minlength=axis.size).tolist()
        for i, mine in enumerate(order.split(held)):
            if not len(mine):
                continue
            k = np.arange(at[i], at[i] + len(mine))
            at[i] += len(mine)
            asked[int(starts[i] + k[0]) : int(starts[i] + k[-1] + 1)] = row[mine]
            if i == axis.index:
                slots[mine] = -1 - row[mine]
                continue
            number = np.searchsorted(cuts[i], k, side="right") - 1
            slot = number * group_rows + before[i][number] + k - cuts[i][number]
            slots[mine] = torch.from_numpy(slot).to(kind)
    parts = asked.split(counts.tolist())
    rows = {i: torch.empty(int(wanted[i, axis.index]), dtype=kind) for i in axis.others()}
    channel.start([(i, parts[i]) for i in axis.others()], list(rows.items())).wait()
    places = TablePlaces(
        members=members, slots=slots, rounds=before.shape[1], group_rows=group_rows
    )
    upload = channel.staging.upload
    requests = {i: Request(upload(rows[i]), theirs[i]) for i in axis.others()}
    return places, cuts, requests


def _locate(
    members: NodeSet, holders: LoadedHolders
) -> tuple[npt.NDArray[np.uint16], torch.Tensor, Counts]:
    """[members] loader and row there of each source; how many each loader has.

    Collective: every rank of the axis must call.
    """
    loader = np.empty(members.count, np.uint16)
    row = torch.empty(members.count, dtype=id_type(members.nodes))
    at = 0
    for first in range(0, members.nodes, LOOK_UP_NODES):
        last = min(first + LOOK_UP_NODES, members.nodes)
        found = holders.look_up(members.between(first, last) + first)
        loader[at : at + len(found)] = found[:, 0].numpy()
        row[at : at + len(found)] = found[:, 1]
        at += len(found)
    return loader, row, np.bincount(loader, minlength=holders.axis.size)


def share_rounds(counts: Counts, group_rows: int, me: int) -> tuple[Counts, list[Counts]]:
    """Cut what the ranks of an axis request into rounds.

    Every peer sends in every round, its share of the round in proportion to what it still has to
    send, so that no peer is waited for alone. Both ends work the shares out from the counts.

    A round has ``group_rows`` rows of a requester's, fewer in its last. A peer's share is its
    part of what is left, rounded down; the rows that this leaves over come one each from the
    peers that have more, the next one on the axis first.

    Args:
        counts: [ranks, ranks] rows that each rank requests of each.
        me: our index.

    Returns:
        [ranks, rounds + 1] rows of each peer that arrive here before each round, and for each
        rank [its rounds + 1] the same of our rows there.
    """
    size = len(counts)
    ring = (np.arange(size)[:, None] + np.arange(size)) % size
    left = np.take_along_axis(counts, ring, 1)
    total = left.sum(1)
    rounds = -(-total // group_rows)
    most = int(rounds.max(initial=0))
    ours = np.zeros((most + 1, size), np.int64)
    theirs = np.zeros((most + 1, size), np.int64)
    to_us = np.arange(size), (me - np.arange(size)) % size
    for number in range(most):
        room = np.minimum(group_rows, total)
        share = left * room[:, None] // np.maximum(total, 1)[:, None]
        more = share < left
        share += more & (np.cumsum(more, 1) <= (room - share.sum(1))[:, None])
        left -= share
        total -= room
        ours[number + 1] = ours[number] + share[me]
        theirs[number + 1] = theirs[number] + share[to_us]
    by_rank = np.empty((size, int(rounds[me]) + 1), np.int64)
    by_rank[ring[me]] = ours[: rounds[me] + 1].T
    return by_rank, [theirs[: rounds[i] + 1, i].copy() for i in range(size)]


def places_before(cuts: Counts, me: int) -> Counts:
    """[ranks, rounds] slots of each round that peers before fill, the next on the axis first."""
    ring = (me + np.arange(len(cuts))) % len(cuts)
    shares = np.diff(cuts[ring], axis=1)
    before = np.empty_like(shares)
    before[ring] = np.cumsum(shares, axis=0) - shares
    return before
