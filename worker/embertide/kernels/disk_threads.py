"""Reading ahead and writing behind: the disk works beside the thread that computes.

One thread reads the next part while one is computed, another writes the part before. Of each there
is at most one in flight, so that memory is bounded: a part that is read, one that is computed, one
that is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")


class DiskThreads(AbstractContextManager["DiskThreads"]):
    """The two threads; they have ended when the context is left, also by an error.

    What a thread raises is raised where its result is taken: of a write, by the next one or at the
    end of the context.
    """

    def __init__(self) -> None:
        self._reader = ThreadPoolExecutor(1, "scratch-read")
        self._writer = ThreadPoolExecutor(1, "scratch-write")
        self._writing: Future[None] | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.settle()
        finally:
            for pool in (self._reader, self._writer):
                pool.shutdown(cancel_futures=True)

    def ahead(self, reads: Iterable[Callable[[], T]], *, after_writes: bool = False) -> Iterator[T]:
        """What each call returns, in order; the next one is called while the caller uses it.

        Args:
            after_writes: it waits for the write that goes on meanwhile, whose memory it takes.
        """
        coming: deque[Future[T]] = deque()
        for read in reads:
            before = self._writing if after_writes else None
            coming.append(self._reader.submit(_after, before, read))
            if len(coming) > 1:
                # No name here refers to the result, which goes as soon as the caller is done.
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()

    def write(self, call: Callable[[T], None], values: T) -> None:
        """Have values written, once what was to be written before is; they go with that."""
        last = [values]
        del values
        self.settle()
        self._writing = self._writer.submit(_write_last, call, last)

    def settle(self) -> None:
        """Wait for the write in flight, and raise what it raised."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def _write_last(call: Callable[[T], None], last: list[T]) -> None:
    """Write the only reference to some values: their memory is free before others see the end."""
    call(last.pop())


def _after(write: Future[None] | None, read: Callable[[], T]) -> T:
    """Read, when a write has ended well."""
    if write is not None:
        write.result()
    return read()
