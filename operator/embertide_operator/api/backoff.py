"""How long to wait after the n-th failure in a row: longer each time, and never all at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")

_JITTER = 0.5
_MOST_DOUBLINGS = 30


class Backoff(Generic[K]):
    """Waits in seconds for each of several things that fail.

    The n-th wait is ``first * 2^n`` at most ``longest``, times a random factor of 0.5 to 1.5: those
    that failed together do not come back together.
    """

    def __init__(
        self, first: float, longest: float, choose: Callable[[], float] = random.random
    ) -> None:
        self._first, self._longest, self._choose = first, longest, choose
        self._failures: dict[K, int] = {}

    def next(self, key: K) -> float:
        """Seconds to wait after one more failure."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait = min(self._longest, self._first * 2.0 ** min(failures, _MOST_DOUBLINGS))
        return wait * (1 - _JITTER + 2 * _JITTER * self._choose())

    def reset(self, key: K) -> None:
        """It has succeeded, or is gone."""
        self._failures.pop(key, None)
