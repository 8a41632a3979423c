"""Cutting a partition's non-zeros into a local block and one block per group of sources.

A stable counting sort by group in two passes over the rows: the first counts, so that the
second writes every array of the result once and in place. Beside the result there are counters
for each group, of at most a few hundred tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.footprint import FEW
from embertide.kernels import native
from embertide.kernels.block import Block, PackedBlock, unpacked
from embertide.kernels.csr import Csr
from embertide.kernels.node_set import NodeSet
from embertide.kernels.spilled_csr import (
    SpilledBlock,
    SpilledCsr,
    SpilledGroup,
    SpilledGroups,
)

Counts = npt.NDArray[np.int64]
_PANEL_BITS = 16
"""Bits of a row's number that each non-zero of a packed block has."""


@dataclass(frozen=True, kw_only=True)
class RangePlaces:
    """Sources of which each holder owns a range of nodes.

    The k-th member of a holder's range arrives in the round whose cuts enclose k.

    Attributes:
        members: the sources.
        bounds: [holders + 1] nodes.
        own: our range: its members are rows of ours.
        cuts: [holders, rounds + 1] members of the range that arrive before each round.
        before: [holders, rounds] slots of the round that other holders fill before this one.
        group_rows: slots per round.
    """

    members: NodeSet
    bounds: Counts
    own: int
    cuts: Counts
    before: Counts
    group_rows: int

    @property
    def groups(self) -> int:
        """Rounds, and the local group."""
        return int(self.before.shape[1]) + 1

    def native(self) -> Any:
        """The same for the kernels."""
        return native.lib.Ranges(self.members.lines, self.bounds, self.own, self.cuts, self.before)

    def codes(self) -> Counts:
        """[members] the slot of each member, or -1 - row for a row of ours."""
        ends = self.members.ranks(self.bounds)
        codes = np.empty(self.members.count, np.int64)
        for holder, (low, high) in enumerate(pairwise(ends)):
            k, cuts = np.arange(high - low), self.cuts[holder]
            if holder == self.own:
                codes[low:high] = self.bounds[holder] - 1 - self.members.members[low:high]
                continue
            number = np.searchsorted(cuts, k, side="right") - 1
            place = self.before[holder][number] + k - cuts[number]
            codes[low:high] = number * self.group_rows + place
        return codes


@dataclass(frozen=True, kw_only=True)
class TablePlaces:
    """Sources with a slot each.

    Attributes:
        members: the sources.
        slots: [members] int32 or int64 slot, or -1 - row for a row of ours.
        rounds: groups of slots.
        group_rows: slots per round.
    """

    members: NodeSet
    slots: torch.Tensor
    rounds: int
    group_rows: int

    @property
    def groups(self) -> int:
        """Rounds, and the local group."""
        return self.rounds + 1

    def native(self) -> Any:
        """The same for the kernels."""
        return native.lib.Table(self.members.lines, self.slots, self.rounds, self.group_rows)

    def codes(self) -> Counts:
        """[members] the slots."""
        return self.slots.numpy().astype(np.int64)


Places = RangePlaces | TablePlaces
"""Where each source is: in which group, and at which place of it."""


def cut_on_disk(
    csr: SpilledCsr, places: Places, *, edges: bool
) -> tuple[SpilledBlock, list[SpilledGroup]]:
    """As :func:`cut_by_group`, in files; a part is in memory at a time.

    Blocks have no positions; with ``edges`` groups have the order of each part.

    Raises:
        StorageError: the disk has no room, or cannot be read or written.
    """
    parts: list[SpilledGroups] = []

    def local() -> Iterator[Csr]:
        for span, part in csr.parts():
            own, *groups = map(unpacked, cut_by_group(part, places, edges=edges))
            parts.append(SpilledGroups(csr.scratch, span, own, groups))
            yield Csr(part.first, own.indptr.long(), own.indices, own.weights)

    block = SpilledBlock(SpilledCsr.write(csr.scratch, csr.first, csr.rows, local()))
    return block, [SpilledGroup(tuple(parts), number) for number in range(places.groups - 1)]


def cut_by_group(csr: Csr, places: Places, *, edges: bool) -> list[Block | PackedBlock]:
    """The local block, then the block of each group, on the CPU.

    Where groups are so small that their rows have hardly more than one non-zero each, all of them
    are packed.

    Args:
        csr: the non-zeros; every column is among the sources.
        edges: whether blocks carry each non-zero's position in ``csr``.

    The local block has every row; a group's block only the rows it touches.

    Raises:
        ValueError: a column that is no source.
    """
    if native.lib is None:
        return [*_cut_plain(csr, places, edges)]
    return _cut(csr, places, edges)


def _cut(csr: Csr, places: Places, edges: bool) -> list[Block | PackedBlock]:
    lib, which, groups = native.lib, places.native(), places.groups
    tasks = lib.cut_tasks(csr.indptr, groups)
    at, row_at = np.empty((2, tasks, groups), np.int64)
    lib.cut_count(csr.indptr, csr.cols, which, at, row_at)
    begins = _exclusive(at)
    row_at[:, 0] = 0
    row_begins = _exclusive(row_at)
    widest = int(np.diff(begins).max())
    narrow = np.int32 if widest < 2**31 else np.int64
    remote, touched = int(begins[-1] - begins[1]), int(row_begins[-1])
    packed = remote < FEW * touched and widest < 2**31
    panels = -(-csr.rows >> _PANEL_BITS) if packed else 0
    out = _Sorted(
        begins=begins,
        row_begins=row_begins,
        indices=torch.empty_like(csr.cols),
        weights=None if csr.weights is None else torch.empty_like(csr.weights),
        positions=_positions(csr.nnz) if edges else None,
        rows=np.empty(0 if packed else touched, np.int32),
        starts=np.empty(0 if packed else touched + groups - 1, narrow),
        low=np.empty(remote, np.uint16) if packed else None,
        panels=np.empty((panels, groups), np.int64),
        local=np.zeros(csr.rows + 1, narrow),
    )
    wide = out.positions is not None and out.positions.dtype == torch.int64
    lib.cut_fill(
        csr.indptr,
        csr.cols,
        csr.weights,
        which,
        at,
        row_at,
        begins[:-1],
        out.indices,
        out.weights,
        None if wide else out.positions,
        out.positions if wide else None,
        out.rows,
        out.starts,
        out.low,
        out.panels,
        out.local,
    )
    return [out.block(group) for group in range(groups)]


def _positions(nnz: int) -> torch.Tensor:
    return torch.empty(nnz, dtype=torch.int32 if nnz < 2**31 else torch.int64)


def _exclusive(counts: Counts) -> Counts:
    """Turn [tasks, groups] counts into first places, group by group; returns groups' bounds."""
    total = counts.sum(0)
    begins = np.concatenate([[0], np.cumsum(total)])
    ends = np.cumsum(counts, axis=0)
    np.subtract(ends, counts, out=counts)
    counts += begins[:-1]
    return begins


@dataclass(frozen=True, kw_only=True)
class _Sorted:
    """The non-zeros ordered by group; a group's rows and run starts are spans as well."""

    begins: Counts
    row_begins: Counts
    indices: torch.Tensor
    weights: torch.Tensor | None
    positions: torch.Tensor | None
    rows: npt.NDArray[np.int32]
    starts: npt.NDArray[np.integer[Any]]
    low: npt.NDArray[np.uint16] | None
    panels: Counts
    local: npt.NDArray[np.integer[Any]]

    def block(self, group: int) -> Block | PackedBlock:
        """A group's views of the arrays."""
        span = slice(int(self.begins[group]), int(self.begins[group + 1]))
        if group > 0 and self.low is not None:
            return self._packed(self.low, group, span)
        first, last = int(self.row_begins[group]), int(self.row_begins[group + 1])
        indptr = self.local
        if group > 0:
            indptr = self.starts[first + group - 1 : last + group]
            indptr[-1] = span.stop - span.start
        return Block(
            torch.from_numpy(self.rows[first:last]) if group > 0 else None,
            torch.from_numpy(indptr),
            self.indices[span],
            None if self.weights is None else self.weights[span],
            None if self.positions is None else self.positions[span],
        )

    def _packed(self, low: npt.NDArray[np.uint16], group: int, span: slice) -> PackedBlock:
        local, panels = int(self.begins[1]), [*self.panels[:, group], span.stop]
        return PackedBlock(
            low[span.start - local : span.stop - local],
            np.array(panels, np.int64) - span.start,
            self.indices[span],
            None if self.weights is None else self.weights[span],
            None if self.positions is None else self.positions[span],
        )


def _cut_plain(csr: Csr, places: Places, edges: bool) -> list[Block]:
    """In numpy, with arrays of all non-zeros."""
    codes = places.codes()
    cols = csr.cols.numpy()
    if csr.nnz and not np.isin(cols, places.members.members).all():
        raise ValueError("cols: a column that is no source")
    slot = codes[places.members.ranks(cols)]
    group = np.where(slot < 0, 0, slot // places.group_rows + 1)
    index = np.where(slot < 0, -1 - slot, slot % places.group_rows).astype(cols.dtype)
    order = np.argsort(group, kind="stable")
    row = csr.row_ids().numpy().astype(np.int32)[order]
    bounds = np.searchsorted(group[order], np.arange(places.groups + 1))
    blocks = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        of = torch.from_numpy(order[low:high])
        if number == 0:
            rows, counts = None, np.bincount(row[low:high], minlength=csr.rows)
        else:
            touched, counts = np.unique(row[low:high], return_counts=True)
            rows = torch.from_numpy(touched)
        ends = np.concatenate([[0], np.cumsum(counts)])
        blocks.append(
            Block(
                rows,
                torch.from_numpy(ends.astype(np.int32 if csr.nnz < 2**31 else np.int64)),
                torch.from_numpy(index[of.numpy()]),
                None if csr.weights is None else csr.weights[of],
                of.to(_positions(csr.nnz).dtype) if edges else None,
            )
        )
    return blocks
