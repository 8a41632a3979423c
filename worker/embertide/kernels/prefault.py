"""Memory that is ready before the process that uses it.

The first touch of a page is a fault, and the system clears the page; where a hypervisor has to find
it first, that takes longer than all a layer computes. While a worker's process is still importing
on one core, another process makes huge pages of files that have no name. The worker maps its file,
and its first large tensors come from there.

Imports no torch: this is for the process that waits for those that do.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass

from embertide.kernels import native

_PAGE_BYTES = 2 << 20
"""The size of a huge page."""
_STEP_BYTES = 4 * _PAGE_BYTES
"""What is filled in one call; stopping waits for no more."""
_TRIES, _PAUSE_SECONDS = 100, 0.005
"""For a huge page: where free memory is in small pieces, there is one a moment later, or none."""


@dataclass(frozen=True)
class Prefaulted:
    """What was ready when the workers started.

    Attributes:
        process: that has the files open.
        files: its descriptors, one for each worker; none where the system has no such files.
        sizes: bytes that are ready in each.
    """

    process: int
    files: tuple[int, ...]
    sizes: tuple[int, ...]

    def take(self, worker: int) -> int | None:
        """The descriptor of a worker's file, whose pages this process's tensors now come from.

        None where there are none, or the other process has gone.
        """
        if worker >= len(self.files) or not self.sizes[worker]:
            return None
        path = f"/proc/{self.process}/fd/{self.files[worker]}"
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        native.lib.adopt_file(file, self.sizes[worker])
        return file


class Prefault:
    """Files that a thread fills with pages, until it is stopped."""

    def __init__(self) -> None:
        self._files: list[int] = []
        self._sizes: list[int] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, workers: int, size: int) -> None:
        """Begin to fill a file for each worker with up to ``size`` bytes."""
        size = size // _PAGE_BYTES * _PAGE_BYTES
        if native.lib is None or not size or not hasattr(os, "memfd_create"):
            return
        # Where no such file can be had, workers find pages themselves.
        with suppress(OSError):
            for _ in range(workers):
                self._files.append(os.memfd_create("embertide", os.MFD_CLOEXEC))
                os.truncate(self._files[-1], size)
        self._sizes = [0] * len(self._files)
        self._thread = threading.Thread(
            target=self._fill, args=(size,), name="prefault", daemon=True
        )
        self._thread.start()

    def stop(self, most: int) -> Prefaulted:
        """End filling; what is ready, up to ``most`` bytes a worker."""
        self._end()
        sizes = [min(size, most // _PAGE_BYTES * _PAGE_BYTES) for size in self._sizes]
        for file, size in zip(self._files, sizes, strict=True):
            os.truncate(file, size)
        return Prefaulted(os.getpid(), tuple(self._files), tuple(sizes))

    def close(self) -> None:
        """Keep the files open no longer; workers that have taken theirs keep them."""
        self._end()
        while self._files:
            os.close(self._files.pop())

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _fill(self, size: int) -> None:
        """In turns, so that all workers have about as much."""
        for at in range(0, size, _STEP_BYTES):
            step = min(_STEP_BYTES, size - at)
            for index, file in enumerate(self._files):
                if not self._filled(file, at, step):
                    return
                self._sizes[index] += step

    def _filled(self, file: int, at: int, step: int) -> bool:
        for _ in range(_TRIES):
            if self._stop.is_set():
                return False
            if native.lib.fill_file(file, at, step):
                return True
            self._stop.wait(_PAUSE_SECONDS)
        return False
