"""Means and squared deviations of columns, in float64 and without cancellation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

CHUNK_VALUES = 1 << 17
"""Values that are widened to float64 at a time, so that they stay in the cache."""


@dataclass(frozen=True)
class Moments:
    """What is known of each of d columns after some rows.

    Attributes:
        count: the rows.
        mean: [d] float64; 0 of no rows.
        squares: [d] float64 sums of squared deviations from the mean.
    """

    count: int
    mean: Tensor
    squares: Tensor

    @property
    def variance(self) -> Tensor:
        """[d] squared deviations divided by the count; 0 of no rows."""
        return self.squares / max(1, self.count)

    def joined(self, other: Moments) -> Moments:
        """Moments of both sets of rows; Chan, Golub and LeVeque, *Updating Formulae*, eq. 2.1."""
        count = self.count + other.count
        if not self.count or not other.count:
            return self if self.count else other
        apart = other.mean - self.mean
        between = apart.square() * (self.count * other.count / count)
        return Moments(
            count,
            self.mean + apart * (other.count / count),
            self.squares + other.squares + between,
        )

    def over_all(self) -> Moments:
        """The moments of all columns' values together: one mean, one sum of squares, as [1]."""
        mean = self.mean.mean(0, keepdim=True)
        between = (self.mean - mean).square() * self.count
        squares = (self.squares + between).sum(0, keepdim=True)
        return Moments(self.count * len(self.mean), mean, squares)


def of_rows(x: Tensor) -> Moments:
    """The moments of rows [n, d]; the order of the additions depends on nothing but the shape."""
    rows = max(1, CHUNK_VALUES // max(1, x.shape[1]))
    return join(x.shape[1], x.device, (_of_chunk(part) for part in x.split(rows)))


def _of_chunk(x: Tensor) -> Moments:
    wide = x.double()
    mean = wide.sum(0) / max(1, len(wide))
    return Moments(len(wide), mean, (wide - mean).square_().sum(0))


def join(width: int, device: torch.device, parts: Iterable[Moments]) -> Moments:
    """The moments of the rows of all parts, put together one after the other."""
    none = torch.zeros(width, dtype=torch.float64, device=device)
    return reduce(Moments.joined, parts, Moments(0, none, none))
