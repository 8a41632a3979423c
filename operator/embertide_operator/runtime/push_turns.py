"""Whose pass of an output's jobs may start a push: passes of two jobs at once must not both do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class PushTurns:
    """One pass at a time for each output, among jobs that have a version to push; thread-safe.

    A pass writes in the status that its push has begun, which the next one sees in the cache.
    """

    _taken: set[str] = field(default_factory=set)  # outputs
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def take(self, output: str) -> Iterator[bool]:
        """Whether it is the caller's turn until the block ends; nothing is waited for."""
        with self._lock:
            is_free = output not in self._taken
            self._taken.add(output)
        try:
            yield is_free
        finally:
            if is_free:
                with self._lock:
                    self._taken.discard(output)
