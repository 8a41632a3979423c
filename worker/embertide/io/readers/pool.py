"""Many splits at once: each is read and decoded by one of a few threads, results in their order.

Reading, decoding and numpy's loops release the interpreter's lock, so threads are enough.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from embertide.io.readers.parquet import UNBUFFERED_BYTES
from embertide.io.readers.splits import Split, assign_splits
from embertide.io.storage.protocol import BLOCK_BYTES
from embertide.kernels.threads import work_alone
from embertide.spec.schemes import is_local

S = TypeVar("S")
T = TypeVar("T")

AHEAD_BYTES = 64 << 20
"""How much :func:`read_ahead` holds that has not been asked for yet."""

_REMOTE_READERS, _REMOTE_BYTES = 8, 64 << 20
"""Splits of a remote store that are read at once, and what they may hold together."""
_STREAMED_BYTES = 24 << 20
"""Bytes that a file holds while it is read on and on: its ranges."""
_COMING_BYTES = 16 << 20
"""The most bytes of columns that arrive: four ranges of 4 MiB of the eight that are asked for at a
time. Measured."""


def readers(splits: Sequence[Split], threads: int) -> int:
    """How many splits are read at once: one a thread, and more of a remote store.

    Reading from there is waiting for one answer after the other, a few for each split.
    """
    if not are_remote(splits):
        return threads
    largest = max(1, max(split.size for split in splits))
    return max(threads, min(_REMOTE_READERS, _REMOTE_BYTES // largest))


def are_remote(splits: Sequence[Split]) -> bool:
    """Whether any is in a remote store."""
    return not all(map(is_local, {split.uri for split in splits}))


def remote_bytes_held(splits: Sequence[Split], workers: int, threads: int) -> int:
    """Bytes that a worker's readers hold of splits in a remote store, at most.

    Of as many as are read at once, the largest that one worker has: not all of a worker's are
    as large as the largest, since an object's last split is what is left of it.

    Args:
        splits: of all workers.
    """
    if not are_remote(splits):
        return 0
    at_once = readers(splits, threads)
    assigned = assign_splits(splits, workers)
    return max(sum(sorted(map(_held, ours))[-at_once:]) for ours in assigned)


def _held(split: Split) -> int:
    """Bytes that a reader holds of a split: all of columns that it fetches whole.

    Of others all ranges but the last, which is used as it comes.
    """
    if split.row_groups is not None and split.size <= UNBUFFERED_BYTES:
        return split.size
    return min(max(split.size - BLOCK_BYTES, min(split.size, BLOCK_BYTES)), _STREAMED_BYTES)


def remote_bytes_arriving(splits: Sequence[Split], held: int) -> int:
    """Bytes of parquet columns that arrive, beside what they are put together to.

    Args:
        held: bytes that readers hold of the splits.
    """
    columns = any(split.row_groups is not None for split in splits)
    return min(_COMING_BYTES, held) if columns else 0


def map_splits(splits: Sequence[S], act: Callable[[S], T], threads: int) -> list[T]:
    """``act(split)`` of every split, in order; as many at once as there are threads.

    A thread runs its kernels alone, since the others have splits as well.

    Raises:
        Exception: the first error of ``act``, in the order of the splits; those that have not
            begun by then never do.
    """
    if threads <= 1 or len(splits) <= 1:
        return [act(split) for split in splits]
    count = min(threads, len(splits))
    with ThreadPoolExecutor(count, "reader", work_alone) as pool:
        futures = [pool.submit(act, split) for split in splits]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def read_ahead(
    sources: Sequence[Iterable[T]],
    threads: int,
    size: Callable[[T], int],
    ahead_bytes: int = AHEAD_BYTES,
) -> Generator[T]:
    """The items of all sources, one source after the other, read by threads that are ahead.

    They stop ahead of us when they hold ``ahead_bytes``, but for one item each. An error in a
    source is raised here, in its place. Closing the iterator ends the threads.

    Args:
        size: of an item, in bytes.
    """
    ahead: _Ahead[T] = _Ahead(len(sources), size, ahead_bytes)
    claims = iter(enumerate(sources))
    claiming = threading.Lock()

    def work() -> None:
        while not ahead.stopped:
            with claiming:
                number, source = next(claims, (-1, ()))
            if number < 0:
                return
            ahead.fill(number, source)

    count = min(max(1, threads), len(sources))
    workers = [threading.Thread(target=work, name="reader", daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    try:
        for number in range(len(sources)):
            yield from ahead.take(number)
    finally:
        ahead.stop()
        for worker in workers:
            worker.join()


class _Ahead(Generic[T]):
    """What was read and not yet taken: a queue for each source."""

    def __init__(self, sources: int, size: Callable[[T], int], limit: int) -> None:
        self._ready: list[deque[T]] = [deque() for _ in range(sources)]
        self._ended: list[BaseException | bool] = [False] * sources
        self._size, self._limit = size, limit
        self._held = self._taking = 0
        self._changed = threading.Condition()
        self.stopped = False

    def fill(self, number: int, source: Iterable[T]) -> None:
        """Queue a source's items, waiting where too much is held; not for the one that is taken."""
        outcome: BaseException | bool = True
        try:
            for item in source:
                if not self._put(number, item):
                    return
        except BaseException as error:
            outcome = error
        with self._changed:
            self._ended[number] = outcome
            self._changed.notify_all()

    def _put(self, number: int, item: T) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._may_put(number))
            self._ready[number].append(item)
            self._held += self._size(item)
            self._changed.notify_all()
            return not self.stopped

    def _may_put(self, number: int) -> bool:
        first = number == self._taking and not self._ready[number]
        return self.stopped or first or self._held < self._limit

    def take(self, number: int) -> Iterator[T]:
        """The items of a source, as they come."""
        queue = self._ready[number]
        with self._changed:
            self._taking = number
            self._changed.notify_all()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: queue or self._ended[number])
                if not queue:
                    break
                item = queue.popleft()
                self._held -= self._size(item)
                self._changed.notify_all()
            yield item
        outcome = self._ended[number]
        if isinstance(outcome, BaseException):
            raise outcome

    def stop(self) -> None:
        """Let no thread wait any longer."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()
