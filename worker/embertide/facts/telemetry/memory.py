"""How much memory a worker really takes: its anonymous pages, sampled while it runs.

The resident set would count pages of shared libraries as they are first touched; what a plan
can predict, and what a memory limit is spent on, is what the worker allocates.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import psutil
import pyarrow as pa

_STATUS = Path("/proc/self/status")
_M_MMAP_THRESHOLD = -3
"""From glibc's malloc.h."""
_LARGE_BYTES = 4 << 20
"""More than a batch, whose memory is used again at once."""

_LOOKS_PER_CONTAINER = 10
"""The kernel sums up what it answers about a container."""
_BLOCK_BYTES = 512
"""The unit of st_blocks."""
_SHARED: dict[int, int] = {}
"""Process -> its file; one that is forked has none."""


def allocated_bytes() -> int:
    """Anonymous resident memory of this process, and what its peers can map of it.

    Its resident set where the system can't tell.
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024 + _shared_bytes()
    return int(psutil.Process().memory_info().rss)


def count_shared(file: int) -> None:
    """Count a file of memory that peers can map, by its descriptor, as this process's own."""
    _SHARED[os.getpid()] = file


def _shared_bytes() -> int:
    file = _SHARED.get(os.getpid())
    return 0 if file is None else os.fstat(file).st_blocks * _BLOCK_BYTES


def return_large_arrays() -> None:
    """Let large arrays have pages of their own, which go back to the system as they are freed.

    glibc would raise its limit to 32 MiB with the first of them that is freed, and keep what
    lies below in heaps whose holes stay: a tenth of a run's memory. Processes that are forked
    inherit this; other C libraries have no such call.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


@contextmanager
def arrow_on_the_heap() -> Iterator[None]:
    """Let arrow take its buffers from the C heap meanwhile; one block at a time in a process.

    Its own allocator keeps what each thread has freed for a second: of readers that mostly wait
    for a store, several times what they hold. What the heap keeps goes back at the end.
    """
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
        release_memory()


def release_memory() -> None:
    """Give freed memory back to the system: Python's cycles, arrow's pool, the C heap."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class MemoryWatch:
    """Samples :func:`allocated_bytes` from a thread between ``with`` and its end.

    Attributes:
        baseline: bytes at the start, without those of the file that peers can map.
        peak: largest sample so far.
        stage: what the samples are counted under from now on.
        peaks: stage -> largest sample beyond the baseline.
        container_peak: largest sample of the container's memory; 0 outside one.

    Args:
        container: the memory of the container that the process has for itself; None outside one.
    """

    def __init__(
        self, period_seconds: float = 0.02, container: Callable[[], int] | None = None
    ) -> None:
        self.baseline = self.peak = self.container_peak = 0
        self._container = container
        self.stage = "start"
        self.peaks: dict[str, int] = {}
        self._period = period_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory", daemon=True)

    def __enter__(self) -> MemoryWatch:
        self.peak = allocated_bytes()
        self.baseline = self.peak - _shared_bytes()
        self.look_at_container()
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
        self._look()
        self.look_at_container()

    @property
    def used_bytes(self) -> int:
        """What is allocated now, beyond the baseline."""
        return allocated_bytes() - self.baseline

    def _sample(self) -> None:
        looks = 0
        while not self._stop.wait(self._period):
            self._look()
            looks += 1
            if looks % _LOOKS_PER_CONTAINER == 0:
                self.look_at_container()

    def look_at_container(self) -> None:
        """Take a sample of the container's memory; any thread may call."""
        if self._container is not None:
            self.container_peak = max(self.container_peak, self._container())

    def _look(self) -> None:
        now = allocated_bytes()
        self.peak = max(self.peak, now)
        self.peaks[self.stage] = max(self.peaks.get(self.stage, 0), now - self.baseline)
