"""Values by magnitude: bins of equal width on a logarithmic scale, which workers add up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.facts.telemetry.comparison import Distribution
from embertide.kernels.row_pairs import count_bins

_LOW, _HIGH, _PER_DECADE = -12, 12, 20
_BINS = (_HIGH - _LOW) * _PER_DECADE
_EDGES = 10.0 ** (_LOW + np.arange(_BINS) / _PER_DECADE)
_AT_ONCE = 1 << 16
"""Values that are widened at a time."""
_SHARES = (1, 5, 25, 50, 75, 95, 99)
"""Percent of which a distribution gives the quantiles."""


def _no_counts() -> npt.NDArray[np.int64]:
    return np.zeros(_BINS + 1, np.int64)


@dataclass
class Histogram:
    """Counts of values from 1e-12 to 1e12, twenty bins for each power of ten.

    A quantile is therefore within 6 % of the value. What is less than 1e-12 counts as zero, what is
    more than 1e12 belongs to the last bin.

    Attributes:
        counts: [481]; the first is of the values below all bins.
    """

    counts: npt.NDArray[np.int64] = field(default_factory=_no_counts)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Count [n] values; those that are not finite are left out."""
        for at in range(0, len(values), _AT_ONCE):
            count_bins(values[at : at + _AT_ONCE].astype(np.float64), _EDGES, self.counts)

    def add_zeros(self, count: int) -> None:
        """Count so many values that are zero."""
        self.counts[0] += count

    def merge(self, other: Histogram) -> None:
        """Add another one's counts."""
        self.counts += other.counts

    def quantile(self, share: float) -> float:
        """The value that a share of all do not exceed; 0 of none."""
        total = int(self.counts.sum())
        if not total:
            return 0.0
        place = int(np.searchsorted(np.cumsum(self.counts), share * total))
        return _middle(min(place, _BINS))

    def describe(self) -> Distribution:
        """As plain data."""
        (used,) = np.nonzero(self.counts[1:])
        first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
        return Distribution(
            quantiles={f"{share}%": self.quantile(share / 100) for share in _SHARES},
            first=_LOW + first / _PER_DECADE,
            per_decade=_PER_DECADE,
            below=int(self.counts[0]),
            counts=[int(count) for count in self.counts[1 + first : 1 + last]],
        )


def _middle(place: int) -> float:
    """The geometric middle of a bin; 0 of what is below all."""
    return 0.0 if place == 0 else float(10.0 ** (_LOW + (place - 0.5) / _PER_DECADE))
