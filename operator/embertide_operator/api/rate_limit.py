"""A token bucket: how often this operator may ask the API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RateLimit:
    """So many calls a second on average, and a burst of so many at once; thread-safe.

    A caller takes its place in the line at once and then sleeps until its turn, so callers are
    served in the order in which they came.

    Args:
        rate: calls a second.
        burst: how many may come at once after a time of rest.
        on_wait: called with the seconds that each call that has to wait waits.
    """

    def __init__(
        self,
        rate: float,
        burst: int,
        on_wait: Callable[[float], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._burst = rate, float(burst)
        self._on_wait, self._clock, self._sleep = on_wait, clock, sleep
        self._lock = threading.Lock()
        self._tokens, self._at = self._burst, clock()

    def wait(self) -> None:
        """Return when the next call may be made."""
        seconds = self._reserve()
        if seconds > 0:
            self._on_wait(seconds)
            self._sleep(seconds)

    def _reserve(self) -> float:
        """Take a token, maybe one that is yet to come; seconds until it is there."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now
            self._tokens -= 1
            return max(0.0, -self._tokens / self._rate)
