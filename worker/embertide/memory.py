"""How much memory a worker really takes: its anonymous pages, sampled while it runs.

The resident set would count pages of shared libraries as they are first touched; what a plan
can predict, and what a memory limit is spent on, is what the worker allocates.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

import psutil

_STATUS = Path("/proc/self/status")


def allocated_bytes() -> int:
    """Anonymous resident memory of this process; its resident set where the system can't tell."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return int(psutil.Process().memory_info().rss)


class MemoryWatch:
    """Samples :func:`allocated_bytes` from a thread between ``with`` and its end.

    Attributes:
        baseline: bytes at the start.
        peak: largest sample so far.
    """

    def __init__(self, period_seconds: float = 0.02) -> None:
        self.baseline = self.peak = 0
        self._period = period_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory", daemon=True)

    def __enter__(self) -> MemoryWatch:
        self.baseline = self.peak = allocated_bytes()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, allocated_bytes())

    def _sample(self) -> None:
        while not self._stop.wait(self._period):
            self.peak = max(self.peak, allocated_bytes())
