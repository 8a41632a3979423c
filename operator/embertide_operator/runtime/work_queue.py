"""The queue of jobs to reconcile: no job is reconciled twice at the same time.

A key that is added while it is being processed is processed again afterwards. Adding a queued key
can make it due earlier, never later.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

Key = tuple[str, str]
"""Namespace and name of a job."""


class WorkQueue:
    """Keys with the time they are due; for use from one event loop, but where it says otherwise."""

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._busy: set[Key] = set()
        self._waiting: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        """Number of queued keys, due or not; those being processed do not count."""
        return len(self._due)

    def depth(self) -> int:
        """Number of keys that are due and not being processed; any thread may call."""
        now = time.monotonic()
        waiting = [due for key, due in self._due.copy().items() if key not in self._busy]
        return sum(due <= now for due in waiting)

    def lateness(self) -> float:
        """Seconds since the most overdue key became due, keys being processed aside."""
        waiting = [due for key, due in self._due.copy().items() if key not in self._busy]
        return max(0.0, time.monotonic() - min(waiting, default=float("inf")))

    def __contains__(self, key: Key) -> bool:
        """Whether a key is queued, due or not."""
        return key in self._due

    def add(self, key: Key, after: float = 0.0) -> None:
        """Make a key due after so many seconds, or earlier if it already was."""
        due = time.monotonic() + after
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            self._wake()

    @asynccontextmanager
    async def next(self) -> AsyncIterator[Key]:
        """Wait for the first due key; no one else gets it inside the block."""
        key = await self._take()
        try:
            yield key
        finally:
            self._busy.discard(key)
            self._wake()

    async def _take(self) -> Key:
        while True:
            key, wait = self._first()
            if key is not None:
                del self._due[key]
                self._busy.add(key)
                return key
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(changed)
            try:
                async with asyncio.timeout(wait):
                    await changed
            except TimeoutError:
                continue
            finally:
                self._waiting.discard(changed)

    def _wake(self) -> None:
        """Let all who wait look again."""
        for changed in self._waiting:
            if not changed.done():
                changed.set_result(None)

    def _first(self) -> tuple[Key | None, float | None]:
        """A key that is due now, else the seconds until one is (None: unknown)."""
        now = time.monotonic()
        passed: list[tuple[float, Key]] = []
        found: Key | None = None
        wait: float | None = None
        while self._heap:
            due, key = self._heap[0]
            if self._due.get(key) != due:
                heapq.heappop(self._heap)
            elif due > now:
                wait = due - now
                break
            elif key in self._busy:
                passed.append(heapq.heappop(self._heap))
            else:
                heapq.heappop(self._heap)
                found = key
                break
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return found, wait
