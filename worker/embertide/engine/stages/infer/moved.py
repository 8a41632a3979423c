"""How far rows have moved, and how wrong they are, beside others; rows beside those of a tensor.

Norms are Euclidean, in float64, of whole rows: where ranks have slices of columns, the ranks of the
feature axis add their squares up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embertide.graph.exchange import Channel
from embertide.program.steps.frontier import Rows

ROWS = 1 << 14
"""Rows that are compared, and converted to float64, at a time."""


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
        self,
        computed: torch.Tensor,
        values: torch.Tensor,
        stale: torch.Tensor,
        differ: torch.Tensor,
    ) -> Beside:
        """The exact rows for the next run.

        Args:
            computed: [n] int64, the rows that were computed, ascending.
            values: [n, d] as they were computed.
            stale: [n] bool, those that may differ from the run before.
            differ: [n] bool, those of which dependents see others from now on.
        """
        stay = ~torch.isin(self.rows, computed[stale], assume_unique=True)
        rows = torch.cat([self.rows[stay], computed[differ]])
        order = rows.argsort()
        every = torch.cat([self.values[stay], values[differ]])
        return Beside(rows[order], every[order])

    def has(self, picked: torch.Tensor) -> Rows:
        """[n] bool, which of [n] rows are among these."""
        if not len(self.rows):
            return torch.zeros(len(picked), dtype=torch.bool)
        at = torch.searchsorted(self.rows, picked).clamp(max=len(self.rows) - 1)
        return self.rows[at] == picked

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
    for first in range(0, len(rows), ROWS):
        some = slice(first, first + ROWS)
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
