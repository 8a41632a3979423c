"""Rows that were computed beside those that were kept: which have moved, and how wrong others are.

Norms are Euclidean, in float64, of whole rows: where ranks have slices of columns, the ranks of the
feature axis add their squares up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embertide.graph.exchange import Channel
from embertide.layouts import Shard
from embertide.program.steps.frontier import Rows

_ROWS = 1 << 14
"""Rows that are converted to float64 at a time."""
AUDIT = "rows of {name} that did not change have other bits than those that were kept"
MOVED = (
    "rows of {name} that need not be computed are further than the tolerance from those that were"
    " kept"
)
NOT_FINITE = (
    "rows of {name} that did not change are not finite, so that their distance from those that"
    " were kept is unknown (refresh.tolerance)"
)


@dataclass(frozen=True)
class RowsBeside:
    """Some rows of our shard of a tensor, and what they were computed as.

    Attributes:
        shard: ours of all rows.
        first: the dense id of its first row.
        numbers: [k] int64, the rows of it, ascending.
        values: [k, d] as they were computed.
        new: [k] bool, of nodes that were not there before: what was kept means nothing.
        axis: of the feature axis; None where each rank has whole rows.
    """

    shard: Shard
    first: int
    numbers: torch.Tensor
    values: torch.Tensor
    new: Rows
    axis: Channel | None

    @property
    def kept(self) -> torch.Tensor:
        """[k, d] as they were kept."""
        return self.shard.data[self.numbers]

    def differ(self) -> Rows:
        """[k] bool, the rows that are new or have other bits. Collective: the ranks of the feature
        axis must call."""
        return moved_rows(self.kept, self.values, 0.0, self.axis) | self.new

    def put(self, some: Rows) -> None:
        """Put some of them in the place of those that were kept.

        Args:
            some: [k] bool.
        """
        self.shard.data[self.numbers[some]] = self.values[some]

    def problem(self, name: str, wrong: Rows, tolerance: float) -> str:
        """What is wrong where rows should not have moved; "": none is.

        Args:
            wrong: [k] bool, those that have.
        """
        if not bool(wrong.any()):
            return ""
        if tolerance == 0:
            return AUDIT.format(name=name)
        both = torch.cat([self.values[wrong], self.kept[wrong]])
        finite = bool(finite_rows(both, self.axis).all())
        return (MOVED if finite else NOT_FINITE).format(name=name)


@dataclass(frozen=True)
class Beside:
    """What is kept of some rows of our shard of a tensor, beside those that dependents have seen.

    Attributes:
        rows: [k] int64, of the shard, ascending.
        values: [k, d]; of exact rows our columns, as a run of all rows has them.
    """

    rows: torch.Tensor
    values: torch.Tensor

    def after(
        self, shard: Shard, computed: torch.Tensor, values: torch.Tensor, stale: torch.Tensor
    ) -> Beside:
        """The exact rows for the next run.

        Args:
            shard: what dependents see from now on.
            computed: [n] int64, the rows of it that were computed, ascending.
            values: [n, d] those rows.
            stale: [n] bool, those that may differ from the run before.
        """
        differ = stale & (bits_of(values) != bits_of(shard.data[computed])).any(1)
        again = torch.zeros(len(shard.data), dtype=torch.bool)
        again[computed[stale]] = True
        stay = ~again[self.rows]
        rows = torch.cat([self.rows[stay], computed[differ]])
        order = rows.argsort()
        every = torch.cat([self.values[stay], values[differ]])
        return Beside(rows[order], every[order])

    def put_into(self, data: torch.Tensor, picked: torch.Tensor) -> None:
        """Put the exact rows among some of the shard's.

        Args:
            data: [n, d] those rows, which are changed.
            picked: [n] int64, which rows they are, ascending.
        """
        if not len(picked):
            return
        at = torch.searchsorted(picked, self.rows).clamp(max=len(picked) - 1)
        there = picked[at] == self.rows
        data[at[there]] = self.values[there]


def moved_rows(
    seen: torch.Tensor, computed: torch.Tensor, tolerance: float, channel: Channel | None
) -> torch.Tensor:
    """[k] bool, the rows with ``||computed - seen|| > tolerance * ||seen||``.

    With a tolerance of 0 those with other bits. A row that is not finite has moved. Collective:
    every rank of the feature axis must call, with the same rows.

    Args:
        seen, computed: [k, d] our columns of the rows, of one type.
        channel: of the feature axis; None where each rank has whole rows.
    """
    if tolerance == 0:
        differ = (bits_of(seen) != bits_of(computed)).any(1)
        return _sum(differ.to(torch.uint8).unsqueeze(1), channel)[:, 0] > 0
    distance, norm = distances(seen, computed, channel)
    return ~within(distance, tolerance, norm)


def within(distance: torch.Tensor, tolerance: float, norm: torch.Tensor) -> torch.Tensor:
    """[k] bool, the distances that are finite and no more than the tolerance of a finite norm."""
    return (distance <= tolerance * norm) & distance.isfinite() & norm.isfinite()


def distances(
    seen: torch.Tensor, computed: torch.Tensor, channel: Channel | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """[k] float64 ``||computed - seen||`` and ``||seen||``; see :func:`moved_rows`."""
    squares = torch.stack([_squares(computed, seen), _squares(seen)], 1)
    distance, norm = _sum(squares, channel).sqrt().unbind(1)
    return distance, norm


def norms(rows: torch.Tensor, channel: Channel | None) -> torch.Tensor:
    """[k] float64 norms of rows; see :func:`moved_rows`."""
    return _sum(_squares(rows).unsqueeze(1), channel)[:, 0].sqrt()


def finite_rows(rows: torch.Tensor, channel: Channel | None) -> torch.Tensor:
    """[k] bool, the rows whose values are all finite.

    Collective: every rank of the feature axis must call, with the same rows.

    Args:
        rows: [k, d] our columns of them.
        channel: of the feature axis; None where each rank has whole rows.
    """
    other = ~rows.isfinite().all(1, keepdim=True)
    return _sum(other.to(torch.uint8), channel)[:, 0] == 0


def relative_errors(exact: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """[k] float64 ``||rows - exact|| / max(||rows||, ||exact||)``; 0 of equal rows, inf of rows
    that are not finite.

    Args:
        exact, rows: [k, d] whole rows.
    """
    largest = torch.maximum(_squares(exact), _squares(rows)).sqrt()
    distance = _squares(rows, exact).sqrt()
    errors = torch.where(distance == 0, 0.0, distance / largest)
    return errors.nan_to_num(nan=float("inf"), posinf=float("inf"))


def bits_of(rows: torch.Tensor) -> torch.Tensor:
    """The same memory as whole numbers."""
    return rows.contiguous().view(torch.int32 if rows.dtype == torch.float32 else torch.int16)


def _squares(rows: torch.Tensor, origin: torch.Tensor | None = None) -> torch.Tensor:
    """[k] float64 sums of squares of rows, or of their differences from others."""
    sums = torch.empty(len(rows), dtype=torch.float64)
    for first in range(0, len(rows), _ROWS):
        some = slice(first, first + _ROWS)
        values = rows[some].double()
        if origin is not None:
            values -= origin[some].double()
        torch.sum(values.square_(), 1, out=sums[some])
    return sums


def _sum(ours: torch.Tensor, channel: Channel | None) -> torch.Tensor:
    """The sum over the ranks of a channel. Collective: all of them must call."""
    if channel is None or channel.axis.size == 1:
        return ours
    return torch.stack(channel.all_gather(ours)).sum(0)
